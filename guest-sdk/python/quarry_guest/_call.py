"""A call and its reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import _wit
from ._errors import QuarryError
from .codec import Bytes, from_json, text, to_bytes, to_json, to_text

_current = _wit.load("current_call")


@dataclass(frozen=True)
class Call:
    """A call, or a query."""

    #: The method that the caller named.
    method: str
    #: The routing key; None when the caller named a shard.
    key: bytes | None = None
    payload: bytes = b""

    @property
    def required_key(self) -> bytes:
        """The routing key, or the error `missing-key`."""
        if self.key is None:
            raise QuarryError.missing_key(self.method)
        return self.key

    def text(self) -> str:
        """The payload as text, or the error `invalid-payload`."""
        try:
            return text(self.payload)
        except QuarryError as error:
            raise QuarryError.invalid_payload(_why(error)) from None

    def json(self) -> Any:
        """The payload as JSON, or the error `invalid-payload`."""
        try:
            return from_json(self.payload)
        except QuarryError as error:
            raise QuarryError.invalid_payload(_why(error)) from None

    @property
    def time_left(self) -> float | None:
        """Seconds that the caller still waits."""
        left = _current.deadline_ms()
        return None if left is None else left / 1000

    @property
    def traceparent(self) -> str | None:
        """The caller's W3C trace context."""
        return _current.traceparent()

    def header(self, name: str) -> str | None:
        """A header: `content-type`, `accept`, `traceparent`, `tracestate`, `idempotency-key`, and all that begin with `x-`."""
        return _current.header(to_text(name, "a header's name"))


@dataclass(frozen=True)
class Reply:
    """What a call gives back: bytes, their media type, and when it may leave."""

    payload: bytes = b""
    #: `application/octet-stream` unless set. Up to 128 bytes of printable ASCII.
    media_type: str | None = None
    #: Whether it may leave before the writes that it shows are durable.
    is_applied: bool = False

    @staticmethod
    def empty() -> Reply:
        """No bytes."""
        return Reply()

    @staticmethod
    def bytes(payload: Bytes) -> Reply:
        """Raw bytes."""
        return Reply(to_bytes(payload, "a reply"))

    @staticmethod
    def text(value: object) -> Reply:
        """Text, as `text/plain; charset=utf-8`."""
        return Reply(to_bytes(str(value), "a reply"), "text/plain; charset=utf-8")

    @staticmethod
    def json(value: Any) -> Reply:
        """JSON, as `application/json`."""
        return Reply(to_json(value), "application/json")

    @staticmethod
    def of(value: Any) -> Reply:
        """The reply of whatever a handler returned: bytes, text or a number (as text), None (no bytes), or anything that has a JSON form."""
        if isinstance(value, Reply):
            return value
        if value is None:
            return Reply()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return Reply(to_bytes(value, "a reply"))
        if hasattr(value, "__await__"):
            value.close()
            why = "a handler is a coroutine: guests are synchronous, and so is all that the host offers; leave out `async`"
            raise QuarryError("exception", why)
        try:
            is_text = isinstance(value, (str, int, float)) and not isinstance(value, bool)
            return Reply.text(value) if is_text else Reply.json(value)
        except QuarryError as error:
            # A fault of the guest's, and none of its caller's.
            why = f"what a handler returned is no reply: {error.message}; return bytes, text, a number, None, or what has a JSON form"
            raise QuarryError("exception", why) from None

    def content_type(self, media_type: str) -> Reply:
        """The same reply with this media type."""
        return replace(self, media_type=to_text(media_type, "a media type"))

    def when_applied(self) -> Reply:
        """The same reply, which may leave before its writes are durable. A caller that asked for durable still waits."""
        return replace(self, is_applied=True)

    def _announce(self) -> None:
        if self.media_type is not None:
            _current.set_content_type(self.media_type)
        if self.is_applied:
            _current.reply_when_applied()


def _why(error: QuarryError) -> str:
    return error.message.removeprefix("stored data was not understood: ")
