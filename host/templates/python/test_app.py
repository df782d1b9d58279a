"""The guest against an in-memory host."""

import unittest

from app import App
from quarry_guest import QuarryError
from quarry_guest.testing import Host


class AppTest(unittest.TestCase):
    def test_counts_each_key(self) -> None:
        host = Host(App)
        for key, expected in [("a", "1"), ("a", "2"), ("b", "1")]:
            self.assertEqual(host.call("increment", key=key).text(), expected)
        self.assertEqual(host.query("get", key="a").text(), "2")

    def test_refuses_what_it_does_not_know(self) -> None:
        host = Host(App)
        for method, key, code in [("decrement", "a", "unknown-method"), ("increment", None, "missing-key")]:
            with self.assertRaises(QuarryError) as raised:
                host.call(method, key=key)
            self.assertEqual(raised.exception.code, code)
