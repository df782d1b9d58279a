"""The guest's own metrics, on the node's `/metrics` as `quarry_guest_NAME`. What is over a bound is dropped and counted by the host."""

from __future__ import annotations

from . import _wit
from .codec import number, readable, to_text, whole

_metrics = _wit.load("metrics")


def describe(name: str, help: str) -> None:
    """Says what a metric is, for people."""
    _metrics.describe(to_text(name, "a metric's name"), to_text(help, "`help`"))


def add(counter: str, by: int = 1, **labels: object) -> None:
    """Adds to a counter."""
    _metrics.add(to_text(counter, "a metric's name"), _pairs(labels), whole(by, "`by`"))


def set(gauge: str, value: float, **labels: object) -> None:
    """Sets a gauge."""
    _metrics.set(to_text(gauge, "a metric's name"), _pairs(labels), number(value, "`value`"))


def observe(histogram: str, value: float, **labels: object) -> None:
    """Puts a value into a histogram."""
    _metrics.observe(to_text(histogram, "a metric's name"), _pairs(labels), number(value, "`value`"))


def _pairs(labels: dict[str, object]) -> list[tuple[str, str]]:
    return [(readable(name), readable(value)) for name, value in labels.items()]
