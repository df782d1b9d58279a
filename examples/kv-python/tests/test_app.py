"""The store against the in-memory host."""

import json
import unittest

from app import Kv
from quarry_guest import QuarryError
from quarry_guest.testing import Host


def host_with(*keys: str) -> Host:
    host = Host(Kv)
    for key in keys:
        host.call("put", key=key, payload=f"value of {key}")
    return host


class KvTest(unittest.TestCase):
    def fails(self, code: str, *args: object, **kwargs: object) -> QuarryError:
        with self.assertRaises(QuarryError) as raised:
            args[0](*args[1:], **kwargs)  # type: ignore[operator]
        self.assertEqual(raised.exception.code, code, args[1:])
        return raised.exception

    def test_puts_gets_and_deletes(self) -> None:
        host = Host(Kv)
        put = host.call("put", key="a", payload=b"\x00\xff")
        self.assertEqual(put.text(), str(put.seq))
        self.assertEqual(host.call("get", key="a").payload, b"\x00\xff")
        self.assertEqual(host.query("get", key="a").payload, b"\x00\xff")
        delete = host.call("delete", key="a")
        self.assertGreater(delete.seq, put.seq)
        self.assertEqual(self.fails("not-found", host.query, "get", key="a").message, "there is no key `a`")
        host.call("put", key="empty")
        self.assertEqual(host.call("get", key="empty").payload, b"")

    def test_scans(self) -> None:
        host = host_with("a/1", "a/2", "b/1", "b/2")
        for scan, wanted in [
            ({}, "a/1 a/2 b/1 b/2"),
            ({"prefix": "a/"}, "a/1 a/2"),
            ({"prefix": "a/", "reverse": True, "limit": 1}, "a/2"),
            ({"start": "a/2"}, "a/2 b/1 b/2"),
            ({"start": "a/2", "end": "b/2"}, "a/2 b/1"),
            ({"end": "b/1", "reverse": True}, "a/2 a/1"),
            ({"start": "c", "end": "a"}, ""),
            ({"prefix": "none"}, ""),
        ]:
            for ask in (host.call, host.query):
                reply = ask("scan", json=scan)
                keys = [json.loads(line)["key"] for line in reply.text().splitlines()]
                self.assertEqual(" ".join(keys), wanted, scan)
                self.assertEqual(reply.content_type, "application/jsonl")
        self.assertEqual(host.call("scan").text().splitlines()[0], '{"key":"a/1","value":"value of a/1"}')

    def test_scans_bytes_as_base64(self) -> None:
        host = Host(Kv)
        host.call("put", key=b"\xff", payload=b"\x80")
        self.assertEqual(host.query("scan").text(), '{"key_base64":"/w==","value_base64":"gA=="}\n')

    def test_ends_a_scan_at_its_limits(self) -> None:
        many = Host(Kv)
        for n in range(1_100):
            many.call("put", key=f"{n:04}")
        self.assertEqual(len(many.query("scan").text().splitlines()), 1_000)
        self.assertEqual(len(many.query("scan", json={"limit": 100_000}).text().splitlines()), 1_100)
        large = Host(Kv)
        for key in "abc":
            large.call("put", key=key, payload=b"x" * (3 << 20))
        self.assertIn("at most 2", self.fails("reply-too-large", large.query, "scan").message)
        self.assertEqual(len(large.query("scan", json={"limit": 2}).text().splitlines()), 2)

    def test_refuses_what_it_does_not_understand(self) -> None:
        host = host_with("a")
        for method, payload, code in [
            ("scan", "{", "invalid-payload"),
            ("scan", "[]", "invalid-payload"),
            ("scan", '{"limit": 0}', "invalid-payload"),
            ("scan", '{"limit": true}', "invalid-payload"),
            ("scan", '{"limit": 100001}', "invalid-payload"),
            ("scan", '{"limits": 1}', "invalid-payload"),
            ("scan", '{"prefix": "a", "start": "b"}', "invalid-payload"),
            ("scan", '{"prefix": "\\ud83d"}', "invalid-payload"),
            ("put", "value", "missing-key"),
            ("get", "", "missing-key"),
            ("delete", "", "missing-key"),
            ("copy", "", "unknown-method"),
        ]:
            self.fails(code, host.call, method, payload=payload)


if __name__ == "__main__":
    unittest.main()
