"""A map that keeps every version, so that any moment of the past can be read; and the merge operators."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Callable, Iterable, NamedTuple

from .current import HostError


@dataclass(frozen=True)
class Version:
    """What a write made of a key: a value, or none."""

    seq: int
    value: bytes | None
    expires_at_ms: int | None
    created_at_ms: int

    def is_live(self, now_ms: int) -> bool:
        """Whether it has a value now."""
        return self.value is not None and (self.expires_at_ms is None or self.expires_at_ms > now_ms)


class Change(NamedTuple):
    """What a write is about to make of a key."""

    value: bytes | None
    expires_at_ms: int | None


class Span(NamedTuple):
    """A range of keys, from its start to the key before its end."""

    start: bytes
    end: bytes | None

    def has(self, key: bytes) -> bool:
        """Whether a key is in it."""
        return self.start <= key and (self.end is None or key < self.end)

    @staticmethod
    def of_prefix(prefix: bytes) -> Span:
        """The keys that start with a prefix."""
        head = prefix.rstrip(b"\xff")
        return Span(prefix, head[:-1] + bytes([head[-1] + 1]) if head else None)


class Store:
    """The shard's data."""

    def __init__(self) -> None:
        self._rows: dict[bytes, list[Version]] = {}
        self._keys: list[bytes] = []
        self.last_seq = 0

    def at(self, key: bytes, view: int, now_ms: int) -> Version | None:
        """The version of a key as of the write `view`, if it has a value."""
        found = next((version for version in reversed(self._rows.get(key, [])) if version.seq <= view), None)
        return found if found is not None and found.is_live(now_ms) else None

    def scan(self, span: Span, view: int, now_ms: int) -> dict[bytes, bytes]:
        """The entries of a range as of the write `view`, ascending."""
        found = ((key, self.at(key, view, now_ms)) for key in self._within(span))
        return {key: version.value for key, version in found if version is not None and version.value is not None}

    def changed(self, key: bytes, view: int) -> bool:
        """Whether a key was written after the write `view`."""
        versions = self._rows.get(key)
        return bool(versions) and versions[-1].seq > view

    def range_changed(self, span: Span, view: int) -> bool:
        """Whether a key of a range was written after the write `view`."""
        return any(self.changed(key, view) for key in self._within(span))

    def commit(self, changes: dict[bytes, Change], now_ms: int) -> int:
        """Applies changes as one write."""
        self.last_seq += 1
        for key, change in changes.items():
            if key not in self._rows:
                self._rows[key] = []
                insort(self._keys, key)
            self._rows[key].append(Version(self.last_seq, change.value, change.expires_at_ms, now_ms))
        return self.last_seq

    def forget_after(self, seq: int) -> None:
        """Forgets the writes after `seq`. Their numbers are not given out again."""
        kept = {key: [version for version in versions if version.seq <= seq] for key, versions in self._rows.items()}
        self._rows = {key: versions for key, versions in kept.items() if versions}
        self._keys = sorted(self._rows)

    def _within(self, span: Span) -> Iterable[bytes]:
        first = bisect_left(self._keys, span.start)
        last = len(self._keys) if span.end is None else bisect_left(self._keys, span.end)
        return self._keys[first:last]


def _number(signed: bool, join: Callable[[int, int], int]) -> Callable[[bytes | None, bytes], bytes]:
    def merge(existing: bytes | None, operand: bytes) -> bytes:
        # A value that is no number counts as none, as in the host.
        if existing is None or len(existing) != 8:
            return operand
        joined = join(*(int.from_bytes(part, "little", signed=signed) for part in (existing, operand)))
        return (joined % (1 << 64)).to_bytes(8, "little")

    return merge


MERGES: dict[str, Callable[[bytes | None, bytes], bytes]] = {
    "u64-add": _number(False, lambda a, b: a + b),
    "u64-max": _number(False, max),
    "i64-add": _number(True, lambda a, b: a + b),
    "i64-max": _number(True, max),
    "i64-min": _number(True, min),
    "append": lambda existing, operand: (existing or b"") + operand,
}


def merged(operator: str, existing: bytes | None, operand: bytes, limit: int) -> bytes:
    """The value that comes of an operand."""
    if operator != "append" and len(operand) != 8:
        why = f"the operand of a merge has {len(operand)} bytes; it has to be a little-endian 64-bit number, 8 bytes"
        raise HostError("invalid-value", why)
    joined = MERGES[operator](existing, operand)
    if len(joined) > limit:
        raise HostError("invalid-value", f"the value would grow to {len(joined)} bytes, over limits.value ({limit} bytes)")
    return joined
