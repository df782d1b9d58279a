"""HTTP requests of a guest with `wsgi`, which is a WSGI application (PEP 3333), such as one of Flask or Bottle."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from typing import Any, Callable, Iterable
from urllib.parse import unquote_to_bytes, urlsplit

from . import log
from .codec import from_json, text

#: A WSGI application.
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    """A request, whole. Values of headers are text of the characters U+0000 to U+00FF, a byte each, as WSGI has them."""

    method: str
    #: Path and query.
    target: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    scheme: str = "http"
    #: The host, and the port where there is one, as the client named them.
    authority: str = "localhost"


@dataclass(frozen=True)
class Answer:
    """What an application answers, whole."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def text(self) -> str:
        """The body as text."""
        return text(self.body)

    def json(self) -> Any:
        """The body as JSON."""
        return from_json(self.body)

    def header(self, name: str) -> str | None:
        """The first header of a name."""
        return next((value for found, value in self.headers if found.lower() == name.lower()), None)


def answered(application: Callable[[], Application], request: Request) -> Answer:
    """What an application, which a function gives, answers. What it raises becomes a 500, and its traceback goes to the log."""
    try:
        return _run(application(), request)
    except (Exception, SystemExit) as error:
        return failed(error)


def failed(error: BaseException) -> Answer:
    """The answer for a request that a guest, or what is around it, failed."""
    log.error("".join(traceback.format_exception(error)).rstrip())
    return Answer(500, [("content-type", "text/plain; charset=utf-8")], b"the guest failed; its log says how\n")


def environ(request: Request) -> dict[str, Any]:
    """The environment of a request. `SCRIPT_NAME` is what the host took off the path, so that a framework's own links lead back to it."""
    path, _, query = request.target.partition("?")
    server = urlsplit(f"//{request.authority}")
    made: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": _unquoted(path),
        "QUERY_STRING": query,
        "SERVER_NAME": server.hostname or "localhost",
        "SERVER_PORT": str(_port(server.netloc) or {"http": 80}.get(request.scheme, 443)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": request.authority,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in request.headers:
        # Two headers would be one variable, and only this one is of a proxy that is to be trusted.
        if "_" in name:
            continue
        name = name.lower()
        if name == "x-forwarded-prefix":
            made["SCRIPT_NAME"] = _unquoted(value)
        plain = name in ("content-type", "content-length")
        key = name.upper().replace("-", "_") if plain else "HTTP_" + name.upper().replace("-", "_")
        separator = "; " if name == "cookie" else ","
        made[key] = f"{made[key]}{separator}{value}" if key in made and key != "HTTP_HOST" else value
    # The body is whole, however it came.
    made["CONTENT_LENGTH"] = str(len(request.body))
    return made


def _run(application: Application, request: Request) -> Answer:
    begun: list[tuple[int, list[tuple[str, str]]]] = []
    parts: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        # Nothing has left yet, so that an error page may still take the place of what was begun.
        if begun and exc_info is None:
            raise AssertionError("start_response is called once, or again with exc_info")
        begun[:] = [(int(status.split(" ", 1)[0]), list(headers))]
        return parts.append

    body = application(environ(request), start_response)
    try:
        parts.extend(body)
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()
    if not begun:
        raise AssertionError("the application did not call start_response")
    (status, headers), whole = begun[0], b"".join(parts)
    return Answer(status, headers, b"" if request.method == "HEAD" or status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED) else whole)


def _unquoted(path: str) -> str:
    return unquote_to_bytes(path).decode("latin-1")


def _port(netloc: str) -> int | None:
    port = netloc.rpartition("]")[2].rpartition(":")[2] if ":" in netloc else ""
    return int(port) if port.isascii() and port.isdigit() else None
