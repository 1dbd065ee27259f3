"""What the live page answers, and above all what it refuses: other files, other sites, names and sizes."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from ebmlife.errors import BadInput
from ebmlife.report.server import PageServer
from ebmlife.report.trials import Trials
from ebmlife.report.uploads import LARGEST, Form
from report.test_trial import defense
from report.test_uploads import encoded

WISH = "radius=8&steps=2&langevin=5&attacker=transfer"


@contextmanager
def serving(run: Path, **options: Any) -> Iterator[PageServer]:
    with PageServer(run, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def trials() -> Trials:
    return Trials(defense(), Form("Brightness", (1, 4, 4), langevin=5))


@pytest.fixture
def server(run: Path, trials: Trials) -> Iterator[PageServer]:
    with serving(run, trials=trials) as it:
        yield it


def ask(
    server: PageServer, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, Any, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        content = answer.read()
        found = json.loads(content) if content and "json" in answer.headers["Content-Type"] else content
        return answer.status, found, answer.headers
    finally:
        connection.close()


def picture() -> bytes:
    return encoded(Image.new("L", (4, 4), color=130))


def tried(server: PageServer, query: str = WISH, **headers: str) -> tuple[int, Any]:
    status, found, _ = ask(server, f"/trial?{query}", method="POST", body=picture(), **(PNG_HEADER | headers))
    return status, found


PNG_HEADER = {"Content_Type": "image/png"}


def test_the_page_comes_with_headers_that_keep_it_to_itself(server: PageServer) -> None:
    status, page, headers = ask(server, "/")
    assert status == 200
    assert page.startswith(b"<!doctype html>")
    assert b"data-live=" in page
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/recipe.json",
        "/log.jsonl",
        "/../tiny/recipe.json",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/page/",
        "/sections.json/",
        "/static/page.css",
        "/trial",
        "file:///etc/passwd",
    ],
)
def test_there_is_nothing_else_to_be_had(server: PageServer, path: str) -> None:
    status, found, _ = ask(server, path)
    assert (status, set(found)) == (404, {"error"})


def test_nothing_can_be_changed(server: PageServer, run: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}

    before = contents()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(server, "/recipe.json", method=method, body=b"{}")[0] == 405
    assert ask(server, "/recipe.json", method="POST", body=b"{}")[0] == 404
    assert ask(server, "/")[0] == 200
    assert contents() == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8750", "127.0.0.1.evil.example", "", "[::1", "a b"])
def test_a_foreign_host_name_that_points_here_is_refused(server: PageServer, host: str) -> None:
    assert ask(server, "/", Host=host)[0] == 403
    status, _ = tried(server, Host=host, Origin=f"http://{host}")
    assert status == 403
    assert server.trials is not None
    assert server.trials._trial is None


@pytest.mark.parametrize("host", ["localhost:8750", "127.0.0.1:8750", "[::1]:8750", "LOCALHOST"])
def test_this_computers_own_names_do(server: PageServer, host: str) -> None:
    assert ask(server, "/", Host=host)[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil"])
def test_other_sites_can_ask_for_nothing(server: PageServer, origin: str) -> None:
    assert tried(server, Origin=origin) == (403, {"error": "requests from other pages are not answered"})
    assert ask(server, "/sections.json", Origin=origin)[0] == 403
    assert server.trials is not None
    assert server.trials._trial is None


def test_only_this_computer_is_served_unless_it_is_asked_for(run: Path) -> None:
    with serving(run) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert server.private
    with serving(run, host="0.0.0.0") as server:
        assert not server.private
        assert ask(server, "/", Host="192.0.2.7:8750")[0] == 200
        assert ask(server, "/", Host="evil.example")[0] == 403


def test_sections_come_only_when_they_have_changed(server: PageServer, run: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("ebmlife.report.server._FRESH", 0.0)
    _, first, _ = ask(server, "/sections.json?have=")
    assert [it["name"] for it in first["sections"]][:3] == ["about", "life", "samples"]
    assert ask(server, f"/sections.json?have={first['digest']}")[0] == 204
    lines = (run / "log.jsonl").read_text().splitlines()
    grown = json.loads(lines[-1]) | {"update": 13}
    (run / "log.jsonl").write_text("\n".join([*lines, json.dumps(grown)]) + "\n")
    status, second, _ = ask(server, f"/sections.json?have={first['digest']}")
    assert status == 200
    old = {it["name"]: it["digest"] for it in first["sections"]}
    changed = {it["name"] for it in second["sections"] if it["digest"] != old[it["name"]]}
    assert changed == {"about", "training"}


def test_an_image_is_tried_and_nothing_of_it_is_written(server: PageServer, run: Path) -> None:
    before = sorted(run.rglob("*"))
    status, found = tried(server)
    assert status == 202
    deadline = time.monotonic() + 60
    while not (state := ask(server, f"/{found['address']}")[1])["over"]:
        assert time.monotonic() < deadline
    assert not state["failed"]
    assert state["purified"]["image"].startswith("data:image/png;base64,")
    assert sorted(run.rglob("*")) == before


def test_one_image_at_a_time_and_it_can_be_canceled(server: PageServer, trials: Trials) -> None:
    gate = threading.Event()

    def held(x: torch.Tensor) -> torch.Tensor:
        gate.wait(30)
        return x.square().flatten(1).sum(1)

    trials._defense = defense(energy=held)
    _, found = tried(server)
    status, refused = tried(server)
    assert (status, refused["error"]) == (409, "another trial is running; wait for it or cancel it")
    assert ask(server, f"/{found['address']}/cancel", method="POST", body=b"")[0] == 200
    gate.set()
    assert trials._trial is not None
    trials._trial.thread.join(30)
    assert ask(server, f"/{found['address']}")[1]["message"] == "Canceled."
    assert ask(server, "/trial/0000")[0] == 404


def test_without_a_classifier_nothing_can_be_tried(run: Path) -> None:
    with serving(run) as server:
        status, found = tried(server)
        assert status == 404
        assert "--classifier NAME" in found["error"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (WISH.replace("radius=8", "radius=999"), "radius must be a whole number from 0 to 64"),
        ("", "radius must be a whole number from 0 to 64"),
        ("&".join("abcdefghijklmnopqrstuvwxyz"), "the query has too many fields"),
    ],
)
def test_invalid_settings_get_a_line(server: PageServer, query: str, said: str) -> None:
    assert tried(server, query) == (400, {"error": said})


def test_broken_and_large_uploads_get_a_line(server: PageServer) -> None:
    def sent(body: bytes, kind: str = "image/png") -> tuple[int, str]:
        status, found, _ = ask(server, f"/trial?{WISH}", method="POST", body=body, Content_Type=kind)
        return status, found["error"]

    assert sent(b"broken") == (400, "this file cannot be read as a PNG image; it may be damaged")
    assert sent(b"<svg/>", "image/svg+xml") == (400, "the image must be one of PNG, JPEG, WEBP, BMP")
    assert sent(bytes(LARGEST + 1)) == (413, "the file is larger than 8 MB")


def raw(server: PageServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(2**16), b""))


@pytest.mark.parametrize("length", [b"", b"Content-Length: -5\r\n", b"Content-Length: " + b"9" * 5000 + b"\r\n"])
def test_bodies_of_no_known_size_are_not_read(server: PageServer, length: bytes) -> None:
    request = b"POST /trial HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n"
    assert raw(server, request).startswith(b"HTTP/1.0 411 ")


def test_what_is_no_address_gets_an_answer_too(server: PageServer) -> None:
    assert raw(server, b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.0 400 ")


def test_mistakes_are_said_before_anything_is_served(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no recipe\.json"):
        PageServer(tmp_path)
    with serving(run) as server, pytest.raises(BadInput, match="choose another --port"):
        PageServer(run, port=server.server_address[1])
    with pytest.raises(BadInput, match="choose another --port"):
        PageServer(run, port=70_000)
