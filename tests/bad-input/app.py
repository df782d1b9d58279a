"""A guest that gives the SDK and the host what they do not take, one method a fault. What its caller has to see stands in `.ci/bad-input.py`."""

from typing import Any, Callable

from quarry_guest import Call, Guest, QuarryError, Reply, cluster, db, durability, export, log, metrics, timers

FAULTS: dict[str, Callable[[Call], Any]] = {
    # What a handler returns and raises.
    "return-number": lambda call: 7,
    "return-none": lambda call: None,
    "return-object": lambda call: {"a": [1, None]},
    "return-class": lambda call: object(),
    "return-set": lambda call: {1},
    "return-nan": lambda call: {"a": float("nan")},
    "return-surrogate": lambda call: "\ud800",
    "return-too-much": lambda call: bytes((16 << 20) + 1),
    "content-type": lambda call: Reply.text("a").content_type(5),
    "raise-types": lambda call: thrown(QuarryError(5, None)),
    "raise-surrogate": lambda call: thrown(QuarryError("mine", "\ud800 is half")),
    "raise-plain": lambda call: {}["no"],
    # The database.
    "key-number": lambda call: db.put(1, 2),
    "key-none": lambda call: db.get(None),
    "key-empty": lambda call: db.get(""),
    "key-large": lambda call: db.get(b"k" * 70_000),
    "key-surrogate": lambda call: db.get("\ud800"),
    "value-number": lambda call: db.put("a", 2),
    "value-none": lambda call: db.put("a", None),
    "value-large": lambda call: db.put("a", bytes((16 << 20) + 1)),
    "json-none-such": lambda call: db.put_json("a", object()),
    "ttl-zero": lambda call: db.put("a", "b", ttl_ms=0),
    "ttl-below": lambda call: db.put("a", "b", ttl_ms=-1),
    "ttl-text": lambda call: db.put("a", "b", ttl_ms="1"),
    "many-text": lambda call: db.get_many("abc"),
    "many-number": lambda call: db.get_many(5),
    "many-too-many": lambda call: db.get_many(["a"] * 1025),
    "batch-empty": lambda call: db.Batch().write(),
    "batch-number": lambda call: db.Batch().put("a", 1),
    "scan-limit": lambda call: list(db.scan(page_length=-1)),
    "scan-limit-zero": lambda call: list(db.scan(page_length=0)),
    "scan-limit-text": lambda call: list(db.scan(page_length="9")),
    "scan-start": lambda call: list(db.scan(start=1)),
    "scan-both": lambda call: list(db.scan(prefix="a", start="b")),
    "isolation": lambda call: db.transaction(lambda tx: None, isolation="none"),
    "no-merge": lambda call: db.merge("a", "b"),
    # Numbers, names and the rest.
    "tag-below": lambda call: durability.notify_when_durable(1, -1),
    "tag-above": lambda call: durability.notify_when_durable(1, 1 << 64),
    "tag-text": lambda call: durability.notify_when_durable(1, "7"),
    "seq-ahead": lambda call: durability.notify_when_durable((1 << 64) - 1, 1),
    "timer-name-number": lambda call: timers.set(5, 10),
    "timer-name-empty": lambda call: timers.set("", 10),
    "timer-after": lambda call: timers.set("a", -1),
    "timer-cancel": lambda call: timers.cancel(None),
    "call-method": lambda call: cluster.call("a", 5),
    "call-shard": lambda call: cluster.call_shard(-1, "a"),
    "header-number": lambda call: call.header(5),
    "metric-name": lambda call: metrics.add(5, 1),
    "metric-by": lambda call: metrics.add("a", -1),
    "metric-value": lambda call: metrics.set("a", "much"),
    # The payload.
    "payload-text": lambda call: call.text(),
    "payload-json": lambda call: call.json(),
    # What is taken, whatever it is: a log line is no reason to fail.
    "log-anything": lambda call: log.info("\ud800", field="\ud800", other=object()),
}


def thrown(error: Exception) -> None:
    raise error


@export
class BadInput(Guest):
    def __init__(self) -> None:
        self.alive = 0

    def call(self, call: Call) -> Any:
        if call.method == "alive":
            self.alive += 1
            return self.alive
        fault = FAULTS.get(call.method)
        if fault is None:
            raise QuarryError.unknown_method(call.method)
        return fault(call)

    def durable(self, tags: list[int]) -> None:
        """So that tags can be asked for."""

    def fire(self, timer: Any) -> None:
        """So that timers can be set."""
