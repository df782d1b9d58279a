"""The export `wasi:http/incoming-handler` of a component. Part of no test: the build puts it beside a guest with `wsgi`.

Bodies are whole on both ways: the host keeps an answer until what it shows is durable.
"""

from __future__ import annotations

# Codecs are imported when they are first asked for, and a component has the modules alone that were imported while it was built.
import encodings.idna  # noqa: F401
import tempfile
from io import BytesIO, StringIO
from typing import Any

from componentize_py_types import Err, Ok
from wit_world.imports import streams, wasi_http_types as http

from ._component import _instance
from .wsgi import Answer, Request, answered, failed

#: What is read of a body at once.
_READ_BYTES = 1 << 20


def _in_memory(mode: str = "w+b", *_: Any, **__: Any) -> Any:
    return BytesIO() if "b" in mode else StringIO()


# A guest has no files, and frameworks put large bodies into temporary ones. The build imports this first, since they take these by name.
tempfile.TemporaryFile = tempfile.NamedTemporaryFile = _in_memory


class IncomingHandler:
    def handle(self, request: http.IncomingRequest, response_out: http.ResponseOutparam) -> None:
        try:
            answer = answered(lambda: _instance().guest.wsgi, _request(request))
            response = _response(answer)
        except Exception as error:
            answer = failed(error)
            response = _response(answer)
        # Without a body its length may be told all the same, as an answer to HEAD does.
        sink = response.body() if answer.body else None
        # The host takes what is written while this runs, but not before it has the head.
        http.ResponseOutparam.set(response_out, Ok(response))
        if sink is not None:
            _write(sink, answer.body)
            http.OutgoingBody.finish(sink, None)


def _request(incoming: http.IncomingRequest) -> Request:
    scheme = "https" if isinstance(incoming.scheme(), http.Scheme_Https) else "http"
    with incoming.headers() as fields:
        headers = [(name, value.decode("latin-1")) for name, value in fields.entries()]
    return Request(
        method=_method(incoming.method()),
        target=incoming.path_with_query() or "/",
        headers=headers,
        body=_read(incoming.consume()),
        scheme=scheme,
        authority=incoming.authority() or "localhost",
    )


def _method(method: Any) -> str:
    if isinstance(method, http.Method_Other):
        return method.value
    return type(method).__name__.removeprefix("Method_").upper()


def _read(body: http.IncomingBody) -> bytes:
    parts = []
    with body, body.stream() as stream:
        try:
            while True:
                parts.append(stream.blocking_read(_READ_BYTES))
        except Err as error:
            if not isinstance(error.value, streams.StreamError_Closed):
                raise OSError(f"the body of the request cannot be read: {error.value}") from None
    return b"".join(parts)


def _response(answer: Answer) -> http.OutgoingResponse:
    """The host's form of an answer. Raises where the host cannot take it, which is before it has any of it."""
    fields = http.Fields()
    for name, value in answer.headers:
        # The host tells the length of a body itself, and one that the application has wrong would end the instance.
        if answer.body and name.lower() == "content-length":
            continue
        try:
            fields.append(name, value.encode("latin-1"))
        except Err as error:
            raise ValueError(f"the answer cannot have the header {name!r}: {type(error.value).__name__}") from None
    response = http.OutgoingResponse(fields)
    response.set_status_code(answer.status)
    return response


def _write(sink: http.OutgoingBody, body: bytes) -> None:
    with sink.write() as stream, stream.subscribe() as ready:
        at = 0
        while at < len(body):
            room = stream.check_write()
            if room == 0:
                ready.block()
                continue
            stream.write(body[at : at + room])
            at += room
        stream.blocking_flush()
