"""An in-memory host for unit tests of guests.

The same limits and error codes, snapshots, transactions with their conflicts, expiry, merge operators and timers. The test drives what the real
host does by itself: time (`advance`), which `time.time` and `datetime.now` have in handlers, and durability (`make_durable`)::

    host = Host(Counter)
    assert host.call("increment", key="visits").text() == "1"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, TypeVar

from ._call import Call, Reply
from ._errors import QuarryError
from ._guest import Guest, Instance, Timer, interfaces, record_of
from ._testing.current import HostError, within
from ._testing.store import MERGES
from ._testing.world import Limits, OtherCall, Scope, World
from .codec import Bytes, from_json, text, to_bytes, to_json
from .wsgi import Answer, Request, answered

__all__ = ["Answer", "Host", "HostError", "Limits", "LogLine", "Measured", "OtherCall", "Response"]

T = TypeVar("T")

_CODE = re.compile(r"[a-z0-9-]{1,64}")
_TIMEOUT_MS = 30_000
#: A durable timer that fails is tried again after 1 s, doubled each time up to this.
_RETRY_MAX_MS = 60_000


@dataclass(frozen=True)
class Response:
    """What a call gave back."""

    payload: bytes
    content_type: str
    is_applied: bool
    #: The last write of the call; None where it wrote nothing.
    seq: int | None

    def text(self) -> str:
        """The bytes as text."""
        return text(self.payload)

    def json(self) -> Any:
        """The bytes as JSON."""
        return from_json(self.payload)


@dataclass(frozen=True)
class LogLine:
    """A line that the guest logged."""

    level: str
    message: str
    fields: dict[str, str]


@dataclass(frozen=True)
class Measured:
    """What the guest measured: a `counter`, a `gauge` or a `histogram`."""

    kind: str
    name: str
    labels: dict[str, str]
    value: float


class _NoGuest(Guest):
    """The guest of a host for `Host.run` alone."""

    def durable(self, tags: list[int]) -> None:
        """Nobody asks."""

    def fire(self, timer: Timer) -> None:
        """Nobody asks."""


class Host:
    """A host with one shard, in memory. Raises what keeps the guest from starting.

    Settings: `cluster`, `shard`, `shards`, `node`, `revision`, `options`, `merge_operator`, `limits`, `log_level`, and `calls`, which plays the
    other shards of the cluster.
    """

    def __init__(self, guest: type[Guest] = _NoGuest, **settings: Any) -> None:
        operator = settings.get("merge_operator")
        if operator is not None and operator not in MERGES:
            raise TypeError(f"there is no merge operator {operator!r}: there is {', '.join(MERGES)}")
        self._world = World(**settings)
        self._calls: Instance | None = None
        self._queries: Instance | None = None
        self._as_guest(guest, self._world.revision)
        self._validate(guest)
        self._start()

    def call(
        self,
        method: str,
        *,
        key: Bytes | None = None,
        payload: Bytes = b"",
        json: Any = None,
        headers: dict[str, str] | None = None,
        timeout_ms: int = _TIMEOUT_MS,
    ) -> Response:
        """Makes a call. Raises the guest's error, as its caller would see it."""
        call = _call(method, key, payload, json)
        instance = self._running()
        scope = self._world.call_scope(headers or {}, timeout_ms)
        return self._responded(self._enter(scope, lambda: instance.answer(False, call)), scope)

    def query(
        self,
        method: str,
        *,
        key: Bytes | None = None,
        payload: Bytes = b"",
        json: Any = None,
        headers: dict[str, str] | None = None,
        timeout_ms: int = _TIMEOUT_MS,
        read_durable: bool = False,
    ) -> Response:
        """Makes a query, on another instance than the calls. `read_durable` shows it only what is durable."""
        if "queries" not in self._exported:
            raise QuarryError("no-queries", "the guest does not export `queries`; use call")
        call = _call(method, key, payload, json)
        self._running()
        instance = self._queries = self._queries or self._instance(self._guest)
        view = self.durable_seq if read_durable else self.last_seq
        scope = self._world.call_scope(headers or {}, timeout_ms, view)
        return self._responded(self._enter(scope, lambda: instance.answer(True, call)), scope)

    def http(self, method: str, target: str, *, headers: dict[str, str] | None = None, body: Bytes = b"", scheme: str = "http") -> Answer:
        """Makes an HTTP request, as the host passes one to `/http/...` on: `target` is its path and query."""
        guest = self._running().guest
        if guest.wsgi is None:
            raise QuarryError("no-http", "the guest does not export `wasi:http/incoming-handler`: give it `wsgi`")
        request = Request(method, target, list((headers or {}).items()), to_bytes(body, "a body"), scheme, "guest.test")
        scope = self._world.call_scope(headers or {}, _TIMEOUT_MS)
        answer = self._enter(scope, lambda: answered(lambda: guest.wsgi, request))
        self._deliver()
        self._check_reply(len(answer.body))
        return answer

    def run(self, body: Callable[[], T]) -> T:
        """Runs code as if it were a call's handler."""
        value = self._enter(self._world.call_scope({}, _TIMEOUT_MS), body)
        self._deliver()
        return value

    def make_durable(self, seq: int | None = None) -> None:
        """Makes the writes up to `seq` durable, or all, and tells the guest of the tags that waited for that."""
        up_to = self.last_seq if seq is None else min(seq, self.last_seq)
        self._world.durable_seq = max(self._world.durable_seq, up_to)
        self._deliver()

    def advance(self, ms: int) -> None:
        """Lets time pass: values expire, transactions grow old, timers fire, each at its moment."""
        until = self._world.now_ms + ms
        while self._calls is not None and self._world.takes_timers:
            timer = self._world.next_timer(until)
            if timer is None:
                break
            self._world.now_ms = max(self._world.now_ms, timer.due_ms)
            self._fire(timer.name)
        self._world.now_ms = until

    def stop(self, reason: str = "stopping") -> None:
        """Stops the guest cleanly: every write is durable then, and calls fail with `closed` until `restart`."""
        self._world.status = "stopping"
        instance = self._calls
        if instance is not None:
            self._quietly(lambda: instance.guest.stop(reason))
        self._world.durable_seq = self.last_seq
        self._end()

    def restart(self) -> None:
        """Stops the guest cleanly if it runs, and starts another instance over the same data."""
        if self._calls is not None:
            self.stop()
        self._start()

    def crash(self) -> None:
        """What a crash of the node does: no `stop`, what was not durable is gone, and another instance starts over the rest."""
        world = self._world
        world.store.forget_after(world.durable_seq)
        world.forget_timers()
        self._end()
        self._start()

    def swap(self, guest: type[Guest], *, revision: int | None = None, between: Callable[[Host], None] | None = None) -> None:
        """Swaps the guest for one of another revision, over the same data: start, migration (with `between` after each step but the last), and
        the memory where both have `suspend` and `resume`. Where one of these fails, the old guest goes on as it was.
        """
        old, before = self._running(), (self._guest, self._world.revision)
        after = (guest, self._world.revision + 1 if revision is None else revision)

        def run_as(side: tuple[type[Guest], int], body: Callable[[], T]) -> T:
            self._as_guest(*side)
            return self._enter(Scope(), body)

        try:
            self._validate(guest)
            new = self._instance(guest)
            run_as(after, new.guest.start)
            if "migration" in interfaces(guest):
                while not run_as(after, lambda: new.migrate(before[1])):
                    self._as_guest(*before)
                    if between is not None:
                        between(self)
            if "handoff" in interfaces(guest) and "handoff" in interfaces(before[0]):
                state = run_as(before, lambda: to_bytes(old.guest.suspend()))
                limit = self._world.limits.handoff_bytes
                if len(state) > limit:
                    why = f"the memory to hand over has {len(state)} bytes, over limits.handoff_bytes ({limit} bytes)"
                    raise QuarryError("limit", why)
                run_as(after, lambda: new.guest.resume(state, before[1]))
            else:
                self._as_guest(*before)
                self._quietly(lambda: old.guest.stop("swapping"))
            self._as_guest(*after)
            self._calls, self._queries = new, None
        except BaseException:
            self._as_guest(*before)
            raise
        self._deliver()

    def fence(self) -> None:
        """Lets another writer take the shard over: `db` fails with `fenced` from now on."""
        self._world.status = "fenced"

    @property
    def last_seq(self) -> int:
        """The newest write."""
        return self._world.store.last_seq

    @property
    def durable_seq(self) -> int:
        """The newest write up to which every write is durable."""
        return self._world.durable_seq

    @property
    def logs(self) -> list[LogLine]:
        """The lines that the guest has logged, the oldest first."""
        return [LogLine(*line) for line in self._world.logs]

    @property
    def metrics(self) -> list[Measured]:
        """What the guest has measured, the oldest first."""
        return [Measured(*one) for one in self._world.measured]

    @property
    def guest(self) -> Guest:
        """The instance that runs calls, to look into its memory."""
        return self._running().guest

    def _as_guest(self, guest: type[Guest], revision: int) -> None:
        self._guest = guest
        self._exported = interfaces(guest)
        self._world.revision = revision
        self._world.package = guest.__module__.partition(".")[0]
        self._world.takes_tags = "durable-events" in self._exported
        self._world.takes_timers = "timer-events" in self._exported

    def _instance(self, guest: type[Guest]) -> Instance:
        with self._world.clock.within(guest.__module__.partition(".")[0]):
            return Instance(guest)

    def _validate(self, guest: type[Guest]) -> None:
        if "options" not in interfaces(guest):
            return
        options = from_json(to_json(self._world.options))
        scope, before = Scope(is_validation=True), self._world.scope
        self._world.scope = scope
        try:
            with within(self._world):
                self._instance(guest).guest.validate(options)
        except Exception as error:
            why = error.message if isinstance(error, QuarryError) else str(error) or type(error).__name__
            raise QuarryError("invalid-options", why) from error
        finally:
            self._world.scope = before

    def _start(self) -> None:
        self._world.status = "running"
        instance = self._instance(self._guest)
        self._enter(Scope(), instance.guest.start)
        if "migration" in self._exported:
            while not self._enter(Scope(), lambda: instance.migrate(0)):
                pass
        self._calls = instance
        self._deliver()

    def _end(self) -> None:
        self._calls = self._queries = None
        self._world.tags = []
        self._world.timers = {name: timer for name, timer in self._world.timers.items() if timer.is_durable}

    def _running(self) -> Instance:
        if self._calls is None:
            raise QuarryError("closed", "the shard is stopped", retryable=True)
        return self._calls

    def _enter(self, scope: Scope, body: Callable[[], T]) -> T:
        """Runs guest code in a scope. What it raises comes out as the error that its caller would see."""
        before, self._world.scope = self._world.scope, scope
        try:
            with within(self._world):
                try:
                    return body()
                except QuarryError as error:
                    raise _outside(error) from error
                except Exception as error:
                    raise record_of(error) from error
        finally:
            self._world.scope = before

    def _quietly(self, body: Callable[[], object]) -> bool:
        try:
            self._enter(Scope(), body)
        except QuarryError:
            return False
        return True

    def _deliver(self) -> None:
        """Between calls: the tags whose writes are durable."""
        instance = self._calls
        if instance is not None:
            tags = self._world.take_tags()
            if tags:
                self._quietly(lambda: instance.guest.durable(tags))

    def _fire(self, name: str) -> None:
        world, instance = self._world, self._running()
        timer = world.timers[name]
        if not timer.is_durable:
            del world.timers[name]
        due = Timer(timer.name, timer.payload, timer.due_ms)
        try:
            self._enter(world.call_scope({}, _TIMEOUT_MS), lambda: instance.guest.fire(due))
            failed = False
        except QuarryError:
            failed = True
        if timer.is_durable and world.timers.get(name) is timer:
            if failed:
                timer.due_ms = world.now_ms + min(1000 * 2**timer.failures, _RETRY_MAX_MS)
                timer.failures += 1
            else:
                world.remove_timer(name)
        self._deliver()

    def _responded(self, reply: Reply, scope: Scope) -> Response:
        self._deliver()
        self._check_reply(len(reply.payload))
        return Response(reply.payload, reply.media_type or "application/octet-stream", reply.is_applied, scope.last_write)

    def _check_reply(self, length: int) -> None:
        limit = self._world.limits.reply
        if length > limit:
            raise QuarryError("guest-reply-limit", f"a reply of {length} bytes is over limits.reply ({limit} bytes)")


def _call(method: str, key: Bytes | None, payload: Bytes, json: Any) -> Call:
    body = to_bytes(payload, "a payload") if json is None else to_json(json)
    return Call(method, None if key is None else to_bytes(key, "a key"), body)


def _outside(error: QuarryError) -> QuarryError:
    """An error of the guest as its caller sees it: a code that is not in the form of codes becomes `guest-error`."""
    if _CODE.fullmatch(error.code):
        return error
    why = f"{error.message} (the guest's code {error.code!r} is not 1 to 64 bytes of a-z, 0-9 and -)"
    return QuarryError("guest-error", why, retryable=error.retryable)
