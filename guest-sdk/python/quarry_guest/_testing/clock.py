"""Python's clock as a guest sees it in a test: the time of its host, which moves when the test says so."""

from __future__ import annotations

import datetime
import sys
import time
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Callable, Iterator

#: Milliseconds to now.
Now = Callable[[], int]

_REAL_DATETIME, _REAL_DATE = datetime.datetime, datetime.date
_TIME, _TIME_NS, _MONOTONIC, _MONOTONIC_NS = time.time, time.time_ns, time.monotonic, time.monotonic_ns


class _LikeDatetime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _REAL_DATETIME)


class _LikeDate(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _REAL_DATE)


def _replacements(now: Now) -> dict[int, Any]:
    """What stands for the clocks of the library, by the identity of each."""

    class Datetime(_REAL_DATETIME, metaclass=_LikeDatetime):
        def __new__(cls, *args: Any, **named: Any) -> Any:
            return _REAL_DATETIME(*args, **named)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return _REAL_DATETIME.fromtimestamp(now() / 1000, tz)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.timezone.utc).replace(tzinfo=None)

    class Date(_REAL_DATE, metaclass=_LikeDate):
        def __new__(cls, *args: Any, **named: Any) -> Any:
            return _REAL_DATE(*args, **named)

        @classmethod
        def today(cls) -> Any:
            return _REAL_DATE.fromtimestamp(now() / 1000)

    pairs: list[tuple[Any, Any]] = [
        (_TIME, lambda: now() / 1000),
        (_TIME_NS, lambda: now() * 1_000_000),
        (_MONOTONIC, lambda: now() / 1000),
        (_MONOTONIC_NS, lambda: now() * 1_000_000),
        (_REAL_DATETIME, Datetime),
        (_REAL_DATE, Date),
    ]
    for real, other in pairs:
        other._quarry_real = real
    return {id(real): other for real, other in pairs}


def _real(value: Any) -> Any:
    """What a clock of another host stands for, where one host's guest is called in a call of another's."""
    if type(value) in (FunctionType, _LikeDatetime, _LikeDate):
        return vars(value).get("_quarry_real", value)
    return value


class Clock:
    """The clock of a host, for the guests that it runs."""

    def __init__(self, now: Now) -> None:
        self._replacements = _replacements(now)

    @contextmanager
    def within(self, package: str) -> Iterator[None]:
        """Lets the modules of a guest's package see this clock, however they imported the library's. Nothing else sees it, but by `time.time` and
        `datetime.datetime`; and a default argument keeps what it was made of."""
        changed: list[tuple[dict[str, Any], str, Any]] = []
        try:
            for module in self._modules(package):
                names = vars(module)
                for name, value in list(names.items()):
                    other = self._replacements.get(id(_real(value)))
                    if other is not None:
                        changed.append((names, name, value))
                        names[name] = other
            yield
        finally:
            for names, name, value in reversed(changed):
                names[name] = value

    @staticmethod
    def _modules(package: str) -> list[Any]:
        # Of a host without a guest it is this one, which goes by the machine's clock.
        if package == __name__.partition(".")[0]:
            return [time, datetime]
        inner = f"{package}."
        guests = [module for name, module in list(sys.modules.items()) if module is not None and (name == package or name.startswith(inner))]
        return [time, datetime, *(module for module in guests if module not in (time, datetime))]
