"""Calls to other shards of this cluster, wherever they are. The caller waits, and so do the other calls of its shard.

The errors are those of `cluster.wit`: `unassigned`, `not-owner`, `unreachable` (it did not run), `timeout`, `outcome-unknown` (it may have run),
`call-cycle`, `call-depth`, and those of the called guest.
"""

from __future__ import annotations

from . import _wit
from ._errors import hosted
from .codec import Bytes, to_bytes, to_text, whole

_cluster = _wit.load("cluster")


def call(key: Bytes, method: str, payload: Bytes = b"") -> bytes:
    """Calls the shard that a key belongs to."""
    return hosted(_cluster.call_key, to_bytes(key, "a key"), to_text(method, "a method"), to_bytes(payload, "a payload"))


def call_shard(shard: int, method: str, payload: Bytes = b"", *, key: Bytes | None = None) -> bytes:
    """Calls a shard by its number."""
    at = None if key is None else to_bytes(key, "a key")
    return hosted(_cluster.call, whole(shard, "a shard", 32), to_text(method, "a method"), at, to_bytes(payload, "a payload"))


def query(key: Bytes, method: str, payload: Bytes = b"") -> bytes:
    """Runs a query on the shard that a key belongs to, over what is durable there."""
    return hosted(_cluster.query_key, to_bytes(key, "a key"), to_text(method, "a method"), to_bytes(payload, "a payload"))


def query_shard(shard: int, method: str, payload: Bytes = b"", *, key: Bytes | None = None) -> bytes:
    """Runs a query on a shard by its number."""
    at = None if key is None else to_bytes(key, "a key")
    return hosted(_cluster.query, whole(shard, "a shard", 32), to_text(method, "a method"), at, to_bytes(payload, "a payload"))
