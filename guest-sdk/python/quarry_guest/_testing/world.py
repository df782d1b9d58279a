"""All that the in-memory host has of one shard."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable

from .clock import Clock
from .current import HostError
from .store import Change, Store

#: The first moment of a host's own clock: 2026-01-01T00:00:00Z, in milliseconds since the Unix epoch.
FIRST_MOMENT_MS = 1_767_225_600_000
_PASSED_ON = ("content-type", "accept", "traceparent", "tracestate", "idempotency-key")


@dataclass(frozen=True)
class Limits:
    """What a guest may use; each is `limits.<name>` of a revision."""

    key: int = 65_535
    value: int = 16 << 20
    batch: int = 32 << 20
    get_many: int = 1_024
    open_resources: int = 64
    transaction_age_ms: int = 10_000
    page: int = 4 << 20
    reply: int = 16 << 20
    handoff_bytes: int = 16 << 20
    notifications: int = 65_536
    timers: int = 10_000


@dataclass(frozen=True)
class OtherCall:
    """A call that the guest makes to another shard."""

    shard: int
    key: bytes | None
    method: str
    payload: bytes
    is_query: bool


@dataclass
class Scope:
    """What runs: cursors, snapshots and transactions belong to it and end with it."""

    #: The newest write that a query sees; None where writes are allowed.
    view: int | None = None
    deadline_ms: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    is_validation: bool = False
    open: int = 0
    last_write: int | None = None


@dataclass
class SetTimer:
    """A timer that was set."""

    name: str
    payload: bytes
    due_ms: int
    is_durable: bool
    failures: int = 0


@dataclass
class World:
    """The shard, and what a test set."""

    cluster: str = "test"
    shard: int = 0
    shards: int = 1
    node: str = "test-node"
    revision: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    merge_operator: str | None = None
    limits: Limits = field(default_factory=Limits)
    calls: Callable[[OtherCall], bytes] | None = None
    log_level: str = "trace"

    def __post_init__(self) -> None:
        self.store = Store()
        self.status = "running"
        self.now_ms = FIRST_MOMENT_MS
        self.clock = Clock(lambda: self.now_ms)
        #: The package of the guest, whose modules see this clock.
        self.package = ""
        self.durable_seq = 0
        self.tags: list[tuple[int, int]] = []
        self.timers: dict[str, SetTimer] = {}
        self.timer_writes: list[tuple[int, str, SetTimer | None]] = []
        self.logs: list[tuple[str, str, dict[str, str]]] = []
        self.measured: list[tuple[str, str, dict[str, str], float]] = []
        self.takes_tags = False
        self.takes_timers = False
        self.scope = Scope()

    def view(self) -> int:
        """The newest write that reads see. Fails where no database is open."""
        if self.status == "fenced":
            raise HostError("fenced", "another writer opened this shard's database", True)
        if self.scope.is_validation:
            raise HostError("closed", "no database is open while options are checked")
        return self.store.last_seq if self.scope.view is None else self.scope.view

    def check_writable(self) -> None:
        """Fails where writes are not allowed."""
        self.view()
        if self.scope.view is not None:
            raise HostError("read-only", "a query cannot do this: make a call instead")

    def commit(self, changes: dict[bytes, Change]) -> int:
        """Applies changes as one write of what runs."""
        self.scope.last_write = self.store.commit(changes, self.now_ms)
        return self.scope.last_write

    def call_scope(self, headers: dict[str, str], timeout_ms: int, view: int | None = None) -> Scope:
        """The scope of a call; of a query with a view."""
        lower = {name.lower(): value for name, value in headers.items()}
        passed = {name: value for name, value in lower.items() if name in _PASSED_ON or name.startswith("x-")}
        return Scope(view=view, deadline_ms=self.now_ms + timeout_ms, headers=passed)

    def take_tags(self) -> list[int]:
        """The tags whose writes are durable, lowest seq first."""
        due = sorted((tag for tag in self.tags if tag[0] <= self.durable_seq), key=lambda tag: tag[0])
        self.tags = [tag for tag in self.tags if tag[0] > self.durable_seq]
        return [tag for _, tag in due]

    def notify(self, seq: int, tag: int) -> None:
        """Remembers a tag until its write is durable."""
        self.check_writable()
        if not self.takes_tags:
            raise HostError("invalid-argument", "this guest does not export `durable-events`: give it `durable`")
        if seq > self.store.last_seq:
            raise HostError("invalid-argument", f"seq {seq} was not given out yet: the last one is {self.store.last_seq}")
        if len(self.tags) >= self.limits.notifications:
            raise HostError("limit", f"{self.limits.notifications} notifications are outstanding (limits.notifications)", True)
        self.tags.append((seq, tag))

    def check_timers(self) -> None:
        """Fails where nobody gets timers."""
        if not self.takes_timers:
            raise HostError("invalid-argument", "this guest does not export `timer-events`: give it `fire`")

    def set_timer(self, name: str, after_ms: int, payload: bytes, is_durable: bool) -> int | None:
        """Sets a timer, in place of the one of its name."""
        self.check_writable()
        self.check_timers()
        size = len(name.encode())
        if not 1 <= size <= 256:
            raise HostError("invalid-argument", f"a timer's name has 1 to 256 bytes, not {size}")
        if len(payload) > 65_536:
            raise HostError("invalid-argument", f"a timer's payload has up to 64 KiB, not {len(payload)} bytes")
        if name not in self.timers and len(self.timers) >= self.limits.timers:
            raise HostError("limit", f"{self.limits.timers} timers are set (limits.timers)", retryable=True)
        timer = SetTimer(name, payload, self.now_ms + after_ms, is_durable)
        if not is_durable:
            # In the place of a durable one it removes that from the database.
            self.remove_timer(name)
        seq = self.commit({}) if is_durable else None
        if seq is not None:
            self.timer_writes.append((seq, name, replace(timer)))
        self.timers[name] = timer
        return seq

    def remove_timer(self, name: str) -> bool:
        """Removes a timer; of a durable one that is a write, as its setting was. False where there is none."""
        timer = self.timers.pop(name, None)
        if timer is not None and timer.is_durable:
            self.timer_writes.append((self.commit({}), name, None))
        return timer is not None

    def forget_timers(self) -> None:
        """Leaves the durable timers as their durable writes have them."""
        self.timer_writes = [write for write in self.timer_writes if write[0] <= self.durable_seq]
        left = {name: timer for _, name, timer in self.timer_writes}
        self.timers = {name: replace(timer) for name, timer in left.items() if timer is not None}

    def next_timer(self, until_ms: int) -> SetTimer | None:
        """The timer that is due first, if one is by then."""
        due = [timer for timer in self.timers.values() if timer.due_ms <= until_ms]
        return min(due, key=lambda timer: timer.due_ms, default=None)

    def call_other(self, call: OtherCall) -> bytes:
        """Calls another shard, which the test plays."""
        if self.scope.deadline_ms is None:
            raise HostError("invalid-argument", "other shards are called in a call and in `fire` only")
        if not call.is_query:
            self.check_writable()
        if self.calls is None:
            raise HostError("unreachable", "this host has no other shards: give it `calls`", True)
        return self.calls(call)
