"""Lines in the guest's log on the host, with fields. Python's own `logging` goes there too, and `print` as lines of standard output."""

from __future__ import annotations

import logging

from . import _wit
from .codec import readable

_log = _wit.load("log")


def trace(message: str, **fields: object) -> None:
    """Each step, to follow what happens."""
    _write("TRACE", message, fields)


def debug(message: str, **fields: object) -> None:
    """What helps to find a fault."""
    _write("DEBUG", message, fields)


def info(message: str, **fields: object) -> None:
    """What is worth knowing of a run that is well."""
    _write("INFO", message, fields)


def warn(message: str, **fields: object) -> None:
    """What went wrong and was dealt with."""
    _write("WARN", message, fields)


def error(message: str, **fields: object) -> None:
    """What went wrong and was not."""
    _write("ERROR", message, fields)


def enabled(level: str) -> bool:
    """Whether lines of this level (`trace`, `debug`, `info`, `warn`, `error`) go anywhere."""
    return _log.enabled(_log.Level[level.upper()])


def _write(level: str, message: str, fields: dict[str, object]) -> None:
    known = _log.Level[level]
    if _log.enabled(known):
        _log.write(known, readable(message), [(readable(name), readable(value)) for name, value in fields.items()])


class Handler(logging.Handler):
    """Hands the records of `logging` to the host."""

    def emit(self, record: logging.LogRecord) -> None:
        levels = ((logging.ERROR, "ERROR"), (logging.WARNING, "WARN"), (logging.INFO, "INFO"), (logging.DEBUG, "DEBUG"))
        level = next((name for least, name in levels if record.levelno >= least), "TRACE")
        try:
            _write(level, self.format(record), {"logger": record.name})
        except Exception:  # A line of a log is no reason to fail.
            self.handleError(record)
