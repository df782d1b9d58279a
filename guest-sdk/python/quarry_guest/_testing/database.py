"""The database of the in-memory host: limits, snapshots, transactions with their conflicts, cursors that end with their call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Callable, Iterable

from .current import HostError
from .store import MERGES, Change, Span, Version, merged

if TYPE_CHECKING:
    from .world import World

OP_OVERHEAD = 64
BATCH_MAX_OPS = 65_536
MAX_PAGE = 10_000


class OpKind(Enum):
    PUT = 0
    REMOVE = 1
    MERGE = 2


class Order(Enum):
    ASCENDING = 0
    DESCENDING = 1


class IsolationLevel(Enum):
    SNAPSHOT_ISOLATION = 0
    SERIALIZABLE = 1


@dataclass
class Entry:
    key: bytes
    value: bytes


@dataclass
class Op:
    kind: OpKind
    key: bytes
    value: bytes
    ttl_ms: int | None


@dataclass
class KeyRange:
    start: bytes | None
    end: bytes | None

    def span(self) -> Span:
        return Span(self.start or b"", self.end)


class Held:
    """Something open, for as long as its scope lasts."""

    def __init__(self, world: World) -> None:
        limit = world.limits.open_resources
        if world.scope.open >= limit:
            why = f"{limit} cursors, snapshots and transactions are open in this call (limits.open_resources); close some first"
            raise HostError("limit", why)
        self._world = world
        self._scope = world.scope
        self._is_open = True
        world.scope.open += 1

    def check(self) -> None:
        if not self._is_open or self._scope is not self._world.scope:
            why = "the call that opened this is over: cursors, snapshots and transactions end with it"
            raise HostError("closed", why)

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self._scope.open -= 1
        self._is_open = False


class Cursor(Held):
    def __init__(self, world: World, entries: dict[bytes, bytes], order: Order) -> None:
        super().__init__(world)
        self._entries = [Entry(*entry) for entry in entries.items()]
        if order is Order.ASCENDING:
            self._entries.reverse()

    def next(self, max: int) -> list[Entry]:
        self._world.view()
        self.check()
        if max == 0:
            raise HostError("invalid-argument", "a page holds at least 1 entry")
        page: list[Entry] = []
        size = 0
        while self._entries and len(page) < min(max, MAX_PAGE):
            entry = self._entries[-1]
            size += len(entry.key) + len(entry.value)
            if page and size > self._world.limits.page:
                break
            page.append(self._entries.pop())
        return page


class View:
    """Reads as of the write that `view` gives."""

    def __init__(self, world: World, view: Callable[[], int]) -> None:
        self._world = world
        self._view = view

    def version(self, key: bytes) -> Version | None:
        view = self._view()
        check_key(self._world, key)
        return self._world.store.at(key, view, self._world.now_ms)

    def get(self, key: bytes) -> bytes | None:
        found = self.version(key)
        return None if found is None else found.value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self._view()
        return many(self._world, keys, self.get)

    def scan(self, range: KeyRange, order: Order) -> Cursor:
        return self._scanned(range.span(), order)

    def scan_prefix(self, prefix: bytes, order: Order) -> Cursor:
        return self._scanned(Span.of_prefix(prefix), order)

    def _scanned(self, span: Span, order: Order) -> Cursor:
        view = self._view()
        check_span(self._world, span)
        return Cursor(self._world, self._world.store.scan(span, view, self._world.now_ms), order)


class Snapshot(View):
    def __init__(self, world: World) -> None:
        self._at = world.view()
        self._held = Held(world)
        super().__init__(world, self.seq)

    def seq(self) -> int:
        self._world.view()
        self._held.check()
        return self._at

    def __exit__(self, *_: object) -> None:
        self._held.__exit__()


class Stage:
    """Changes that are not applied yet: of a batch, or of a transaction."""

    def __init__(self, world: World, view: int) -> None:
        self._world = world
        self._view = view
        self._bytes = 0
        self._ops = 0
        self.changes: dict[bytes, Change] = {}

    def add(self, op: Op) -> None:
        """Adds an operation, within the limits."""
        world = self._world
        self._bytes += check_op(world, op)
        self._ops += 1
        limit = world.limits.batch
        if self._bytes > limit:
            why = f"a batch of {self._bytes} bytes (64 for each operation among them) is over limits.batch ({limit} bytes)"
            raise HostError("limit", why)
        if self._ops > BATCH_MAX_OPS:
            why = f"{self._ops} operations are more than a batch or a transaction takes ({BATCH_MAX_OPS}); write in several"
            raise HostError("limit", why)
        self.changes[op.key] = self._change(op)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, with the changes on top."""
        if key in self.changes:
            change = self.changes[key]
            is_over = change.expires_at_ms is not None and change.expires_at_ms <= self._world.now_ms
            return None if is_over else change.value
        found = self._world.store.at(key, self._view, self._world.now_ms)
        return None if found is None else found.value

    def _change(self, op: Op) -> Change:
        if op.kind is OpKind.REMOVE:
            return Change(None, None)
        if op.kind is OpKind.MERGE:
            operator = self._world.merge_operator or ""
            return Change(merged(operator, self.get(op.key), op.value, self._world.limits.value), None)
        return Change(op.value, None if op.ttl_ms is None else self._world.now_ms + op.ttl_ms)


class Transaction:
    def __init__(self, world: World, isolation: IsolationLevel) -> None:
        world.check_writable()
        self._world = world
        self._isolation = isolation
        self._held = Held(world)
        self._view = world.store.last_seq
        self._began_ms = world.now_ms
        self._stage = Stage(world, self._view)
        self._reads: set[bytes] = set()
        self._ranges: list[Span] = []
        self._is_over = False

    def get(self, key: bytes) -> bytes | None:
        self._check()
        check_key(self._world, key)
        if key not in self._stage.changes:
            self._reads.add(key)
        return self._stage.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self._check()
        return many(self._world, keys, self.get)

    def put(self, key: bytes, value: bytes) -> None:
        self._add(Op(OpKind.PUT, key, value, None))

    def put_for(self, key: bytes, value: bytes, ttl_ms: int) -> None:
        self._add(Op(OpKind.PUT, key, value, ttl_ms))

    def remove(self, key: bytes) -> None:
        self._add(Op(OpKind.REMOVE, key, b"", None))

    def merge(self, key: bytes, operand: bytes) -> None:
        self._add(Op(OpKind.MERGE, key, operand, None))

    def scan(self, range: KeyRange, order: Order) -> Cursor:
        return self._scanned(range.span(), order)

    def scan_prefix(self, prefix: bytes, order: Order) -> Cursor:
        return self._scanned(Span.of_prefix(prefix), order)

    def commit(self) -> int | None:
        self._check()
        self._is_over = True
        store, changes = self._world.store, self._stage.changes
        if not changes:
            return None
        written = any(store.changed(key, self._view) for key in changes)
        read = self._isolation is IsolationLevel.SERIALIZABLE and (
            any(store.changed(key, self._view) for key in self._reads)
            or any(store.range_changed(span, self._view) for span in self._ranges)
        )
        if written or read:
            what = "a key that it writes" if written else "what it read"
            raise HostError("conflict", f"another write changed {what}: begin the transaction again", True)
        return self._world.commit(changes)

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._held.__exit__()

    def _add(self, op: Op) -> None:
        self._check()
        self._stage.add(op)

    def _scanned(self, span: Span, order: Order) -> Cursor:
        self._check()
        check_span(self._world, span)
        self._ranges.append(span)
        entries: dict[bytes, bytes | None] = dict(self._world.store.scan(span, self._view, self._world.now_ms))
        entries.update({key: self._stage.get(key) for key in self._stage.changes if span.has(key)})
        shown = {key: value for key, value in sorted(entries.items()) if value is not None}
        return Cursor(self._world, shown, order)

    def _check(self) -> None:
        self._world.check_writable()
        self._held.check()
        limit = self._world.limits.transaction_age_ms
        if self._is_over:
            raise HostError("closed", "the transaction is over; begin another")
        if self._world.now_ms - self._began_ms > limit:
            raise HostError("limit", f"the transaction is older than limits.transaction_age ({limit} ms)")


def write(world: World, ops: list[Op]) -> int:
    """Applies operations, all or none."""
    world.check_writable()
    if not ops:
        raise HostError("invalid-argument", "a batch needs at least one operation")
    stage = Stage(world, world.store.last_seq)
    for op in ops:
        stage.add(op)
    return world.commit(stage.changes)


def many(world: World, keys: list[bytes], read: Callable[[bytes], bytes | None]) -> list[bytes | None]:
    if len(keys) > world.limits.get_many:
        why = f"{len(keys)} keys are more than one get-many takes ({world.limits.get_many}); ask in several"
        raise HostError("limit", why)
    values = [read(key) for key in keys]
    if sum(map(len, filter(None, values))) > world.limits.batch:
        why = f"the values of these {len(keys)} keys have more bytes together than one get-many gives (limits.batch); ask for fewer"
        raise HostError("limit", why)
    return values


def check_op(world: World, op: Op) -> int:
    """Checks an operation, and gives its size."""
    if op.kind is OpKind.PUT and op.ttl_ms == 0:
        raise HostError("invalid-argument", "a TTL is at least 1 ms; remove the key instead")
    if op.kind is OpKind.MERGE and world.merge_operator not in MERGES:
        why = "this cluster has no merge operator; `merge_operator` has to be set before its first start"
        raise HostError("no-merge-operator", why)
    check_key(world, op.key)
    limit = world.limits.value
    if len(op.value) > limit:
        raise HostError("invalid-value", f"a value of {len(op.value)} bytes is over limits.value ({limit} bytes)")
    return len(op.key) + len(op.value) + OP_OVERHEAD


def check_key(world: World, key: bytes) -> None:
    if not key:
        raise HostError("invalid-key", "a key cannot be empty")
    check_bounds(world, [key])


def check_span(world: World, span: Span) -> None:
    check_bounds(world, [span.start, span.end or b""])


def check_bounds(world: World, keys: Iterable[bytes]) -> None:
    limit = world.limits.key
    for key in keys:
        if len(key) > limit:
            raise HostError("invalid-key", f"a key of {len(key)} bytes is over limits.key ({limit} bytes)")
