"""Errors: those of the host, and those that a guest gives to its caller."""

from __future__ import annotations

from typing import Callable, TypeVar

T = TypeVar("T")


class QuarryError(Exception):
    """An error with a stable code for programs and a message for people.

    `code` has up to 64 bytes of `a-z`, `0-9` and `-`; `message` up to 8 KiB, more is cut. `retryable` says whether the same request may succeed
    when it is made again. Any other exception of a handler becomes the code `exception`, with its traceback in the log; neither harms the
    instance.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(code, message)
        self.code = str(code)
        self.message = str(message)
        self.retryable = bool(retryable)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def is_conflict(self) -> bool:
        """Whether a transaction met another write. `db.transaction` begins again by itself."""
        return self.code == "conflict"

    @property
    def is_final(self) -> bool:
        """Whether this instance is about to be stopped (`closed`, `fenced`): there is nothing left to do."""
        return self.code in ("closed", "fenced")

    @classmethod
    def unknown_method(cls, method: str) -> QuarryError:
        """The guest has no such method."""
        return cls("unknown-method", f"there is no method `{method}`")

    @classmethod
    def missing_key(cls, method: str) -> QuarryError:
        """The method needs a routing key, and the caller named a shard."""
        return cls("missing-key", f"`{method}` needs a key: call it with a key, not with a shard")

    @classmethod
    def invalid_payload(cls, why: object) -> QuarryError:
        """The payload is not what the method takes."""
        return cls("invalid-payload", f"the payload was not understood: {why}")

    @classmethod
    def invalid_data(cls, why: object) -> QuarryError:
        """A key or value of the database is not of the type that it was read as."""
        return cls("invalid-data", f"stored data was not understood: {why}")

    @classmethod
    def invalid_argument(cls, why: object) -> QuarryError:
        """An argument is not what a function takes."""
        return cls("invalid-argument", str(why))


def hosted(function: Callable[..., T], *args: object) -> T:
    """Runs a function of the host, whose errors come as records."""
    try:
        return function(*args)
    except Exception as error:
        record = getattr(error, "value", None)
        if not hasattr(record, "retryable"):
            raise
        raise QuarryError(record.code, record.message, retryable=record.retryable) from None
