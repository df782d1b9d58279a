"""The host's interfaces, as the modules that componentize-py makes, over the host that runs now."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from . import database
from .current import current
from .world import OtherCall
from .xxh64 import xxh64


class Level(Enum):
    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4


class ShardStatus(Enum):
    RUNNING = 0
    STOPPING = 1
    FENCED = 2


@dataclass
class Versioned:
    value: bytes
    seq: int
    created_at_ms: int
    expires_at_ms: int | None


class Face:
    """An interface: its types, and its functions with the host that runs when they are called."""

    def __init__(self, name: str) -> None:
        self._functions = _FACES[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._functions, name)
        except AttributeError:
            raise AttributeError(f"the interface has no {name}") from None


class _Db:
    OpKind = database.OpKind
    Order = database.Order
    IsolationLevel = database.IsolationLevel
    KeyRange = database.KeyRange
    Op = database.Op

    @staticmethod
    def _view() -> database.View:
        world = current()
        return database.View(world, world.view)

    @classmethod
    def get(cls, key: bytes) -> bytes | None:
        return cls._view().get(key)

    @classmethod
    def get_versioned(cls, key: bytes) -> Versioned | None:
        found = cls._view().version(key)
        if found is None or found.value is None:
            return None
        return Versioned(found.value, found.seq, found.created_at_ms, found.expires_at_ms)

    @classmethod
    def get_many(cls, keys: list[bytes]) -> list[bytes | None]:
        return cls._view().get_many(keys)

    @classmethod
    def scan(cls, range: database.KeyRange, order: database.Order) -> database.Cursor:
        return cls._view().scan(range, order)

    @classmethod
    def scan_prefix(cls, prefix: bytes, order: database.Order) -> database.Cursor:
        return cls._view().scan_prefix(prefix, order)

    @classmethod
    def put(cls, key: bytes, value: bytes) -> int:
        return cls.write([database.Op(database.OpKind.PUT, key, value, None)])

    @classmethod
    def put_for(cls, key: bytes, value: bytes, ttl_ms: int) -> int:
        return cls.write([database.Op(database.OpKind.PUT, key, value, ttl_ms)])

    @classmethod
    def remove(cls, key: bytes) -> int:
        return cls.write([database.Op(database.OpKind.REMOVE, key, b"", None)])

    @classmethod
    def merge(cls, key: bytes, operand: bytes) -> int:
        return cls.write([database.Op(database.OpKind.MERGE, key, operand, None)])

    @staticmethod
    def write(ops: list[database.Op]) -> int:
        return database.write(current(), ops)

    @staticmethod
    def open_snapshot() -> database.Snapshot:
        return database.Snapshot(current())

    @staticmethod
    def begin(isolation: database.IsolationLevel) -> database.Transaction:
        return database.Transaction(current(), isolation)


class _Shard:
    cluster = staticmethod(lambda: current().cluster)
    number = staticmethod(lambda: current().shard)
    count = staticmethod(lambda: current().shards)
    shard_for = staticmethod(lambda key: xxh64(key) % current().shards)
    node = staticmethod(lambda: current().node)
    generation = staticmethod(lambda: 0)
    module = staticmethod(lambda: "main")
    revision = staticmethod(lambda: current().revision)
    options = staticmethod(lambda: json.dumps(current().options))
    status = staticmethod(lambda: ShardStatus[current().status.upper()])
    owned_for_ms = staticmethod(lambda: (1 << 64) - 1)


class _CurrentCall:
    @staticmethod
    def deadline_ms() -> int | None:
        world = current()
        return None if world.scope.deadline_ms is None else max(0, world.scope.deadline_ms - world.now_ms)

    traceparent = staticmethod(lambda: current().scope.headers.get("traceparent"))
    header = staticmethod(lambda name: current().scope.headers.get(name.lower()))
    set_content_type = staticmethod(lambda media_type: None)
    reply_when_applied = staticmethod(lambda: None)


class _Durability:
    durable_seq = staticmethod(lambda: current().durable_seq)
    notify_when_durable = staticmethod(lambda seq, tag: current().notify(seq, tag))


class _Timers:
    set = staticmethod(lambda name, after_ms, payload: current().set_timer(name, after_ms, payload, False))
    set_durable = staticmethod(lambda name, after_ms, payload: current().set_timer(name, after_ms, payload, True))

    @staticmethod
    def cancel(name: str) -> bool:
        world = current()
        world.check_writable()
        world.check_timers()
        return world.remove_timer(name)

    @staticmethod
    def due_ms(name: str) -> int | None:
        world = current()
        world.check_timers()
        timer = world.timers.get(name)
        return None if timer is None else timer.due_ms


class _Cluster:
    @staticmethod
    def call(shard: int, method: str, key: bytes | None, payload: bytes) -> bytes:
        return current().call_other(OtherCall(shard, key, method, payload, False))

    @staticmethod
    def call_key(key: bytes, method: str, payload: bytes) -> bytes:
        return current().call_other(OtherCall(_Shard.shard_for(key), key, method, payload, False))

    @staticmethod
    def query(shard: int, method: str, key: bytes | None, payload: bytes) -> bytes:
        return current().call_other(OtherCall(shard, key, method, payload, True))

    @staticmethod
    def query_key(key: bytes, method: str, payload: bytes) -> bytes:
        return current().call_other(OtherCall(_Shard.shard_for(key), key, method, payload, True))


class _Log:
    Level = Level

    @staticmethod
    def enabled(level: Level) -> bool:
        return level.value >= Level[current().log_level.upper()].value

    @staticmethod
    def write(level: Level, message: str, fields: list[tuple[str, str]]) -> None:
        current().logs.append((level.name.lower(), message, dict(fields)))


class _Metrics:
    describe = staticmethod(lambda name, help: None)
    add = staticmethod(lambda name, labels, by: current().measured.append(("counter", name, dict(labels), by)))
    set = staticmethod(lambda name, labels, value: current().measured.append(("gauge", name, dict(labels), value)))
    observe = staticmethod(lambda name, labels, value: current().measured.append(("histogram", name, dict(labels), value)))


_FACES: dict[str, Any] = {
    "db": _Db,
    "shard": _Shard,
    "current_call": _CurrentCall,
    "durability": _Durability,
    "timers": _Timers,
    "cluster": _Cluster,
    "log": _Log,
    "metrics": _Metrics,
}
