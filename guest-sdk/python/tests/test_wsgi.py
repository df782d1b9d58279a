"""Guests with `wsgi` against the in-memory host."""

from __future__ import annotations

import unittest
from typing import Any, Callable
from wsgiref.validate import validator

from quarry_guest import Call, Guest, QuarryError, call, context, db
from quarry_guest import _guest
from quarry_guest.testing import Host, Limits

Start = Callable[..., Any]


def counting(environ: dict[str, Any], start_response: Start) -> list[bytes]:
    count = int(db.get_text("count") or 0) + 1
    db.put("count", str(count))
    start_response("201 Created", [("Content-Type", "text/plain")])
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    return [f"{count} {context.shard()} ".encode(), body]


def guest_of(application: Any) -> type[Guest]:
    class Web(Guest):
        wsgi = staticmethod(application)

        @call
        def add(self, call: Call) -> int:
            count = int(db.get_text("count") or 0) + 1
            db.put("count", str(count))
            return count

    return Web


def seen(host: Host, *args: Any, **more: Any) -> dict[str, Any]:
    return host.http(*args, **more).json()


class Test(unittest.TestCase):
    def test_an_application_answers_over_the_database_of_the_calls(self) -> None:
        host = Host(guest_of(counting), shards=8, shard=5)
        self.assertEqual(host.call("add").text(), "1")
        answer = host.http("POST", "/", body="body")
        self.assertEqual((answer.status, answer.text(), answer.header("content-type")), (201, "2 5 body", "text/plain"))
        self.assertEqual(host.call("add").text(), "3")
        # What was not durable is gone with a crash, as after a call.
        host.crash()
        self.assertEqual(host.http("GET", "/").text(), "1 5 ")

    def test_it_keeps_to_the_standard(self) -> None:
        host = Host(guest_of(validator(lambda environ, start: start("200 OK", [("Content-Type", "text/plain")]) and [] or [b"ok"])))
        headers = {"accept": "*/*", "content-type": "text/plain", "x-forwarded-prefix": "/http/key/a"}
        for method, target in [("GET", "/"), ("POST", "/a?b=c"), ("DELETE", "/%C3%A4//")]:
            answer = host.http(method, target, headers=headers, body=b"x")
            self.assertEqual((answer.status, answer.text()), (200, "ok"), host.logs)

    def test_an_application_sees_the_request(self) -> None:
        import json

        def show(environ: dict[str, Any], start: Start) -> list[bytes]:
            start("200 OK", [])
            return [json.dumps({name: value for name, value in environ.items() if isinstance(value, str)}).encode()]

        host = Host(guest_of(show))
        headers = {"X-Forwarded-Prefix": "/http/key/a%20b", "Content-Type": "a/b", "X-A_B": "no", "x-any": "yes", "content-length": "9"}
        found = seen(host, "PUT", "/%C3%A4/b%2Fc?d=%C3%A4&e", headers=headers, body=b"abc", scheme="https")
        for name, value in {
            "REQUEST_METHOD": "PUT",
            "SCRIPT_NAME": "/http/key/a b",
            "PATH_INFO": "/Ã¤/b/c",
            "QUERY_STRING": "d=%C3%A4&e",
            "CONTENT_TYPE": "a/b",
            "CONTENT_LENGTH": "3",
            "SERVER_NAME": "guest.test",
            "SERVER_PORT": "443",
            "HTTP_HOST": "guest.test",
            "HTTP_X_ANY": "yes",
            "wsgi.url_scheme": "https",
        }.items():
            self.assertEqual(found[name], value, name)
        # It would pass for the header `x-a-b`, which a proxy may vouch for.
        self.assertNotIn("HTTP_X_A_B", found)

    def test_whatever_is_raised_is_a_500_with_its_text_in_the_log(self) -> None:
        def late(environ: dict[str, Any], start: Start) -> Any:
            start("200 OK", [])
            yield b"half"
            raise ValueError("late")

        def twice(environ: dict[str, Any], start: Start) -> list[bytes]:
            start("200 OK", [])
            start("200 OK", [])
            return []

        for application, why in [
            (raiser(ValueError("plain")), "plain"),
            (raiser(QuarryError("mine", "told")), "told"),
            (raiser(SystemExit(3)), "SystemExit"),
            (late, "late"),
            (twice, "start_response is called once"),
            (lambda environ, start: [b"x"], "did not call start_response"),
            (lambda environ, start: start("what", []) or [], "invalid literal"),
            (lambda environ, start: start("200 OK", []) and ["text"], "bytes-like"),
        ]:
            host = Host(guest_of(application))
            answer = host.http("GET", "/")
            self.assertEqual((answer.status, answer.text()), (500, "the guest failed; its log says how\n"), why)
            self.assertEqual([line.level for line in host.logs], ["error"], why)
            self.assertIn(why, host.logs[0].message)

    def test_an_error_page_takes_the_place_of_what_was_begun(self) -> None:
        def application(environ: dict[str, Any], start: Start) -> list[bytes]:
            start("200 OK", [("x-a", "1")])
            start("418 I'm a teapot", [], (ValueError, ValueError("x"), None))
            return [b"tea"]

        answer = Host(guest_of(application)).http("GET", "/")
        self.assertEqual((answer.status, answer.headers, answer.body), (418, [], b"tea"))

    def test_bodies_are_closed_and_left_out_where_there_is_none(self) -> None:
        closed: list[str] = []

        class Body:
            def __init__(self, status: str) -> None:
                self.status = status

            def __iter__(self) -> Any:
                return iter([b"a", b"b"])

            def close(self) -> None:
                closed.append(self.status)

        def application(environ: dict[str, Any], start: Start) -> Body:
            status = environ["QUERY_STRING"]
            write = start(f"{status} x", [("content-length", "3")])
            write(b"0")
            return Body(status)

        host = Host(guest_of(application), limits=Limits(reply=3))
        for method, status, body in [("GET", "200", b"0ab"), ("HEAD", "200", b""), ("GET", "204", b""), ("GET", "304", b"")]:
            answer = host.http(method, f"/?{status}")
            self.assertEqual((answer.status, answer.body), (int(status), body))
            self.assertEqual(answer.header("Content-Length"), "3")
        self.assertEqual(closed, ["200", "200", "204", "304"])
        with self.assertRaises(QuarryError) as raised:
            Host(guest_of(application), limits=Limits(reply=2)).http("GET", "/?200")
        self.assertEqual(raised.exception.code, "guest-reply-limit")

    def test_a_method_may_be_the_application(self) -> None:
        class Web(Guest):
            def wsgi(self, environ: dict[str, Any], start: Start) -> list[bytes]:
                start("200 OK", [])
                return [type(self).__name__.encode()]

        self.assertEqual(Host(Web).http("GET", "/").text(), "Web")
        self.assertEqual(_guest.interfaces(Web), [])

    def test_a_guest_may_answer_http_alone(self) -> None:
        class Web(Guest):
            wsgi = staticmethod(counting)

        self.addCleanup(setattr, _guest, "_exported", list(_guest._exported))
        _guest._exported.clear()
        self.assertIs(_guest.export(Web), Web)

    def test_what_has_no_wsgi_answers_no_requests(self) -> None:
        with self.assertRaises(QuarryError) as raised:
            Host(Guest).http("GET", "/")
        self.assertEqual(raised.exception.code, "no-http")


def raiser(error: BaseException) -> Any:
    def application(environ: dict[str, Any], start: Start) -> list[bytes]:
        raise error

    return application


if __name__ == "__main__":
    unittest.main()
