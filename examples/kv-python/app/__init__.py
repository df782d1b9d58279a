"""Values under keys: the same service as ../kv, over the same stored form, so that one can be swapped for the other in place.

| method | key | payload | reply |
|---|---|---|---|
| `put` | where to store | the value | the write's seq in decimal |
| `get`, also as a query | what to read | - | the value, or the error `not-found` |
| `delete` | what to delete | - | the write's seq in decimal |
| `scan`, also as a query | any key of the shard | a `Scan` in JSON, or nothing | a line of JSON per entry |
"""

import json
from base64 import b64encode
from dataclasses import dataclass, fields
from typing import Optional

from quarry_guest import Call, Guest, QuarryError, Reply, call, db, export, query

#: Entries of a scan that does not say how many it wants.
DEFAULT_LIMIT = 1_000
#: Entries of a scan at most.
MAX_LIMIT = 100_000
#: Entries of this size together fail a scan, which says how many fit.
MAX_REPLY_BYTES = 8 << 20


@dataclass
class Scan:
    """What to scan. All of it is optional: an empty payload is the whole shard."""

    #: Only keys that start with this. Not together with `start` or `end`.
    prefix: Optional[str] = None
    #: The first key.
    start: Optional[str] = None
    #: The key before which to end.
    end: Optional[str] = None
    #: How many entries at most.
    limit: Optional[int] = None
    #: Whether to begin with the highest key.
    reverse: bool = False


@export
class Kv(Guest):
    """The guest of a shard. It has no memory: everything is in the database."""

    @call
    def put(self, call: Call) -> int:
        return db.put(call.required_key, call.payload)

    @call
    def delete(self, call: Call) -> int:
        return db.remove(call.required_key)

    @query
    def get(self, call: Call) -> bytes:
        value = db.get(call.required_key)
        if value is None:
            raise QuarryError("not-found", f"there is no key `{escaped(call.required_key)}`")
        return value

    @query
    def scan(self, call: Call) -> Reply:
        scan = scan_of(call)
        limit = DEFAULT_LIMIT if scan.limit is None else scan.limit
        lines: list[bytes] = []
        size = 0
        with db.scan(prefix=scan.prefix, start=scan.start, end=scan.end, reverse=scan.reverse) as cursor:
            for key, value in cursor:
                if lines and size + len(key) + len(value) > MAX_REPLY_BYTES:
                    count = len(lines)
                    raise QuarryError(
                        "reply-too-large",
                        f"the reply would be larger than {MAX_REPLY_BYTES} bytes at entry {count + 1} of {limit}: ask for at most {count}",
                    )
                line = {**shown("key", key), **shown("value", value)}
                lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
                size += len(lines[-1])
                if len(lines) == limit:
                    break
        return Reply.bytes(b"".join(lines)).content_type("application/jsonl")


def scan_of(call: Call) -> Scan:
    """The payload of a scan. What it does not know it refuses: a misspelt bound would show everything."""
    given = call.json() if call.payload else {}
    if not isinstance(given, dict):
        raise QuarryError.invalid_payload("a scan is a JSON object")
    known = [field.name for field in fields(Scan)]
    for name, value in given.items():
        if name not in known:
            raise QuarryError.invalid_payload(f"unknown field `{name}`, expected one of {', '.join(f'`{name}`' for name in known)}")
        if name in ("prefix", "start", "end") and not isinstance(value, (str, type(None))):
            raise QuarryError.invalid_payload(f"`{name}` is a string")
        # JSON may escape half a character, which no key has.
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise QuarryError.invalid_payload(f"`{name}` has half of a surrogate pair")
        if name == "limit" and value is not None and (type(value) is not int or not 1 <= value <= MAX_LIMIT):
            raise QuarryError.invalid_payload(f"`limit` is 1 to {MAX_LIMIT}, not {value}")
        if name == "reverse" and not isinstance(value, bool):
            raise QuarryError.invalid_payload("`reverse` is true or false")
    scan = Scan(**given)
    if scan.prefix is not None and (scan.start is not None or scan.end is not None):
        raise QuarryError.invalid_payload("give `prefix`, or `start` and `end`, and not both")
    return scan


def shown(name: str, data: bytes) -> dict[str, str]:
    """Text stays text; what is not UTF-8 comes in base64, under another name."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def escaped(data: bytes) -> str:
    """Bytes for a message."""
    known = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return "".join(known.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in data)
