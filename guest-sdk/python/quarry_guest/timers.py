"""Timers of this module in this shard; `Guest.fire` gets them. A name of 1 to 256 bytes has one timer: setting it again replaces it.

Where the shard has all the timers that it may have (10,000, `limits.timers`), `set` and `set_durable` fail with `limit`, which is retryable:
there is room again once a timer has fired or was cancelled.
"""

from __future__ import annotations

from . import _wit
from ._errors import hosted
from .codec import Bytes, to_bytes, to_text, whole

_timers = _wit.load("timers")


def set(name: str, after_ms: int, payload: Bytes = b"") -> None:
    """A timer in memory: forgotten when the shard closes or moves."""
    hosted(_timers.set, to_text(name, "a timer's name"), whole(after_ms, "`after_ms`"), to_bytes(payload, "a payload"))


def set_durable(name: str, after_ms: int, payload: Bytes = b"") -> int:
    """A timer in the database: fires at least once, wherever the shard is then. Gives the write's seq."""
    return hosted(_timers.set_durable, to_text(name, "a timer's name"), whole(after_ms, "`after_ms`"), to_bytes(payload, "a payload"))


def cancel(name: str) -> bool:
    """Removes a timer. False where there is none of that name."""
    return hosted(_timers.cancel, to_text(name, "a timer's name"))


def due_ms(name: str) -> int | None:
    """When a timer is due, in milliseconds since the Unix epoch."""
    return hosted(_timers.due_ms, to_text(name, "a timer's name"))
