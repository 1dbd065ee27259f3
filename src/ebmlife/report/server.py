"""Serves the live report of a run to this computer. It has a few fixed addresses and serves no files.

Every request is answered, and none can block the others forever: reading and answering have time limits, the number of
connections is limited, and while a new page takes long to render, requests get the previous one.
"""

import io
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ebmlife.errors import BadInput, shown
from ebmlife.report.connections import Connections, Timed, is_own, linger
from ebmlife.report.contents import read_contents
from ebmlife.report.notes import reason
from ebmlife.report.page import Page, render
from ebmlife.report.trials import Refused, Trials
from ebmlife.report.uploads import LARGEST, TrialSettings

_FRESH = 1.0  # seconds for which a page is not rendered again
_PATIENCE = 15.0  # seconds that a request waits for a page that is being rendered
_HEADING, _SENDING, _ANSWERING, _ENDING = 10.0, 60.0, 60.0, 2.0  # seconds for headers, body, answer, the client's end
_HEAD = 2**18  # bytes of the request line and the headers
_CONNECTIONS = 32  # at a time, each of which may hold an upload in memory
_NOTHING = "default-src 'none'; frame-ancestors 'none'"  # policy of answers other than the page
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """Serves the report of `run`. With `trials`, users can attack and purify their own images."""

    daemon_threads = True
    request_queue_size = 2 * _CONNECTIONS

    def __init__(
        self, run: str | Path, *, host: str = "127.0.0.1", port: int = 0, trials: Trials | None = None
    ) -> None:
        self.run, self.trials, self._lock = run, trials, threading.Lock()
        self.host, self.connections = host.lower(), Connections(_CONNECTIONS)
        self._made: tuple[float, Page] | None = None
        self.page()  # fail now if the folder holds no run
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise BadInput(f"cannot serve at {host}, port {port} ({error}); choose another --port") from error

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"

    @property
    def private(self) -> bool:
        """Whether only this computer can reach the server."""
        return ip_address(str(self.server_address[0])).is_loopback

    def page(self) -> Page:
        """Returns a page that is at most a second old, or the previous one if rendering takes too long."""
        if not self._lock.acquire(timeout=_PATIENCE):
            if self._made is None:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the page is being rendered; try again")
            return self._made[1]
        try:
            if self._made is None or time.monotonic() - self._made[0] > _FRESH:
                form = None if self.trials is None else self.trials.form
                page = render([read_contents(self.run)], live=True, form=form)
                self._made = time.monotonic(), page
            return self._made[1]
        finally:
            self._lock.release()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.connections.admit(request):
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.setblocking(False)
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\n\r\n")
            self.close_request(request)

    def shutdown_request(self, request: Any) -> None:
        self.connections.mark_read(request, complete=False)
        linger(request, seconds=_ENDING, most=LARGEST)
        self.connections.leave(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints an error of the server in one line, and nothing if the client has left."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):
            print(f"ebmlife: a request failed: {shown(reason(error), 300)}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    connection: socket
    server_version, sys_version = "ebmlife", ""
    default_request_version = "HTTP/1.0"
    request_version, requestline, command = default_request_version, "", ""  # before they are read
    raw_requestline = b""
    _answered = False

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reading = Timed(self.connection, seconds=_HEADING, most=_HEAD)
        self.rfile = io.BufferedReader(self._reading)

    def handle(self) -> None:
        super().handle()  # one request: HTTP/1.0
        if self._reading.late and not self._answered:
            self._refuse(Refused(HTTPStatus.REQUEST_TIMEOUT, "the request is incomplete"))
        elif self.raw_requestline and not self._answered:
            self._refuse(Refused(HTTPStatus.BAD_REQUEST, "the request is empty"))

    def do_GET(self) -> None:
        self._answer({"": self._page, "sections.json": self._sections, "trial/": self._state})

    def do_POST(self) -> None:
        self._answer({"trial": self._begin, "trial/": self._cancel}, body=True)

    def _answer(self, routes: dict[str, Callable[[str, bytes], None]], *, body: bool = False) -> None:
        """Calls the route of the path, or that of its first part with the rest as argument."""
        try:
            sent = self._body() if body else b""  # read first: a browser reads no answer before it has sent everything
            self.server.connections.mark_read(self.connection)
            self._check_origin()
            first, slash, rest = self._address().path.removeprefix("/").partition("/")
            route = routes.get(first + slash)
            if route is None:
                raise Refused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
            route(rest, sent)
        except Refused as refusal:
            self._refuse(refusal)
        except BadInput as error:
            self._refuse(Refused(HTTPStatus.BAD_REQUEST, shown(str(error), 500)))
        except OSError:
            raise  # the client has gone
        except Exception as error:  # an error of the server
            self._refuse(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, shown(reason(error), 500)))

    def _check_origin(self) -> None:
        """Refuses requests from pages of other sites in the same browser, under any name of this host."""
        host, *others = self.headers.get_all("Host", [""])
        if others or not is_own(host, self.server.host):
            raise Refused(HTTPStatus.FORBIDDEN, "the page is served only under this computer's own address")
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(HTTPStatus.FORBIDDEN, "requests from other pages are not answered")

    def _page(self, rest: str, sent: bytes) -> None:
        page = self.server.page()
        self._send(page.encoded, "text/html; charset=utf-8", policy=f"{page.policy}; frame-ancestors 'none'")

    def _sections(self, rest: str, sent: bytes) -> None:
        page = self.server.page()
        if self._query().get("have") == page.digest:
            self._send(b"", "application/json", HTTPStatus.NO_CONTENT)
            return
        sections = [{"name": it.name, "title": it.title, "digest": it.digest, "html": it.html} for it in page.sections]
        self._send_json({"digest": page.digest, "sections": sections})

    def _begin(self, rest: str, sent: bytes) -> None:
        settings = TrialSettings.parse(self._query())
        name = self._trials().begin(sent, self.headers.get_content_type(), settings)
        self._send_json({"address": f"trial/{name}"}, HTTPStatus.ACCEPTED)

    def _state(self, rest: str, sent: bytes) -> None:
        self._send_json(self._trials().find(rest).state())

    def _cancel(self, rest: str, sent: bytes) -> None:
        self._trials().find(rest.removesuffix("/cancel")).cancel()
        self._send_json({})

    def _trials(self) -> Trials:
        if self.server.trials is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no classifier to attack: start ebmlife watch with --classifier NAME")
        return self.server.trials

    def _query(self) -> dict[str, str]:
        try:
            return dict(parse_qsl(self._address().query, max_num_fields=20))
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "the query has too many fields") from error

    def _address(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "the address is not valid") from error

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request must state the size of the image")
        size = int(text)
        self._reading.allow(seconds=_SENDING, most=4 * LARGEST)
        try:
            if size <= LARGEST:
                sent = self.rfile.read(size)
            else:
                for _ in range(min(size, 3 * LARGEST) // 2**16):  # a browser reads no answer before it has sent all
                    self.rfile.read(2**16)
        except TimeoutError as error:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the image is incomplete") from error
        if size > LARGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the file is larger than {LARGEST // 2**20} MB")
        if len(sent) < size:
            raise Refused(HTTPStatus.BAD_REQUEST, "the image is incomplete")
        return sent

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers requests that the library refuses, with our headers and without repeating the request."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._refuse(Refused(status, status.description or status.phrase))

    def _refuse(self, refusal: Refused) -> None:
        self._send_json({"error": str(refusal)}, refusal.status)

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value, allow_nan=False).encode(), "application/json", status)

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, *, policy: str = _NOTHING) -> None:
        self._answered = True
        self.request_version = self.default_request_version  # for HTTP 0.9, the library would omit the headers
        self.connection.settimeout(_ANSWERING)  # for the whole answer
        self.send_response(status)
        for name, value in (_HEADERS | {"Content-Security-Policy": policy}).items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, POST")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass
