"""Hostile files in a run, and hostile clients of its page: whatever comes, there is an answer, and no hang."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from PIL import Image
from test_cli import Capture, works
from torture.requests import requests

from ebmlife.errors import BadInput
from ebmlife.report import prepare, read_contents, render, server
from ebmlife.report.connections import Timed
from ebmlife.report.safe_files import SafeFolder
from ebmlife.report.server import PageServer
from ebmlife.report.trials import Trials
from ebmlife.report.uploads import Form
from report.conftest import CLASSIFIER
from report.test_robustness import NAME
from report.test_server import ask, serving
from report.test_trial import defense
from report.test_uploads import encoded

SECRET = "a secret of somebody else's"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A picture, a text and a folder that are no part of the run."""
    place = tmp_path / "outside"
    place.mkdir()
    Image.new("L", (8, 8), color=77).save(place / "picture.png")
    (place / "text").write_text(SECRET)
    return place


def exchanged(address: tuple[str, int], content: bytes, *, timeout: float = 60) -> bytes:
    """The whole answer to raw bytes after which nothing comes."""
    with socket.create_connection(address, timeout=timeout) as connection:
        with suppress(OSError):  # refused before all was sent
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionError):
            while part := connection.recv(2**16):
                answer += part
        return answer


def at(live: PageServer) -> tuple[str, int]:
    return "127.0.0.1", live.server_address[1]


# Files


def test_a_link_to_a_picture_elsewhere_is_not_embedded(run: Path, outside: Path) -> None:
    before = {picture.title: picture.source for picture in read_contents(run).pictures}
    (run / "pictures" / "samples-999.png").symlink_to(outside / "picture.png")
    found = read_contents(run)
    assert {picture.title: picture.source for picture in found.pictures} == before  # the newest of the run's own
    assert found.notes == ["pictures/samples-999.png is a link to something outside of the run's folder"]
    html = render([found]).html
    assert "Left out of this report" in html
    assert "pictures/samples-999.png" in html


def test_a_link_within_the_run_is_followed(run: Path) -> None:
    (run / "pictures" / "samples-999.png").symlink_to("bank-000000012.png")
    found = read_contents(run)
    assert found.notes == []
    assert "at update 999" in found.pictures[0].caption


@pytest.mark.parametrize("name", ["pictures", "attacks", "report", "checkpoints", "exam"])
def test_a_folder_that_is_a_link_elsewhere_is_left_out(run: Path, outside: Path, name: str) -> None:
    if (run / name).exists():
        (run / name).rename(outside / name)
    else:
        (run / "report" / "life").rename(outside / name)
    (run / name).symlink_to(outside / name)
    found = read_contents(run)
    assert any("outside of the run's folder" in note for note in found.notes)
    empty = {"pictures": found.pictures, "attacks": found.attacks, "checkpoints": list(found.versions)}
    assert not empty.get(name)
    assert found.life is None or name not in ("report", "exam")
    assert render([found]).html


def test_nothing_is_written_through_a_link(run: Path, outside: Path) -> None:
    (run / "report").rename(outside / "report")
    (run / "report").symlink_to(outside / "report")
    with pytest.raises(BadInput, match="report is a link to something outside of the run's folder"):
        prepare(run, steps=3, chains=2)


FILES = (
    "pictures/samples-999.png",
    "log.jsonl",
    "results.json",
    "report/life/life-cycle.json",
    "report/life/life-cycle.safetensors",
    "report/life/walk.json",
    "report/surfaces/surfaces.json",
    "exam/life-cycle.json",
    f"attacks/{NAME}/bpda-k2/record/manifest.json",
    f"attacks/{NAME}/bpda-k2/record/tensors.safetensors",
    f"attacks/{NAME}/transfer-k2/examples.safetensors",
    f"attacks/{NAME}/table.txt",
    "checkpoints/000000012/manifest.json",
    "checkpoints/000000012/state.json",
    "checkpoints/000000012/tensors.safetensors",
)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as it:
        os.chdir(path.parent)  # their names are short
        it.bind(path.name)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "socket": _socket,
    "folder": lambda path: path.mkdir(),
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "loop of links": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link elsewhere": lambda path: path.symlink_to("/etc/passwd"),
    "nothing in it": lambda path: path.touch(),
    "zeros": lambda path: path.write_bytes(bytes(1000)) and None,
    "a number": lambda path: path.write_text("1") and None,
    "a list": lambda path: path.write_text("[[], {}, null]") and None,
    "deep nesting": lambda path: path.write_text("[" * 200_000) and None,
    "deep objects": lambda path: path.write_text('{"a":' * 100_000) and None,
    "not a number": lambda path: path.write_text('{"update": NaN, "steps": [NaN], "sha256": NaN}') and None,
    "long digits": lambda path: path.write_text("9" * 10_000) and None,
    "half a letter": lambda path: path.write_text('{"\\ud800": {"\\udfff": 1}}') and None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_file_is_there_is_a_page_that_says_so(
    run: Path, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = read_contents(run)
    for name in FILES:
        file, kept = run / name, tmp_path / "kept"
        file.parent.mkdir(parents=True, exist_ok=True)
        there = os.path.lexists(file)
        if there:
            file.rename(kept)
        KINDS[kind](file)
        found = read_contents(run)
        page = render([found], live=True)
        assert b"cannot be shown" not in page.encoded, (kind, name)
        assert found.notes or found.facts != whole.facts or not there or name.endswith(("table.txt", "walk.json")), name
        assert SECRET.encode() not in page.encoded
        assert b"root:x:" not in page.encoded
        (file.rmdir if kind == "folder" else file.unlink)()
        if there:
            kept.rename(file)
    assert read_contents(run).notes == []


@pytest.mark.parametrize(
    "content",
    [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg onload=alert(1)>", bytes(10_000)],
)
def test_what_is_no_png_is_not_embedded(run: Path, content: bytes) -> None:
    (run / "pictures" / "samples-000000999.png").write_bytes(content)
    found = read_contents(run)
    assert found.notes == ["pictures/samples-000000999.png is not a readable PNG file"]
    assert "at update 12" in found.pictures[0].caption


def test_odd_names_are_shown_as_text(run: Path, outside: Path) -> None:
    for name in ("samples-x.png", "samples-.png", "samples-1\n2.png", "samples-²³.png", "samples-%s%n.png"):
        (run / "pictures" / name).symlink_to(outside / "picture.png")
    attacks = run / "attacks"
    for odd in ("<script>alert(1)<script>", "\x1b[31mred", "a\nb", "%s%n", "x" * 250, os.fsdecode(b"\xff\xfe")):
        (attacks / odd / "bpda" / "record").mkdir(parents=True)
        (attacks / odd / "bpda" / "record" / "manifest.json").symlink_to(outside / "text")
    page = render([read_contents(run)], live=True)
    text = page.encoded.decode()
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert len(read_contents(run).notes) == 6
    assert all(note.isprintable() for note in read_contents(run).notes)


def test_damaged_lines_of_the_log_are_counted_and_the_rest_is_shown(run: Path) -> None:
    file = run / "log.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = [
        b"\n",
        b"\xff\xfe\n",
        b'{"update": 3, "gra\n',
        b"[1, 2]\n",
        b'{"update": "3"}\n',
        b'{"update": -3}\n',
        b'{"update": ' + b"9" * 40 + b"}\n",
        b'{"update": ' + b"9" * 9000 + b"}\n",
        b"[" * 60_000 + b"\n",
        b'{"x": "' + b"a" * 1_000_000 + b'"}\n',
    ]
    mixed = [part for pair in zip(lines, [*damaged, b"", b""], strict=True) for part in pair]
    file.write_bytes(b"".join(mixed) + b'{"update": 13, "ener')  # the last is being written
    found = read_contents(run)
    assert found.notes == ["log.jsonl: 10 damaged lines"]
    assert found.facts[0].value == "12"
    assert len(found.training[0].x) == 12


def test_metrics_of_the_log_may_be_anything(run: Path) -> None:
    file = run / "log.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    odd = [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 10**300, None, "text", [], {}, True]
    for line, value in zip(lines, odd, strict=False):
        line |= {"energy_difference": value, "gradient": value, "updates_per_second": value, "age_mean": value}
    lines.append({"update": 2**52, "gradient": 1.0})  # as many steps are counted, not walked
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_contents(run)
    page = render([found])
    assert found.notes == []
    assert b"values are not finite" in page.encoded
    assert b"cannot be shown" not in page.encoded


def test_metrics_of_a_walk_and_of_results_are_checked(run: Path) -> None:
    life = run / "report" / "life" / "life-cycle.json"
    right = json.loads(life.read_text())
    for change in (
        {"steps": "abc"},
        {"steps": [float("nan")] * len(right["steps"])},
        {"steps": right["steps"][:-1]},
        {"figures": {}},
        {"figures": {"distance": ["<b>"] * len(right["steps"])}},
        {"figures": {name: [float("nan")] * len(column) for name, column in right["figures"].items()}},
        {"verdict": "<script>"},
        {"ranges": {"distance": [float("nan"), 1]}},
        {"ranges": {"distance": "ab"}},
        {"settings": {}},
        {"reasons": 7},
        {"stable_until": "x"},
    ):
        life.write_text(json.dumps(right | change))
        found = read_contents(run)
        assert found.life is None
        assert len(found.notes) == 1
        assert "<script>" not in found.notes[0]
    life.write_text(json.dumps(right))
    for results in ([], {"a": 1}, {"a": {"b": "<b>"}}, {"a": {"b": True}}, {"a": {str(i): 1 for i in range(2000)}}):
        (run / "results.json").write_text(json.dumps(results))
        assert len(read_contents(run).notes) == 1
    (run / "results.json").write_text('{"ebmlife fid": {"fid": NaN}}')
    assert "fid nan" in render([read_contents(run)]).html


def test_a_section_that_cannot_be_drawn_leaves_the_others(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebmlife.report.charts.Chart.rows", lambda self: 1 / 0)
    page = render([read_contents(run)])
    broken = [section.name for section in page.sections if "cannot be shown" in section.html]
    assert broken == ["life", "defense", "density", "training"]
    assert [section.name for section in page.sections if section.name not in broken] == ["about", "samples", "recipe"]


def test_report_says_what_it_left_out(run: Path, outside: Path, capsys: Capture) -> None:
    (run / "pictures" / "samples-999.png").symlink_to(outside / "picture.png")
    (run / "results.json").write_text("{")
    works("report", run, "--no-walk")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("note: left out of the report: pictures/samples-999.png is a link to something outside")
    assert lines[1].startswith("note: left out of the report: results.json: ")
    assert lines[2] == f"report: {run / 'report.html'}"


@pytest.mark.parametrize("kind", ["fifo", "link elsewhere", "loop of links", "deep nesting", "a list"])
def test_without_a_recipe_there_is_no_page_and_no_hang(run: Path, kind: str) -> None:
    (run / "recipe.json").unlink()
    KINDS[kind](run / "recipe.json")
    with pytest.raises(BadInput, match=r"recipe\.json"):
        read_contents(run)


def test_files_are_opened_only_where_they_are_regular_and_inside(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a").write_text("a")
    (folder / "large").write_bytes(bytes(101))
    inside = SafeFolder(folder)
    assert inside.content(folder / "a") == b"a"
    assert inside.content(folder / "b") is None
    with pytest.raises(BadInput, match="large is larger than"):
        inside.content(folder / "large", largest=100)
    with pytest.raises(BadInput, match="outside"):
        inside.file(folder / ".." / "run" / ".." / ".." / tmp_path.name)
    (tmp_path / "alias").symlink_to(folder)
    assert (
        SafeFolder(tmp_path / "alias").content(tmp_path / "alias" / "a") == b"a"
    )  # the run's folder itself may be a link


def test_the_hubs_cache_keeps_a_models_files_beside_it(tmp_path: Path) -> None:
    model = tmp_path / "models--me--digits"
    snapshot = model / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    (model / "blobs" / "abc").write_text("{}")
    (snapshot / "recipe.json").symlink_to("../../blobs/abc")
    (snapshot / "log.jsonl").symlink_to("../../other")
    (model / "other").write_text("")
    assert SafeFolder(snapshot).content(snapshot / "recipe.json") == b"{}"
    with pytest.raises(BadInput, match="outside"):
        SafeFolder(snapshot).content(snapshot / "log.jsonl")


# Clients


@pytest.fixture
def live(run: Path) -> Iterator[PageServer]:
    with serving(run, trials=Trials(defense(), Form("Brightness", (1, 4, 4), langevin=1))) as it:
        yield it


def test_every_hostile_request_is_answered(live: PageServer, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    for name, content in requests(600, seed=0):
        status = exchanged(at(live), content)[:12].split()
        assert status, name
        assert status[0] == b"HTTP/1.0", name
        assert status[1] == b"505" or 200 <= int(status[1]) < 500, name
    assert ask(live, "/")[0] == 200
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert capfd.readouterr() == ("", "")


def test_a_served_run_says_nothing_whatever_comes(run: Path, outside: Path) -> None:
    """The command itself, with a run of odd files; what is in an upload is looked at only while no other is tried."""
    os.mkfifo(run / "pictures" / "samples-1000.png")
    (run / "pictures" / "bank-999.png").symlink_to(outside / "text")
    (run / "log.jsonl").write_bytes(b"{\n[\n\xff\n")
    command = [sys.executable, "-m", "ebmlife", "watch", str(run), "--port", "0", "--classifier", CLASSIFIER]
    bodies = [it for it in requests(1000) if it.name.startswith("upload ") and "PNG as" not in it.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = re.search(r":(\d+)/", process.stdout.readline())
        assert port is not None
        for name, content in (*bodies, *requests(150, seed=1)):
            assert exchanged(("127.0.0.1", int(port[1])), content).startswith(b"HTTP/1.0 "), name
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")


def test_every_answer_has_a_policy(live: PageServer) -> None:
    page = ask(live, "/")[2]
    assert "script-src 'sha256-" in page["Content-Security-Policy"]
    assert "connect-src 'self'" in page["Content-Security-Policy"]
    assert page["Content-Security-Policy"].endswith("; frame-ancestors 'none'")
    for path, method in (("/sections.json", "GET"), ("/nothing", "GET"), ("/", "PUT"), ("/" + "a" * 70_000, "GET")):
        headers = ask(live, path, method=method)[2]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_sizes_have_limits(live: PageServer) -> None:
    def status(content: bytes) -> bytes:
        return exchanged(at(live), content).split(b" ", 2)[1]

    start = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    assert status(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n") == b"414"
    assert status(start + b"A: " + b"b" * 70_000 + b"\r\n\r\n") == b"431"
    assert status(start + b"A: b\r\n" * 200 + b"\r\n") == b"431"
    assert status(start + (b"A: " + b"b" * 60_000 + b"\r\n") * 20 + b"\r\n") == b"431"
    large = f"POST /trial HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2**40}\r\n\r\n".encode()
    assert status(large + bytes(2**20)) == b"413"


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ",
        b"POST /trial HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
    ],
    ids=["line", "headers", "body"],
)
def test_who_dribbles_gets_so_much_time_and_no_more(
    live: PageServer, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEADING", 0.5)
    monkeypatch.setattr(server, "_SENDING", 0.5)
    with socket.create_connection(at(live), timeout=60) as connection:
        connection.sendall(start)
        done = threading.Event()

        def dribble() -> None:
            with suppress(OSError):
                while not done.wait(0.05):  # never silent for long
                    connection.sendall(b"a")

        thread = threading.Thread(target=dribble)
        thread.start()
        answer = connection.recv(2**16)
        done.set()
        thread.join()
    assert answer.startswith(b"HTTP/1.0 408 ")


def test_after_the_deadline_nothing_is_read_even_if_it_is_there() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"abc")
        reading = Timed(other, seconds=60, most=2)
        assert reading.read(1) == b"a"
        reading.allow(seconds=0, most=2)
        with pytest.raises(TimeoutError):
            reading.read(1)
        assert reading.late


def test_many_slow_connections_do_not_shut_others_out(live: PageServer) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(at(live), timeout=60)) for _ in range(150)]
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: lo")
        assert ask(live, "/sections.json")[0] == 200
        assert len(live.connections) <= server._CONNECTIONS
        assert ask(live, "/")[0] == 200


def test_when_all_are_being_answered_one_more_is_told_so(live: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    made = live.page()

    def held(self: PageServer) -> object:
        gate.wait(60)
        return made

    monkeypatch.setattr(PageServer, "page", held)
    with ExitStack() as stack:
        waiting = [stack.enter_context(socket.create_connection(at(live), timeout=60)) for _ in range(32)]
        for connection in waiting:
            connection.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        deadline = time.monotonic() + 60
        while not all(live.connections._open.values()) or len(live.connections) < 32:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert exchanged(at(live), b"").startswith(b"HTTP/1.0 503 ")
        gate.set()
        for connection in waiting:
            assert connection.recv(15).startswith(b"HTTP/1.0 200 ")


def test_a_page_that_does_not_get_made_blocks_nobody(live: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(live, "/")[0] == 200
    monkeypatch.setattr(server, "_FRESH", 0.0)
    monkeypatch.setattr(server, "_PATIENCE", 0.1)
    gate, begun = threading.Event(), threading.Event()

    def held(run: Path) -> None:
        begun.set()
        gate.wait(60)
        raise BadInput("held")

    monkeypatch.setattr(server, "read_contents", held)
    first = threading.Thread(target=lambda: ask(live, "/"))
    first.start()
    assert begun.wait(60)
    assert ask(live, "/")[0] == 200  # the page before
    assert ask(live, "/nothing")[0] == 404
    gate.set()
    first.join()


def test_clients_that_leave_are_not_spoken_of(live: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    reset = b"\1\0\0\0\0\0\0\0"  # struct linger: on, 0 seconds
    for content in (b"", b"GET", b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", b"POST /trial HTTP/1.0\r\nContent-Le"):
        for _ in range(5):
            with socket.create_connection(at(live), timeout=60) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                connection.sendall(content)
    assert ask(live, "/")[0] == 200
    deadline = time.monotonic() + 60
    while len(live.connections) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_ours_is_an_answer_and_no_traceback(
    live: PageServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PageServer, "page", lambda self: 1 / 0)
    status, found, _ = ask(live, "/")
    assert (status, set(found)) == (500, {"error"})
    assert "Traceback" not in capfd.readouterr().err


def test_files_that_appear_while_it_serves_are_left_out(
    live: PageServer, run: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_FRESH", 0.0)
    os.mkfifo(run / "pictures" / "samples-1000.png")
    (run / "pictures" / "samples-999.png").symlink_to(outside / "picture.png")
    status, page, _ = ask(live, "/")
    assert status == 200
    assert b"pictures/samples-1000.png is not a regular file" in page
    assert b"pictures/samples-999.png is a link to something outside" in page
    assert stat.S_ISFIFO((run / "pictures" / "samples-1000.png").lstat().st_mode)
    (run / "recipe.json").unlink()
    assert ask(live, "/")[0] == 400


def test_an_answer_that_is_not_finite_fails_the_trial(live: PageServer) -> None:
    assert live.trials is not None
    live.trials._defense = defense(energy=lambda x: x.flatten(1).sum(1) * float("nan"))
    picture = encoded(Image.new("L", (4, 4), color=130))
    wish = "radius=0&steps=1&langevin=1&attacker=transfer"
    _, found, _ = ask(live, f"/trial?{wish}", method="POST", body=picture, Content_Type="image/png")
    deadline = time.monotonic() + 60
    while not (state := ask(live, f"/{found['address']}"))[1]["over"]:
        assert time.monotonic() < deadline
    assert state[0] == 200
    assert state[1]["failed"]
