"""The guest's own metrics, on the node's `/metrics` as `quarry_guest_NAME`. What is over a bound is dropped and counted by the host."""

from __future__ import annotations

from . import _wit
from .codec import whole

_metrics = _wit.load("metrics")


def describe(name: str, help: str) -> None:
    """Says what a metric is, for people."""
    _metrics.describe(name, help)


def add(counter: str, by: int = 1, **labels: object) -> None:
    """Adds to a counter."""
    _metrics.add(counter, _pairs(labels), whole(by, "`by`"))


def set(gauge: str, value: float, **labels: object) -> None:
    """Sets a gauge."""
    _metrics.set(gauge, _pairs(labels), float(value))


def observe(histogram: str, value: float, **labels: object) -> None:
    """Puts a value into a histogram."""
    _metrics.observe(histogram, _pairs(labels), float(value))


def _pairs(labels: dict[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in labels.items()]
