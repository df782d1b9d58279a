"""The exports of a component. Part of no test: the build puts it around the guest."""

from __future__ import annotations

import logging
from typing import Any, Callable, NoReturn

from componentize_py_types import Err

try:
    from wit_world.imports.types import Error
except ModuleNotFoundError:
    # It is called so beside the `types` of another package, such as wasi:http.
    from wit_world.imports.quarry_shard_types import Error

from . import log
from ._call import Call, Reply
from ._errors import QuarryError
from ._guest import Instance, Timer, exported, record_of
from .codec import parsed_options, readable, to_bytes

# What a guest raises. `sys.exit` is no way to end an instance.
_RAISED = (Exception, SystemExit)
_made: list[Instance] = []

logging.basicConfig(handlers=[log.Handler()], level=logging.NOTSET, format="%(message)s")


def _instance() -> Instance:
    """The instance, made when it is first needed."""
    if not _made:
        _made.append(Instance(exported()))
    return _made[0]


def _raise(error: BaseException) -> NoReturn:
    record = record_of(error)
    raise Err(Error(readable(record.code), readable(record.message), record.retryable)) from None


def _answered(is_query: bool, method: str, key: bytes | None, payload: bytes) -> bytes:
    try:
        reply: Reply = _instance().answer(is_query, Call(method, key, payload))
        reply._announce()
        return reply.payload
    except _RAISED as error:
        _raise(error)


def _guarded(body: Callable[[], Any]) -> Any:
    try:
        return body()
    except _RAISED as error:
        _raise(error)


def _quiet(body: Callable[[], None]) -> None:
    """For exports that cannot fail: what is raised is logged."""
    try:
        body()
    except QuarryError as error:
        log.error(readable(error))
    except _RAISED as error:
        record_of(error)


class Handler:
    def call(self, method: str, key: bytes | None, payload: bytes) -> bytes:
        return _answered(False, method, key, payload)


class Queries:
    def query(self, method: str, key: bytes | None, payload: bytes) -> bytes:
        return _answered(True, method, key, payload)


class Lifecycle:
    def start(self) -> None:
        _guarded(lambda: _instance().guest.start())

    def stop(self, reason: str) -> None:
        _quiet(lambda: _instance().guest.stop(reason))


class Options:
    def validate(self, options: str) -> None:
        try:
            _instance().guest.validate(parsed_options(options))
        except QuarryError as error:
            raise Err(readable(error.message)) from None
        except _RAISED as error:
            raise Err(readable(error) or type(error).__name__) from None


class DurableEvents:
    def durable(self, tags: list[int]) -> None:
        _quiet(lambda: _instance().guest.durable(tags))


class TimerEvents:
    def fire(self, name: str, payload: bytes, due_ms: int) -> None:
        _guarded(lambda: _instance().guest.fire(Timer(name, payload, due_ms)))


class Handoff:
    def suspend(self) -> bytes:
        return _guarded(lambda: to_bytes(_instance().guest.suspend(), "what `suspend` returns"))

    def resume(self, from_revision: int, state: bytes) -> None:
        _guarded(lambda: _instance().guest.resume(state, from_revision))


class Migration:
    def migrate(self, from_revision: int) -> bool:
        return _guarded(lambda: _instance().migrate(from_revision))
