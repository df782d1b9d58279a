"""Where this instance runs."""

from __future__ import annotations

from typing import Any

from . import _wit
from .codec import Bytes, parsed_options, to_bytes

_wit_shard = _wit.load("shard")
_FOR_EVER = (1 << 64) - 1


def cluster() -> str:
    """The cluster's name."""
    return _wit_shard.cluster()


def shard() -> int:
    """This shard's number, from 0."""
    return _wit_shard.number()


def shard_count() -> int:
    """How many shards the cluster has."""
    return _wit_shard.count()


def shard_for(key: Bytes) -> int:
    """The shard that a key belongs to."""
    return _wit_shard.shard_for(to_bytes(key, "a key"))


def node() -> str:
    """The node's name."""
    return _wit_shard.node()


def generation() -> int:
    """The lease's generation: grows with each owner. 0 without leases."""
    return _wit_shard.generation()


def module() -> str:
    """The name of this module within its revision."""
    return _wit_shard.module()


def revision() -> int:
    """The revision that this instance belongs to."""
    return _wit_shard.revision()


def options() -> dict[str, Any]:
    """The module's options, as deployed. Check them in `Guest.validate`, so that wrong ones never get here."""
    return parsed_options(_wit_shard.options())


def status() -> str:
    """`running`, `stopping` or `fenced`."""
    return _wit_shard.status().name.lower()


def owned_for() -> float:
    """Seconds for which this node is sure to own the shard; 0 once its deadline has passed, infinity without leases."""
    left = _wit_shard.owned_for_ms()
    return float("inf") if left == _FOR_EVER else left / 1000
