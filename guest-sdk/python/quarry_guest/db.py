"""The shard's database: ordered keys and values. A write is visible at once and durable later, and replies wait for that by themselves."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, TypeVar

from . import _wit
from ._errors import QuarryError, hosted
from .codec import Bytes, from_json, text, to_bytes, to_json, to_keys, whole

T = TypeVar("T")

#: How often `transaction` begins before it gives the conflict to its caller.
MAX_ATTEMPTS = 10
#: Entries asked for at first: a scan that is given up soon costs little.
_FIRST_PAGE = 64
#: Entries asked for at most. The host ends a page before it grows over 4 MiB.
_LARGEST_PAGE = 4096

_db = _wit.load("db")


@dataclass(frozen=True)
class Versioned:
    """A value and what is known of it."""

    value: bytes
    #: The write that stored it.
    seq: int
    created_at: datetime
    expires_at: datetime | None


def get(key: Bytes) -> bytes | None:
    """The value of a key, or None. An expired value reads as None."""
    return hosted(_db.get, to_bytes(key, "a key"))


def get_text(key: Bytes) -> str | None:
    """The value of a key as text."""
    return _mapped(get(key), text)


def get_json(key: Bytes) -> Any:
    """The value of a key as JSON."""
    return _mapped(get(key), from_json)


def get_versioned(key: Bytes) -> Versioned | None:
    """The value of a key with its seq and times."""
    found = hosted(_db.get_versioned, to_bytes(key, "a key"))
    if found is None:
        return None
    return Versioned(found.value, found.seq, _time(found.created_at_ms), _mapped(found.expires_at_ms, _time))


def get_many(keys: Iterable[Bytes]) -> list[bytes | None]:
    """The values of up to 1,024 keys, in their order, read concurrently."""
    return hosted(_db.get_many, to_keys(keys))


def put(key: Bytes, value: Bytes, *, ttl_ms: int | None = None) -> int:
    """Stores a value, for ever or for so many milliseconds. Gives the write's seq."""
    return _stored(_db, to_bytes(key, "a key"), to_bytes(value), ttl_ms)


def put_json(key: Bytes, value: Any, *, ttl_ms: int | None = None) -> int:
    """Stores a value as JSON."""
    return _stored(_db, to_bytes(key, "a key"), to_json(value), ttl_ms)


def remove(key: Bytes) -> int:
    """Deletes a key, whether it exists or not."""
    return hosted(_db.remove, to_bytes(key, "a key"))


def merge(key: Bytes, operand: Bytes) -> int:
    """Hands an operand to the cluster's merge operator."""
    return hosted(_db.merge, to_bytes(key, "a key"), to_bytes(operand, "an operand"))


class Batch:
    """Operations that are applied all or none, with one seq."""

    def __init__(self) -> None:
        self._ops: list[Any] = []

    def put(self, key: Bytes, value: Bytes, *, ttl_ms: int | None = None) -> Batch:
        """Stores a value."""
        ttl = None if ttl_ms is None else whole(ttl_ms, "`ttl_ms`")
        return self._push(_db.OpKind.PUT, to_bytes(key, "a key"), to_bytes(value), ttl)

    def put_json(self, key: Bytes, value: Any, *, ttl_ms: int | None = None) -> Batch:
        """Stores a value as JSON."""
        return self.put(key, to_json(value), ttl_ms=ttl_ms)

    def remove(self, key: Bytes) -> Batch:
        """Deletes a key."""
        return self._push(_db.OpKind.REMOVE, key, b"")

    def merge(self, key: Bytes, operand: Bytes) -> Batch:
        """Hands an operand to the merge operator."""
        return self._push(_db.OpKind.MERGE, key, to_bytes(operand, "an operand"))

    def __len__(self) -> int:
        return len(self._ops)

    def write(self) -> int:
        """Applies them; gives their seq."""
        return hosted(_db.write, self._ops)

    def _push(self, kind: Any, key: Bytes, value: bytes, ttl_ms: int | None = None) -> Batch:
        self._ops.append(_db.Op(kind, to_bytes(key, "a key"), value, ttl_ms))
        return self


class _Resource:
    """Something of the host's, until it is closed. The end of its call closes it too."""

    def __init__(self, source: Any) -> None:
        self._source: Any = source

    def close(self) -> None:
        """Ends it now."""
        source, self._source = self._source, None
        if source is not None:
            source.__exit__(None, None, None)

    def _open(self) -> Any:
        if self._source is None:
            raise QuarryError("closed", "this was closed, or is over")
        return self._source

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Cursor(_Resource):
    """The entries of a range, in order, as `(key, value)`, fetched page by page. `with` closes it at the end of a block."""

    def __init__(self, source: Any, page_length: int | None) -> None:
        super().__init__(source)
        self._pages = self._fetched(page_length)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._pages

    def __next__(self) -> tuple[bytes, bytes]:
        return next(self._pages)

    def text(self) -> Iterator[tuple[str, str]]:
        """The entries as text."""
        return ((text(key), text(value)) for key, value in self)

    def json(self) -> Iterator[tuple[str, Any]]:
        """The entries with values of JSON."""
        return ((text(key), from_json(value)) for key, value in self)

    def _fetched(self, page_length: int | None) -> Iterator[tuple[bytes, bytes]]:
        length = page_length or _FIRST_PAGE
        try:
            while self._source is not None:
                page = hosted(self._source.next, length)
                if not page:
                    return
                for entry in page:
                    yield entry.key, entry.value
                if page_length is None:
                    length = min(length * 4, _LARGEST_PAGE)
        finally:
            self.close()


def scan(
    *,
    prefix: Bytes | None = None,
    start: Bytes | None = None,
    end: Bytes | None = None,
    reverse: bool = False,
    page_length: int | None = None,
) -> Cursor:
    """Reads the keys with a prefix, or from `start` to the one before `end`, or all, as they are now: `for key, value in db.scan(prefix="a/")`."""
    return _scanned(_db, prefix, start, end, reverse, page_length)


class _View(_Resource):
    """What snapshots and transactions read alike."""

    def get(self, key: Bytes) -> bytes | None:
        """As `db.get`."""
        return hosted(self._open().get, to_bytes(key, "a key"))

    def get_text(self, key: Bytes) -> str | None:
        """As `db.get_text`."""
        return _mapped(self.get(key), text)

    def get_json(self, key: Bytes) -> Any:
        """As `db.get_json`."""
        return _mapped(self.get(key), from_json)

    def get_many(self, keys: Iterable[Bytes]) -> list[bytes | None]:
        """As `db.get_many`."""
        return hosted(self._open().get_many, to_keys(keys))

    def scan(
        self,
        *,
        prefix: Bytes | None = None,
        start: Bytes | None = None,
        end: Bytes | None = None,
        reverse: bool = False,
        page_length: int | None = None,
    ) -> Cursor:
        """As `db.scan`."""
        return _scanned(self._open(), prefix, start, end, reverse, page_length)


class Snapshot(_View):
    """The database at one moment."""

    @property
    def seq(self) -> int:
        """The last write that it shows."""
        return hosted(self._open().seq)


def snapshot() -> Snapshot:
    """Opens a view that later writes do not change: `with db.snapshot() as view`."""
    return Snapshot(hosted(_db.open_snapshot))


class Transaction(_View):
    """The database as it was when it began, with its own writes on top. Closed without a commit it changes nothing."""

    def put(self, key: Bytes, value: Bytes, *, ttl_ms: int | None = None) -> None:
        """Stores a value at the commit."""
        _stored(self._open(), to_bytes(key, "a key"), to_bytes(value), ttl_ms)

    def put_json(self, key: Bytes, value: Any, *, ttl_ms: int | None = None) -> None:
        """Stores a value as JSON at the commit."""
        _stored(self._open(), to_bytes(key, "a key"), to_json(value), ttl_ms)

    def remove(self, key: Bytes) -> None:
        """Removes a key at the commit."""
        hosted(self._open().remove, to_bytes(key, "a key"))

    def merge(self, key: Bytes, operand: Bytes) -> None:
        """Merges an operand at the commit."""
        hosted(self._open().merge, to_bytes(key, "a key"), to_bytes(operand, "an operand"))

    def commit(self) -> int | None:
        """Applies the writes, all or none; None where there are none, `conflict` where another write came between. It is over then."""
        try:
            return hosted(self._open().commit)
        finally:
            self.close()


@contextmanager
def begin(*, isolation: str = "serializable") -> Iterator[Transaction]:
    """A transaction that is committed at the end of its block, and changes nothing where that raises: `with db.begin() as tx`."""
    with _begun(isolation) as tx:
        yield tx
        if tx._source is not None:
            tx.commit()


def transaction(body: Callable[[Transaction], T], *, isolation: str = "serializable") -> T:
    """Runs `body` in a transaction and commits it; again on a conflict, up to 10 times in all. What it raises changes nothing.

    `serializable` finds writes of what was read too, `snapshot` only two writes of one key.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            with _begun(isolation) as tx:
                value = body(tx)
                tx.commit()
                return value
        except QuarryError as error:
            if not error.is_conflict or attempt == MAX_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _begun(isolation: str) -> Transaction:
    levels = {"serializable": _db.IsolationLevel.SERIALIZABLE, "snapshot": _db.IsolationLevel.SNAPSHOT_ISOLATION}
    if isolation not in levels:
        raise QuarryError.invalid_argument(f"isolation is 'serializable' or 'snapshot', not {isolation!r}")
    return Transaction(hosted(_db.begin, levels[isolation]))


def _stored(target: Any, key: bytes, value: bytes, ttl_ms: int | None) -> Any:
    if ttl_ms is None:
        return hosted(target.put, key, value)
    return hosted(target.put_for, key, value, whole(ttl_ms, "`ttl_ms`"))


def _scanned(
    source: Any, prefix: Bytes | None, start: Bytes | None, end: Bytes | None, reverse: bool, page_length: int | None
) -> Cursor:
    is_whole = isinstance(page_length, int) and not isinstance(page_length, bool)
    if page_length is not None and not (is_whole and 1 <= page_length <= 10_000):
        raise QuarryError.invalid_argument(f"`page_length` is 1 to 10,000, not {page_length!r}")
    order = _db.Order.DESCENDING if reverse else _db.Order.ASCENDING
    if prefix is None:
        bounds = [None if bound is None else to_bytes(bound, what) for bound, what in ((start, "`start`"), (end, "`end`"))]
        return Cursor(hosted(source.scan, _db.KeyRange(*bounds), order), page_length)
    if start is not None or end is not None:
        raise QuarryError.invalid_argument("give `prefix`, or `start` and `end`, and not both")
    return Cursor(hosted(source.scan_prefix, to_bytes(prefix, "`prefix`"), order), page_length)


def _mapped(value: Any, read: Callable[[Any], Any]) -> Any:
    return None if value is None else read(value)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)
