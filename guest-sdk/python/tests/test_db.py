"""The database of the in-memory host, through the SDK."""

from __future__ import annotations

import unittest
from typing import Any, Callable

from quarry_guest import QuarryError, codec, context, db
from quarry_guest._testing.xxh64 import xxh64
from quarry_guest.testing import Host, HostError, Limits


class Test(unittest.TestCase):
    def fails(self, code: str, body: Callable[[], object], message: str = "") -> None:
        with self.assertRaises(QuarryError) as raised:
            body()
        self.assertEqual(raised.exception.code, code, message)
        self.assertIn(message, raised.exception.message)

    def test_scans_go_both_ways_and_end_early(self) -> None:
        def body() -> None:
            for key in ("a/1", "a/2", "a/ÿ", "b"):
                db.put(key, key)
            for scan, wanted in [
                ({"prefix": "a/"}, "a/1 a/2 a/ÿ"),
                ({"reverse": True, "page_length": 1}, "b a/ÿ a/2 a/1"),
                ({"start": "a/2", "end": "b"}, "a/2 a/ÿ"),
                ({"start": "c", "end": "a"}, ""),
            ]:
                self.assertEqual(" ".join(key for key, _ in db.scan(**scan).text()), wanted)
            for _ in range(200):
                with db.scan() as cursor:
                    next(cursor)
            cursor = db.scan()
            db.put("c", "")
            self.assertEqual(len(list(cursor)), 4)
            self.fails("invalid-argument", lambda: db.scan(prefix="a", end="b"), "not both")
            self.fails("invalid-argument", lambda: db.scan(page_length=0))

        Host().run(body)

    def test_what_is_open_ends_with_its_call_and_is_bounded(self) -> None:
        host = Host()
        cursor, view = host.run(lambda: (db.scan(), db.snapshot()))
        self.fails("closed", lambda: host.run(lambda: list(cursor)))
        self.fails("closed", lambda: host.run(lambda: view.get("a")))
        self.fails("limit", lambda: host.run(lambda: [db.snapshot() for _ in range(65)]), "open_resources")

    def test_a_transaction_is_all_or_nothing_and_begins_again(self) -> None:
        host, attempts = Host(), []

        def again(tx: db.Transaction) -> str | None:
            before = tx.get_text("n")
            attempts.append(before)
            if len(attempts) < 3:
                db.put("n", str(len(attempts)))
            tx.put("n", f"{before}!")
            self.assertEqual(list(tx.scan().text()), [("n", f"{before}!")])
            return before

        self.assertEqual(host.run(lambda: db.transaction(again)), "2")
        self.assertEqual(attempts, [None, "1", "2"])

        def broken() -> None:
            with db.begin() as tx:
                tx.put("n", "x")
                raise ValueError("no")

        self.fails("exception", lambda: host.run(broken))
        self.assertEqual(host.run(lambda: db.get_text("n")), "2!")

        def reading(tx: db.Transaction) -> None:
            tx.get("read")
            db.put("read", "1")
            tx.put("other", "1")

        self.fails("conflict", lambda: host.run(lambda: db.transaction(reading)), "what it read")
        host.run(lambda: db.transaction(reading, isolation="snapshot"))
        self.fails("invalid-argument", lambda: host.run(lambda: db.transaction(reading, isolation="none")))

        def old() -> None:
            with db.begin() as tx:
                host.advance(10_001)
                tx.get("a")

        self.fails("limit", lambda: host.run(old), "transaction_age")

    def test_a_snapshot_keeps_its_moment(self) -> None:
        def body() -> None:
            db.put("a", "1")
            with db.snapshot() as view:
                db.Batch().put("a", "2").put("b", "3").remove("none").write()
                self.assertEqual((view.get_text("a"), view.get_text("b"), view.seq), ("1", None, 1))
            self.fails("closed", lambda: view.get("a"))

        Host().run(body)

    def test_values_expire(self) -> None:
        host = Host()
        host.run(lambda: db.put("a", "1", ttl_ms=10))
        host.advance(9)
        self.assertIsNotNone(host.run(lambda: db.get_versioned("a").expires_at))
        host.advance(1)
        self.assertIsNone(host.run(lambda: db.get("a")))

    def test_operands_merge(self) -> None:
        for operator, operands, wanted in [
            ("u64-add", [codec.u64.value(2**64 - 1), codec.u64.value(3)], codec.u64.value(2)),
            ("i64-min", [codec.i64.value(5), codec.i64.value(-7)], codec.i64.value(-7)),
            ("i64-max", [codec.i64.value(-5), codec.i64.value(-7)], codec.i64.value(-5)),
            ("append", [b"a", b"b"], b"ab"),
        ]:

            def body(operands: list[Any] = operands) -> bytes | None:
                for operand in operands:
                    db.merge("k", operand)
                return db.get("k")

            self.assertEqual(Host(merge_operator=operator).run(body), wanted)
        self.fails("no-merge-operator", lambda: Host().run(lambda: db.merge("k", "x")))
        self.fails("invalid-value", lambda: Host(merge_operator="u64-add").run(lambda: db.merge("k", "x")))

    def test_limits_have_their_names(self) -> None:
        host = Host(limits=Limits(key=10, value=20, batch=160, get_many=2))
        for code, use in [
            ("invalid-key", lambda: db.get("")),
            ("invalid-key", lambda: db.put("k" * 11, "")),
            ("invalid-value", lambda: db.put("k", "v" * 21)),
            ("invalid-argument", lambda: db.Batch().write()),
            ("limit", lambda: db.Batch().put("k", "v" * 20).put("l", "v" * 20).write()),
            ("limit", lambda: db.get_many(["a", "b", "c"])),
            ("invalid-argument", lambda: db.get_many("abc")),
            ("invalid-argument", lambda: db.get_many(5)),
            ("invalid-argument", lambda: db.get("\ud800")),
            ("invalid-argument", lambda: db.scan(page_length="9")),
            ("invalid-argument", lambda: db.put("k", "v", ttl_ms=0)),
            ("invalid-argument", lambda: db.put("k", "v", ttl_ms=-1)),
            ("invalid-argument", lambda: db.put("k", 5)),
            ("invalid-argument", lambda: db.put(None, "v")),
        ]:
            self.fails(code, lambda: host.run(use))

    def test_integers_as_keys_sort_and_come_back(self) -> None:
        numbers = [-(2**63), -1, 0, 1, 255, 256, 2**63 - 1]
        keys = [codec.i64.key(number) for number in numbers]
        self.assertEqual(sorted(keys), keys)
        self.assertEqual([codec.i64.from_key(key) for key in keys], numbers)
        self.assertEqual((codec.u32.key(258), codec.u32.value(258)), (b"\0\0\1\2", b"\2\1\0\0"))
        for number in (2**32, -1, 1.5, "1"):
            self.fails("invalid-argument", lambda: codec.u32.key(number))
        self.fails("invalid-data", lambda: codec.u32.from_value(b"1"))

    def test_without_a_host_everything_says_so(self) -> None:
        self.fails("closed", lambda: db.get("a"), "no host runs here")
        with self.assertRaisesRegex(HostError, "no host runs here"):
            context.shard()

    def test_a_fenced_guest_cannot_read(self) -> None:
        host = Host()
        host.fence()
        self.fails("fenced", lambda: host.run(lambda: db.get("a")))

    def test_keys_belong_to_the_shards_that_the_host_says(self) -> None:
        for data, wanted in [
            (b"", 0xEF46DB3751D8E999),
            (b"a", 0xD24EC4F1A98C6E5B),
            (b"abc", 0x44BC2CF5AD770999),
            (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        ]:
            self.assertEqual(xxh64(data), wanted, data)
