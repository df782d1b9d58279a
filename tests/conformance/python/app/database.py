"""The commands of the database."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

from quarry_guest import QuarryError, db

from .form import Args, invalid, number, number_of, option
from .script import Command, Script

_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_ORDERS: dict[str, object] = {"ascending": False, "descending": True}
_ISOLATIONS: dict[str, object] = {name: name for name in ("snapshot", "serializable")}


def _on(script: Script, args: Args, *kinds: type) -> Any:
    """Where a command goes: the database, or what is open under a number."""
    on = args.bytes()
    return script.handle(number_of(on), *kinds) if on else db


def _on_view(script: Script, args: Args) -> Any:
    return _on(script, args, db.Snapshot, db.Transaction)


def _on_writer(script: Script, args: Args) -> Any:
    return _on(script, args, db.Transaction)


def _written(script: Script, seq: int | None) -> list[bytes]:
    """What a write gives: nothing on a transaction."""
    return [] if seq is None else script.wrote(seq)


def _get(script: Script, args: Args) -> list[bytes]:
    return [option(_on_view(script, args).get(args.bytes()))]


def _get_many(script: Script, args: Args) -> list[bytes]:
    on = _on_view(script, args)
    keys = []
    while args:
        keys.append(args.bytes())
    return [option(value) for value in on.get_many(keys)]


def _get_versioned(_: Script, args: Args) -> list[bytes]:
    found = db.get_versioned(args.bytes())
    if found is None:
        return []
    expires = None if found.expires_at is None else _ms(found.expires_at)
    return [found.value, number(found.seq), _ms(found.created_at), option(expires)]


def _ms(moment: datetime) -> bytes:
    return number((moment - _EPOCH) // timedelta(milliseconds=1))


def _put(script: Script, args: Args) -> list[bytes]:
    on = _on_writer(script, args)
    key, value, ttl_ms = args.bytes(), args.bytes(), args.optional_number()
    return _written(script, on.put(key, value, ttl_ms=ttl_ms))


def _remove(script: Script, args: Args) -> list[bytes]:
    return _written(script, _on_writer(script, args).remove(args.bytes()))


def _merge(script: Script, args: Args) -> list[bytes]:
    on = _on_writer(script, args)
    key, operand = args.bytes(), args.bytes()
    return _written(script, on.merge(key, operand))


def _write(script: Script, args: Args) -> list[bytes]:
    batch = db.Batch()
    while args:
        kind, key, value, ttl_ms = args.text(), args.bytes(), args.bytes(), args.optional_number()
        if kind == "put":
            batch.put(key, value, ttl_ms=ttl_ms)
        elif kind == "remove":
            batch.remove(key)
        elif kind == "merge":
            batch.merge(key, value)
        else:
            raise invalid()
    return script.wrote(batch.write())


def _scan(script: Script, args: Args) -> list[bytes]:
    on = _on_view(script, args)
    handle, start, end, reverse = args.number(), args.option(), args.option(), args.choice(_ORDERS)
    script.open(handle, on.scan(start=start, end=end, reverse=reverse))
    return []


def _scan_prefix(script: Script, args: Args) -> list[bytes]:
    on = _on_view(script, args)
    handle, prefix, reverse = args.number(), args.bytes(), args.choice(_ORDERS)
    script.open(handle, on.scan(prefix=prefix, reverse=reverse))
    return []


def _next(script: Script, args: Args) -> list[bytes]:
    cursor = script.handle(args.number(), db.Cursor)
    return [part for entry in islice(cursor, args.number()) for part in entry]


def _page(script: Script, args: Args) -> list[bytes]:
    raise QuarryError("unsupported", "the SDK has cursors, whose pages it takes by itself")


def _open_snapshot(script: Script, args: Args) -> list[bytes]:
    handle = args.number()
    snapshot = db.snapshot()
    script.open(handle, snapshot)
    return [number(snapshot.seq)]


def _begin(script: Script, args: Args) -> list[bytes]:
    handle, isolation = args.number(), args.choice(_ISOLATIONS)
    script.begin(handle, db.begin(isolation=isolation))
    return []


def _commit(script: Script, args: Args) -> list[bytes]:
    seq = script.handle(args.number(), db.Transaction).commit()
    if seq is not None:
        script.wrote(seq)
    return [option(None if seq is None else number(seq))]


def _drop(script: Script, args: Args) -> list[bytes]:
    script.close(args.number())
    return []


COMMANDS: dict[str, Command] = {
    "db.get": _get,
    "db.get-many": _get_many,
    "db.get-versioned": _get_versioned,
    "db.put": _put,
    "db.remove": _remove,
    "db.merge": _merge,
    "db.write": _write,
    "db.scan": _scan,
    "db.scan-prefix": _scan_prefix,
    "cursor.next": _next,
    "cursor.page": _page,
    "db.open-snapshot": _open_snapshot,
    "db.begin": _begin,
    "transaction.commit": _commit,
    "drop": _drop,
}
