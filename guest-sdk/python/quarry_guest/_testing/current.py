"""The host that runs now, outside of a component."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from .world import World

_current: list[World] = []


@dataclass
class ErrorRecord:
    """An error as the host gives it."""

    code: str
    message: str
    retryable: bool


class HostError(Exception):
    """Carries the record of an error, as `Err` does in a component."""

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.value = ErrorRecord(code, message, retryable)


def current() -> World:
    """The host whose guest runs now."""
    if not _current:
        raise HostError("closed", "no host runs here: use this in a handler, or within `Host.run` of quarry_guest.testing")
    return _current[-1]


@contextmanager
def within(world: World) -> Iterator[None]:
    """Runs guest code in this host."""
    _current.append(world)
    try:
        with world.clock.within(world.package):
            yield
    finally:
        _current.pop()
