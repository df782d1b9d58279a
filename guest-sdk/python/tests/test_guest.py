"""Guests against the in-memory host: what they answer, raise, remember and hand over."""

from __future__ import annotations

import datetime as dates
import time
import unittest
from datetime import date, datetime, timezone
from time import time as seconds
from typing import Any, Callable

from quarry_guest import Call, Guest, QuarryError, Reply, Timer, call, cluster, context, db, durability, log, metrics, query, timers
from quarry_guest import _guest
from quarry_guest.testing import Host, Limits, Measured, OtherCall


class Unshown:
    def __str__(self) -> str:
        raise ValueError("no text")


class Test(unittest.TestCase):
    def fails(self, code: str, body: Callable[[], object], message: str = "") -> QuarryError:
        with self.assertRaises(QuarryError) as raised:
            body()
        self.assertEqual(raised.exception.code, code)
        self.assertIn(message, raised.exception.message)
        return raised.exception

    def test_what_a_handler_returns_becomes_a_reply(self) -> None:
        for value, text, content_type in [
            (None, "", "application/octet-stream"),
            ("text", "text", "text/plain; charset=utf-8"),
            (1.5, "1.5", "text/plain; charset=utf-8"),
            (2**70, str(2**70), "text/plain; charset=utf-8"),
            (True, "true", "application/json"),
            ({"a": [1, "ä"]}, '{"a":[1,"ä"]}', "application/json"),
            (bytearray(b"a"), "a", "application/octet-stream"),
            (Reply.bytes("x").content_type("a/b"), "x", "a/b"),
        ]:
            reply = Host(guest_of(lambda call: value)).call("run")
            self.assertEqual((reply.text(), reply.content_type), (text, content_type))
        self.assertTrue(Host(guest_of(lambda call: Reply.empty().when_applied())).call("run").is_applied)

    def test_what_is_raised_becomes_an_error_and_only_a_fault_is_logged(self) -> None:
        for error, code, message, lines in [
            (QuarryError("overdraft", "no", retryable=True), "overdraft", "no", 0),
            (ValueError("plain"), "exception", "ValueError: plain", 1),
            (RecursionError("deep"), "exception", "RecursionError", 1),
            (ModuleNotFoundError("no x"), "exception", "top of a file", 1),
            (QuarryError("Not Good", "no"), "guest-error", "'Not Good' is not 1 to 64", 0),
        ]:
            host = Host(guest_of(raiser(error)))
            seen = self.fails(code, lambda: host.call("run"), message)
            self.assertEqual(seen.retryable, getattr(error, "retryable", False))
            self.assertEqual(len(host.logs), lines, error)

        async def later(_: Call) -> int:
            return 1

        self.fails("exception", lambda: Host(guest_of(later)).call("run"), "leave out `async`")

    def test_methods_are_found_by_their_names_alone(self) -> None:
        class Both(Guest):
            @call
            def put(self, call: Call) -> int:
                return 1

            @query("delete")
            def delete_(self, call: Call) -> int:
                return 2

            def call(self, call: Call) -> str:
                return f"other {call.method}"

        host = Host(Both)
        self.assertEqual([host.call(name).text() for name in ("put", "delete")], ["1", "2"])
        self.assertEqual(host.call("__init__").text(), "other __init__")
        self.assertEqual(host.query("delete").text(), "2")
        for name in ("put", "delete_", "__class__"):
            self.fails("unknown-method", lambda: host.query(name))

    def test_the_clock_of_a_handler_is_that_of_its_host(self) -> None:
        first = 1_767_225_600

        class Clocked(Guest):
            def __init__(self) -> None:
                self.made = seconds()

            @call
            def now(self, call: Call) -> list[float]:
                utc = datetime.now(timezone.utc)
                self_made = datetime(2026, 1, 1)
                assert isinstance(utc, datetime) and isinstance(self_made, dates.datetime) and isinstance(date.today(), date)
                return [
                    time.time(),
                    seconds(),
                    time.time_ns() / 1e9,
                    utc.timestamp(),
                    dates.datetime.now().timestamp(),
                    time.monotonic(),
                    (self_made - datetime(2025, 12, 31)).total_seconds(),
                    self.made,
                ]

            @call
            def ask(self, call: Call) -> bytes:
                return cluster.call("a", "now")

            @call
            def fail(self, call: Call) -> None:
                raise ValueError("no")

        host = Host(Clocked)
        host.advance(1500)
        self.assertEqual(host.call("now").json(), [first + 1.5] * 6 + [86_400, first])
        # Each host has its own, and the test keeps the machine's.
        other = Host(Clocked, calls=lambda call: host.call(call.method).payload)
        self.assertEqual(other.call("ask").json()[1], first + 1.5)
        self.assertEqual(other.call("now").json()[1], first)
        self.fails("exception", lambda: host.call("fail"))
        self.assertIs(seconds, time.time)
        self.assertGreater(seconds(), first + 86_400)
        self.assertEqual(type(datetime.now()), datetime)

    def test_what_is_of_a_wrong_type_is_refused_with_what_was_given_and_what_is_wanted(self) -> None:
        host = Host()
        for use, message in [
            (lambda: db.put(1, 2), "a key is bytes or str, not int 1"),
            (lambda: db.put("a", ["b"]), "a value is bytes or str, not list"),
            (lambda: db.get("\ud800"), "a key has no UTF-8 form"),
            (lambda: db.get_many("abc"), "`keys` is a list of keys, not str 'abc'"),
            (lambda: db.get_many(5), "`keys` is a list of keys, not int 5"),
            (lambda: db.scan(page_length="9"), "`page_length` is 1 to 10,000, not '9'"),
            (lambda: db.scan(page_length=True), "`page_length` is 1 to 10,000, not True"),
            (lambda: timers.set(5, 1), "a timer's name is str, not int 5"),
            (lambda: timers.cancel(None), "a timer's name is str, not None"),
            (lambda: cluster.call("a", b"m"), "a method is str, not bytes"),
            (lambda: metrics.set("a", "much"), "`value` is a number, not str 'much'"),
            (lambda: metrics.add("a", -1), "`by` is a whole number of 64 bits, from 0, not -1"),
            (lambda: Reply.text("a").content_type(5), "a media type is str, not int 5"),
        ]:
            self.fails("invalid-argument", lambda: host.run(use), message)
        host.run(lambda: log.info("\ud800", field=Unshown()))
        self.assertEqual(host.logs[0].message, "\\ud800")
        self.assertEqual(host.logs[0].fields, {"field": "<Unshown: ValueError in its __str__>"})
        for returned, part in [(object(), "Object of type object"), (float, "is not JSON serializable"), ("\ud800", "half of a character")]:
            self.fails("exception", lambda: Host(guest_of(lambda call: returned)).call("run"), part)

    def test_optional_interfaces_are_those_that_a_guest_has(self) -> None:
        def none(*_: Any) -> None:
            return None

        for methods, interfaces in [
            ({}, []),
            ({"query": none}, ["queries"]),
            ({"stop": none}, ["lifecycle"]),
            ({"fire": none, "durable": none}, ["durable-events", "timer-events"]),
            ({"suspend": none, "resume": none, "migrate": none, "validate": none}, ["options", "handoff", "migration"]),
        ]:
            self.assertEqual(_guest.interfaces(type("G", (Guest,), methods)), interfaces)
        with self.assertRaisesRegex(TypeError, "go together"):
            _guest.interfaces(type("G", (Guest,), {"suspend": none}))

    def test_memory_lasts_as_long_as_its_instance(self) -> None:
        class Counter(Guest):
            def __init__(self) -> None:
                self.count = 0

            @call
            def up(self, call: Call) -> int:
                self.count += 1
                return self.count

            @query
            def seen(self, call: Call) -> int:
                return self.count

        host = Host(Counter)
        host.call("up")
        self.assertEqual([host.call("up").text(), host.query("seen").text()], ["2", "0"])
        host.restart()
        self.assertEqual(host.call("up").text(), "1")

    def test_durability_is_told_in_the_order_of_writes(self) -> None:
        told: list[int] = []

        class Told(Guest):
            @call
            def put(self, call: Call) -> None:
                durability.notify_when_durable(db.put(call.required_key, ""), int(call.text()))

            def durable(self, tags: list[int]) -> None:
                told.extend(tags)

        host = Host(Told)
        host.call("put", key="a", payload="7")
        host.call("put", key="b", payload="5")
        host.make_durable(1)
        self.assertEqual(told, [7])
        host.crash()
        host.make_durable()
        self.assertEqual(told, [7])
        self.fails("invalid-argument", lambda: host.run(lambda: durability.notify_when_durable(99, 1)), "not given out")

    def test_timers_fire_in_their_order_and_durable_ones_until_they_succeed(self) -> None:
        fired: list[tuple[str, str, int]] = []

        class Timed(Guest):
            @call
            def set(self, call: Call) -> None:
                timers.set("late", 20, "l")
                timers.set_durable("early", 10, "e")

            def fire(self, timer: Timer) -> None:
                fired.append((timer.name, timer.text(), timer.due_ms - 1_767_225_600_000))
                if timer.name == "early" and len(fired) < 4:
                    raise ValueError("again")

        host = Host(Timed)
        host.call("set")
        host.advance(20)
        self.assertEqual(fired, [("early", "e", 10), ("late", "l", 20)])
        host.advance(10_000)
        self.assertEqual(fired[2:], [("early", "e", 1_010), ("early", "e", 3_010)])
        host.call("set")
        host.restart()
        self.assertIsNone(host.run(lambda: timers.due_ms("late")))
        self.assertTrue(host.run(lambda: timers.cancel("early")))

    def test_a_shard_that_is_full_of_timers_says_that_there_may_be_room_later(self) -> None:
        class Timed(Guest):
            def fire(self, timer: Timer) -> None:
                pass

        host = Host(Timed, limits=Limits(timers=1))
        host.run(lambda: timers.set("a", 1_000))
        for is_durable in (False, True):
            put = timers.set_durable if is_durable else timers.set
            full = self.fails("limit", lambda: host.run(lambda: put("b", 1_000)), "limits.timers")
            self.assertTrue(full.retryable)
            wrong = self.fails("invalid-argument", lambda: host.run(lambda: put("", 1_000)))
            self.assertFalse(wrong.retryable)
            host.run(lambda: put("a", 1_000))

    def test_a_crash_takes_back_what_became_of_a_durable_timer(self) -> None:
        fired: list[str] = []

        class Timed(Guest):
            @call
            def set(self, call: Call) -> None:
                timers.set_durable(call.text(), 10)

            def fire(self, timer: Timer) -> None:
                fired.append(timer.name)

        host = Host(Timed)
        host.call("set", payload="a")
        host.make_durable()
        host.call("set", payload="b")
        host.advance(10)
        self.assertEqual(fired, ["a", "b"])
        host.crash()
        host.advance(0)
        self.assertEqual(fired, ["a", "b", "a"])
        host.make_durable()
        host.crash()
        host.advance(100)
        self.assertEqual(len(fired), 3)
        host.call("set", payload="c")
        host.make_durable()
        host.run(lambda: timers.cancel("c"))
        host.crash()
        self.assertTrue(host.run(lambda: timers.cancel("c")))

    def test_a_swap_migrates_and_carries_memory(self) -> None:
        class Old(Guest):
            def __init__(self) -> None:
                self.count = 0

            @call
            def up(self, call: Call) -> int:
                self.count += 1
                db.put(f"n/{self.count}", "old")
                return self.count

            def suspend(self) -> str:
                return str(self.count)

            def resume(self, state: bytes, from_revision: int) -> None:
                self.count = int(state) + from_revision * 100

        class New(Old):
            def migrate(self, from_revision: int) -> bool:
                for key, value in db.scan(prefix="n/").text():
                    if value == "old":
                        db.put(key, "new")
                        return False
                return True

        class Broken(Guest):
            def start(self) -> None:
                raise ValueError("no")

        host, between = Host(Old), []
        host.call("up")

        def meanwhile(at: Host) -> None:
            between.append(at.call("up").text() if not between else "")

        host.swap(New, between=meanwhile)
        self.assertEqual(between, ["2", ""])
        self.assertEqual(host.run(lambda: db.get_text("n/2")), "new")
        self.assertEqual(host.call("up").text(), "103")
        self.fails("exception", lambda: host.swap(Broken))
        self.assertEqual(host.call("up").text(), "104")

    def test_options_are_checked_before_anything_runs(self) -> None:
        class Limited(Guest):
            @call
            def get(self, call: Call) -> int:
                return context.options()["limit"]

            def validate(self, options: dict[str, Any]) -> None:
                if options.get("limit", 0) < 1:
                    raise ValueError("`limit` is above 0")

        self.assertEqual(Host(Limited, options={"limit": 3}).call("get").text(), "3")
        self.fails("invalid-options", lambda: Host(Limited), "`limit` is above 0")

    def test_other_shards_are_played_by_the_test(self) -> None:
        calls: list[OtherCall] = []
        host = Host(guest_of(lambda call: cluster.call("ann", "get", "x")), shards=4, calls=lambda other: calls.append(other) or b"reply")
        self.assertEqual(host.call("run").text(), "reply")
        self.assertEqual(calls, [OtherCall(host.run(lambda: context.shard_for("ann")), b"ann", "get", b"x", False)])
        self.fails("invalid-argument", lambda: host.run(lambda: cluster.call_shard(-1, "m")))

    def test_logs_and_metrics_are_seen(self) -> None:
        host = Host(log_level="info")
        host.run(lambda: (log.debug("no"), log.info("yes", a=1), metrics.add("orders", 2, kind="x")))
        self.assertEqual([(line.level, line.message, line.fields) for line in host.logs], [("info", "yes", {"a": "1"})])
        self.assertEqual(host.metrics, [Measured("counter", "orders", {"kind": "x"}, 2)])


def guest_of(handler: Callable[[Call], Any]) -> type[Guest]:
    class One(Guest):
        @call
        def run(self, call: Call) -> Any:
            return handler(call)

    return One


def raiser(error: Exception) -> Callable[[Call], Any]:
    def handler(_: Call) -> Any:
        raise error

    return handler
