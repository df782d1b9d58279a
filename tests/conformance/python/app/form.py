"""The form of everything: a list of byte strings, each with its length before it."""

from __future__ import annotations

from typing import Iterable

from quarry_guest import QuarryError


class Failure(QuarryError):
    """An error of the call, and not only of a step."""


def invalid() -> Failure:
    """What is no script."""
    return Failure("invalid-payload", "this is no script")


def list_of(items: Iterable[bytes]) -> bytes:
    """A list of items."""
    return b"".join(part for item in items for part in (len(item).to_bytes(4, "little"), item))


def items(data: bytes) -> list[bytes]:
    """The items of a list."""
    found = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if len(data) < at + 4 or len(data) < end:
            raise invalid()
        found.append(data[at + 4 : end])
        at = end
    return found


def option(value: bytes | None) -> bytes:
    """An option as an item."""
    return b"" if value is None else b"+" + value


def number(value: int) -> bytes:
    """A number as an item."""
    return str(value).encode()


def number_of(item: bytes) -> int:
    """The number that an item is."""
    # `int` takes spaces, signs and underscores, too.
    if not item.isdigit() or int(item) >= 1 << 64:
        raise invalid()
    return int(item)


def flag(value: bool) -> bytes:
    """A flag as an item."""
    return b"1" if value else b"0"


class Args:
    """The arguments of a step that are left."""

    def __init__(self, items: list[bytes]) -> None:
        self._items = items
        self._next = 0

    def __bool__(self) -> bool:
        return self._next < len(self._items)

    def bytes(self) -> bytes:
        """The next as bytes."""
        if not self:
            raise invalid()
        self._next += 1
        return self._items[self._next - 1]

    def text(self) -> str:
        """The next as text."""
        return _text(self.bytes())

    def number(self) -> int:
        """The next as a number."""
        return number_of(self.bytes())

    def decimal(self) -> float:
        """The next as a decimal."""
        try:
            return float(self.bytes())
        except ValueError:
            raise invalid() from None

    def flag(self) -> bool:
        """The next as a flag."""
        return self.choice({"1": True, "0": False})

    def choice(self, choices: dict[str, object]):
        """The next as one of these words."""
        word = self.text()
        if word not in choices:
            raise invalid()
        return choices[word]

    def option(self) -> bytes | None:
        """The next as an option; none too where it was left out at the end."""
        item = self.bytes() if self else b""
        if item and item[:1] != b"+":
            raise invalid()
        return item[1:] if item else None

    def optional_number(self) -> int | None:
        """The next as an option of a number."""
        value = self.option()
        return None if value is None else number_of(value)

    def pairs(self) -> dict[str, str]:
        """All that are left, two by two, as text."""
        pairs = {}
        while self:
            name = self.text()
            pairs[name] = self.text()
        return pairs


def _text(item: bytes) -> str:
    try:
        return item.decode()
    except UnicodeDecodeError:
        raise invalid() from None
