"""When writes become durable. A reply waits for that by itself; this is for a guest that wants to do something of its own then."""

from __future__ import annotations

from . import _wit
from ._errors import hosted
from .codec import whole

_durability = _wit.load("durability")


def durable_seq() -> int:
    """The newest write up to which every write is durable."""
    return _durability.durable_seq()


def notify_when_durable(seq: int, tag: int) -> None:
    """Asks that `Guest.durable` gets `tag` once every write up to `seq` is durable: in the order of `seq`, once."""
    hosted(_durability.notify_when_durable, whole(seq, "`seq`"), whole(tag, "`tag`"))
