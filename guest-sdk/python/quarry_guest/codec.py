"""Bytes, text, JSON and integers, in the forms that guests in every language use."""

from __future__ import annotations

import json
from typing import Any, Iterable, Union

from ._errors import QuarryError

#: Keys, values and payloads: bytes as they are, text as UTF-8.
Bytes = Union[bytes, bytearray, memoryview, str]


def to_bytes(value: Bytes, what: str = "a value") -> bytes:
    """Bytes as they are, text as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return to_text(value, what).encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise QuarryError.invalid_argument(f"{what} is bytes or str, not {_shown(value)}")


def to_keys(keys: Iterable[Bytes]) -> list[bytes]:
    """Several keys. One alone would be taken for a list of its characters."""
    if isinstance(keys, (str, bytes, bytearray, memoryview)) or not hasattr(keys, "__iter__"):
        raise QuarryError.invalid_argument(f"`keys` is a list of keys, not {_shown(keys)}")
    return [to_bytes(key, "a key") for key in keys]


def to_text(value: str, what: str) -> str:
    """Text that has a UTF-8 form: anything else would end the instance at the border of the component."""
    if not isinstance(value, str):
        raise QuarryError.invalid_argument(f"{what} is str, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = value[error.start : error.start + 1]
        raise QuarryError.invalid_argument(f"{what} has no UTF-8 form: {half!r} at {error.start} is half of a character") from None
    return value


def readable(value: object) -> str:
    """Whatever it is as text that can be shown, for what is no reason to fail."""
    try:
        return str(value).encode("utf-8", "backslashreplace").decode()
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__} in its __str__>"


def number(value: float, what: str) -> float:
    """A number, with a fraction or without."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise QuarryError.invalid_argument(f"{what} is a number, not {_shown(value)}")


def text(value: bytes) -> str:
    """Bytes as text, or the error `invalid-data`."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise QuarryError.invalid_data(f"it is not UTF-8: {error.reason}") from None


def from_json(value: bytes) -> Any:
    """Bytes of JSON as a value, or the error `invalid-data`."""
    try:
        return json.loads(text(value))
    except (ValueError, RecursionError) as error:
        raise QuarryError.invalid_data(error) from None


def to_json(value: Any) -> bytes:
    """A value as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise QuarryError.invalid_argument(f"a value has no JSON form: {error}") from None


def whole(value: int, what: str, bits: int = 64) -> int:
    """A whole number that fits, from 0."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits:
        return value
    raise QuarryError.invalid_argument(f"{what} is a whole number of {bits} bits, from 0, not {value!r}")


def _shown(value: object) -> str:
    """What was given: its type, and the value itself where that is short."""
    shown = readable(repr(value)) if isinstance(value, (bool, int, float, str)) else ""
    name = "None" if value is None else type(value).__name__
    return f"{name} {shown}" if 0 < len(shown) <= 40 else name


def parsed_options(options: str) -> dict[str, Any]:
    """Options from their JSON."""
    try:
        return json.loads(options)
    except ValueError as error:
        raise QuarryError("invalid-options", f"the module's options were not understood: {error}") from None


class Integer:
    """Integers of one size: as values (little-endian, as merge operators take them) and as keys (which sort as numbers do)."""

    def __init__(self, bits: int, signed: bool) -> None:
        self._length = bits // 8
        self._signed = signed
        self._name = f"{'i' if signed else 'u'}{bits}"
        self._shift = 1 << (bits - 1) if signed else 0

    def value(self, number: int) -> bytes:
        """As a value."""
        try:
            return number.to_bytes(self._length, "little", signed=self._signed)
        except (AttributeError, OverflowError):
            raise QuarryError.invalid_argument(f"{number!r} is no {self._name}") from None

    def from_value(self, value: bytes) -> int:
        """Read from a value."""
        return int.from_bytes(self._checked(value), "little", signed=self._signed)

    def key(self, number: int) -> bytes:
        """As a key."""
        self.value(number)
        return (number + self._shift).to_bytes(self._length, "big")

    def from_key(self, key: bytes) -> int:
        """Read from a key."""
        return int.from_bytes(self._checked(key), "big") - self._shift

    def _checked(self, value: bytes) -> bytes:
        if len(value) != self._length:
            raise QuarryError.invalid_data(f"{self._name} has {self._length} bytes, not {len(value)}")
        return value


u32 = Integer(32, signed=False)
i32 = Integer(32, signed=True)
u64 = Integer(64, signed=False)
i64 = Integer(64, signed=True)
