"""What a guest is, and how it answers."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import Any, Callable, TypeVar, Union, overload

from . import log
from ._call import Call, Reply
from ._errors import QuarryError
from .codec import Bytes, from_json, readable, text

F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", bound="type[Guest]")

#: The optional interfaces, and the methods of a guest that each needs.
OPTIONAL = {
    "lifecycle": ("start", "stop"),
    "options": ("validate",),
    "durable-events": ("durable",),
    "timer-events": ("fire",),
    "handoff": ("suspend", "resume"),
    "migration": ("migrate",),
}

_exported: list[type[Guest]] = []


@dataclass(frozen=True)
class Timer:
    """A timer that is due."""

    name: str
    payload: bytes
    #: When it was due, in milliseconds since the Unix epoch.
    due_ms: int

    def text(self) -> str:
        """The payload as text."""
        return text(self.payload)

    def json(self) -> Any:
        """The payload as JSON."""
        return from_json(self.payload)


class Guest:
    """The logic of a shard. Of the methods below those that a guest defines become exports of its component.

    One instance lives in each shard for as long as the shard is open here, so attributes are memory that a restart empties: what has to last goes
    into `db`. It is made when it first works, not while the component is built, so that `__init__` may use the time and random numbers.
    """

    #: HTTP requests to `/http/...`, one at a time with the calls: a WSGI application (`wsgi = Flask(...)`), or a method that is one. A plain function
    #: goes into `staticmethod`. Makes the component export `wasi:http/incoming-handler`.
    wsgi: Any = None

    def call(self, call: Call) -> Any:
        """Answers the calls that no method with `@call` or `@query` takes."""
        raise QuarryError.unknown_method(call.method)

    def query(self, call: Call) -> Any:
        """Answers the queries that no method with `@query` takes."""
        raise QuarryError.unknown_method(call.method)

    def start(self) -> None:
        """Before the first call. An exception keeps the shard from serving; it is tried again."""

    def stop(self, reason: str) -> None:
        """After the last call, with the database still open. `stopping`, `moving`, `fenced`, `swapping`, or a reason that comes later."""

    def validate(self, options: dict[str, Any]) -> None:
        """Checks the options before anything runs: raise an exception that says what is wrong. No database is open."""

    def durable(self, tags: list[int]) -> None:
        """The tags of `durability.notify_when_durable` whose writes became durable, the lowest seq first."""

    def fire(self, timer: Timer) -> None:
        """A timer that is due. A durable one is tried again after an exception."""

    def suspend(self) -> Bytes:
        """The memory to carry over a swap, in a form that other revisions understand. Leaves the guest as it was."""
        raise NotImplementedError

    def resume(self, state: bytes, from_revision: int) -> None:
        """Takes the memory over, after `start` and before the first call."""

    def migrate(self, from_revision: int) -> bool:
        """One step of a migration: True when the data is as this revision wants it."""
        return True


@overload
def call(method: F) -> F: ...
@overload
def call(method: str) -> Callable[[F], F]: ...
def call(method: Union[F, str]) -> Any:
    """Marks a method of a guest as one for calls, by its own name or by `@call("name")`. Calls of a shard run one at a time."""
    return _marked(method, "_quarry_call")


@overload
def query(method: F) -> F: ...
@overload
def query(method: str) -> Callable[[F], F]: ...
def query(method: Union[F, str]) -> Any:
    """Marks a method of a guest as one for queries, which only read and run in parallel. It answers calls of its name too."""
    return _marked(method, "_quarry_query")


def export(guest: G) -> G:
    """Marks the class that the component runs."""
    if not (isinstance(guest, type) and issubclass(guest, Guest)):
        name = getattr(guest, "__name__", None)
        raise TypeError(f"@export is for a class of Guest: write `class {name}(Guest):`" if name else f"@export is for a class of Guest, not for {guest!r}")
    if _exported:
        raise TypeError(f"a project exports one guest: {_exported[0].__qualname__} is exported already, and so would be {guest.__qualname__}")
    interfaces(guest)
    has_handler = guest.call is not Guest.call or guest.query is not Guest.query
    if not has_handler and guest.wsgi is None and not methods(guest, "_quarry_call") and not methods(guest, "_quarry_query"):
        raise TypeError(f"{guest.__qualname__} answers nothing: put `@call` or `@query` before a method, define `def call(self, call: Call)`, or give it `wsgi`")
    _exported.append(guest)
    return guest


def exported() -> type[Guest]:
    """The class that was exported."""
    if not _exported:
        raise TypeError("no guest is exported: put `@export` before the class, as in `@export` above `class App(Guest):`")
    return _exported[0]


def interfaces(guest: type[Guest]) -> list[str]:
    """The optional interfaces that the component of a guest exports."""

    def has(name: str) -> bool:
        return getattr(guest, name) is not getattr(Guest, name)

    if has("suspend") != has("resume"):
        raise TypeError(f"{guest.__qualname__}: `suspend` and `resume` go together")
    found = ["queries"] if has("query") or methods(guest, "_quarry_query") else []
    return found + [name for name, parts in OPTIONAL.items() if any(has(part) for part in parts)]


def methods(guest: type[Guest], mark: str) -> dict[str, str]:
    """The marked methods of a guest: their attributes by the names that callers use."""
    found: dict[str, str] = {}
    for attribute in dir(guest):
        name = getattr(getattr(guest, attribute), mark, None)
        if name is not None:
            if name in found:
                raise TypeError(f"{guest.__qualname__}: `{found[name]}` and `{attribute}` both answer `{name}`")
            found[name] = attribute
    return found


class Instance:
    """A guest at work."""

    def __init__(self, kind: type[Guest]) -> None:
        # A generator of random numbers that was seeded while the component was built would give the same ones everywhere.
        if "random" in sys.modules:
            sys.modules["random"].seed()
        self.guest = kind()
        self._queries = methods(kind, "_quarry_query")
        self._calls = {**self._queries, **methods(kind, "_quarry_call")}

    def answer(self, is_query: bool, call: Call) -> Reply:
        """What the guest answers. What can be asked in a query can be asked in a call: then it waits its turn behind the writes."""
        table = self._queries if is_query else self._calls
        attribute = table.get(call.method)
        if attribute is not None:
            return Reply.of(getattr(self.guest, attribute)(call))
        return Reply.of(self.guest.query(call) if is_query else self._other(call))

    def migrate(self, from_revision: int) -> bool:
        """A step of the migration."""
        done = self.guest.migrate(from_revision)
        if isinstance(done, bool):
            return done
        raise QuarryError("exception", f"`migrate` returns True when the data is migrated, or False; not {done!r}")

    def _other(self, call: Call) -> Any:
        kind = type(self.guest)
        if kind.call is Guest.call and kind.query is not Guest.query:
            return self.guest.query(call)
        return self.guest.call(call)


def record_of(error: BaseException) -> QuarryError:
    """The error of a guest as its caller gets it. What was not raised on purpose is a fault of the guest's: its traceback goes to the log."""
    if isinstance(error, QuarryError):
        return error
    log.error("".join(traceback.format_exception(error)).rstrip())
    message = f"{type(error).__name__}: {readable(error)}"
    if isinstance(error, ModuleNotFoundError):
        message += " (modules are imported while the component is built: import it at the top of a file)"
    return QuarryError("exception", message)


def _marked(method: Any, mark: str) -> Any:
    if isinstance(method, str):
        name = method

        def named(function: F) -> F:
            setattr(function, mark, name)
            return function

        return named
    setattr(method, mark, method.__name__)
    return method
