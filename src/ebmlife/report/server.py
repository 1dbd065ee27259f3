"""The page of a run, served live to this computer. Its few addresses are all there is: no file can be asked for."""

import json
import secrets
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ebmlife.errors import BadInput
from ebmlife.report.gather import gather
from ebmlife.report.page import Page, render
from ebmlife.report.trial import Defence, Trial
from ebmlife.report.uploads import LARGEST, Form, Wish, decoded

_FRESH = 1.0  # seconds for which a page is not made anew
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Desk:
    """Takes images, one at a time, and keeps the trial under way or the last one."""

    def __init__(self, defence: Defence, form: Form) -> None:
        self.form, self._defence, self._lock = form, defence, threading.Lock()
        self._name = ""
        self._trial: Trial | None = None

    def begin(self, body: bytes, kind: str, wish: Wish) -> str:
        """The name of a new trial."""
        x = decoded(body, kind=kind, shape=self._defence.shape)
        with self._lock:
            if self._trial is not None and not self._trial.over:
                raise Refused(HTTPStatus.CONFLICT, "another image is being tried; wait for it or cancel it")
            self._name, self._trial = secrets.token_hex(8), Trial(self._defence, x, wish)
            return self._name

    def find(self, name: str) -> Trial:
        if self._trial is None or name != self._name:
            raise Refused(HTTPStatus.NOT_FOUND, "this trial is not there any more")
        return self._trial


class PageServer(ThreadingHTTPServer):
    """Serves the page of `run`; with a desk, images can be tried on it."""

    daemon_threads = True

    def __init__(self, run: str | Path, *, host: str = "127.0.0.1", port: int = 0, desk: Desk | None = None) -> None:
        self.run, self.desk, self._lock = run, desk, threading.Lock()
        self.host = host.lower()
        self._made: tuple[float, Page] | None = None
        self.page()  # a folder that is no run is said now
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
        """Whether only this computer can reach it."""
        return ip_address(str(self.server_address[0])).is_loopback

    def called(self, host: str | None) -> bool:
        """Whether it is this server's name, or an IP number; another name may be a stranger's that points here."""
        return host in ("localhost", self.host, gethostname().lower()) or _is_number(host)

    def page(self) -> Page:
        with self._lock:
            if self._made is None or time.monotonic() - self._made[0] > _FRESH:
                form = None if self.desk is None else self.desk.form
                self._made = time.monotonic(), render([gather(self.run)], live=True, form=form)
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "ebmlife", ""
    timeout = 30  # seconds that a client may be silent

    def do_GET(self) -> None:
        self._answer({"": self._page, "sections.json": self._sections, "trial/": self._state})

    def do_POST(self) -> None:
        self._answer({"trial": self._begin, "trial/": self._cancel}, body=True)

    def _answer(self, routes: dict[str, Callable[[str, bytes], None]], *, body: bool = False) -> None:
        """The route of the path itself, or of its first part with what follows it."""
        try:
            sent = self._body() if body else b""  # read before anything is refused, or the answer would be lost
            self._check_origin()
            first, slash, rest = self._address().path.removeprefix("/").partition("/")
            route = routes.get(first + slash)
            if route is None:
                raise Refused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
            route(rest, sent)
        except Refused as refusal:
            self._send_json({"error": str(refusal)}, refusal.status)
        except BadInput as error:
            self._send_json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the client has gone

    def _check_origin(self) -> None:
        """Other sites' pages, open in the same browser, must reach nothing here, whatever name they give this host."""
        host = self.headers.get("Host", "")
        if not self.server.called(_hostname(host)):
            raise Refused(HTTPStatus.FORBIDDEN, "this page is only served under this computer's own address")
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(HTTPStatus.FORBIDDEN, "this page answers no other page")

    def _page(self, rest: str, sent: bytes) -> None:
        self._send(self.server.page().html.encode(), "text/html; charset=utf-8")

    def _sections(self, rest: str, sent: bytes) -> None:
        page = self.server.page()
        if self._query().get("have") == page.digest:
            self._send(b"", "application/json", HTTPStatus.NO_CONTENT)
            return
        sections = [{"name": it.name, "title": it.title, "digest": it.digest, "html": it.html} for it in page.sections]
        self._send_json({"digest": page.digest, "sections": sections})

    def _begin(self, rest: str, sent: bytes) -> None:
        wish = Wish.parse(self._query())
        name = self._desk().begin(sent, self.headers.get_content_type(), wish)
        self._send_json({"address": f"trial/{name}"}, HTTPStatus.ACCEPTED)

    def _state(self, rest: str, sent: bytes) -> None:
        self._send_json(self._desk().find(rest).state())

    def _cancel(self, rest: str, sent: bytes) -> None:
        self._desk().find(rest.removesuffix("/cancel")).cancel()
        self._send_json({})

    def _desk(self) -> Desk:
        if self.server.desk is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no image can be tried here: add --classifier NAME to ebmlife watch")
        return self.server.desk

    def _query(self) -> dict[str, str]:
        try:
            return dict(parse_qsl(self._address().query, max_num_fields=20))
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "too much is asked for") from error

    def _address(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "this is no address") from error

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the size of the image must be said")
        size = int(text)
        if size <= LARGEST:
            return self.rfile.read(size)
        for _ in range(min(size, 4 * LARGEST) // 2**16):  # a browser reads no answer before it has sent all
            self.rfile.read(2**16)
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the file is larger than {LARGEST // 2**20} MB")

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value, allow_nan=False).encode(), "application/json", status)

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _is_number(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
