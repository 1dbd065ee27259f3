"""Damaged, hostile and odd files: each is read, left out with a note, or refused in one line that names it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ebmlife.data import cifar10, folder, images, webdataset
from ebmlife.data.libraries import encoded
from ebmlife.errors import BadInput

from .test_cifar10 import python_file

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "torture"))
import bad_files  # noqa: E402

# Every case in a process of its own kind: a hang or a crash of the interpreter would end the tests.
_EACH = """
import json, os, resource, shutil, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import bad_files
from ebmlife.data import cifar10, folder, webdataset
from ebmlife.errors import BadInput
warnings.filterwarnings("ignore", module="PIL")
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30,) * 2)
root = Path(sys.argv[2])
for case in bad_files.every():
    place = root / "set"
    place.mkdir()
    path = case.build(place)
    try:
        if case.kind == "image":
            said = len(folder(place, size=8))
        elif case.kind == "archive":
            said = len(webdataset(shards=str(path), size=8))
        else:
            path.rename(place / "test_batch")
            said = len(cifar10(place, train=False))
    except BadInput as error:
        said = str(error)
    except Exception as error:
        said = [repr(error)]
    print(json.dumps([case.kind, case.name, said]), flush=True)
    shutil.rmtree(place)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _fake_ghostscript(folder: Path) -> Path:
    """A `gs` that leaves a trace of its start."""
    folder.mkdir()
    trace = folder / "started"
    (folder / "gs").write_text(f"#!/bin/sh\ntouch {trace}\n")
    (folder / "gs").chmod(0o755)
    return trace


def test_no_file_hangs_crashes_starts_a_program_or_gives_more_than_a_line(tmp_path: Path) -> None:
    trace = _fake_ghostscript(tmp_path / "bin")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-c", _EACH, str(TESTS / "torture"), str(tmp_path / "work")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path / "work")
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (seen[-1:], done.stderr)
    assert len(seen) >= 200
    assert not trace.exists()
    assert list((tmp_path / "work").iterdir()) == []
    for _, name, said in seen:
        assert not isinstance(said, list), (name, said)
        assert isinstance(said, int) or "unfinished" not in said, (name, said)
    outcomes = {name: said for _, name, said in seen}
    for kind in bad_files.FORMATS:  # what is only longer than it should be is read
        twice = next(said for name, said in outcomes.items() if name.startswith(f"{kind.lower()}-twice"))
        assert twice == 1
    for kind in bad_files.FOREIGN:
        assert "not a PNG, JPEG" in outcomes[f"{kind.lower()}-named-as.png"]


def _images(place: Path, count: int = 3) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (9, 9), (40 * i,) * 3).save(place / f"{i}.png")
    return place


def test_a_link_to_its_own_folder_multiplies_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = _images(tmp_path / "set", 12)
    (place / "again").symlink_to(place)
    assert len(folder(place, size=4)) == 12
    assert capsys.readouterr().err == (
        f"note: {place}: left out 1 links to folders (such as again); copy images into the folder to use them\n"
    )


def test_links_stay_within_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, other = _images(tmp_path / "set"), _images(tmp_path / "other")
    (place / "out.png").symlink_to(other / "0.png")
    (place / "in.png").symlink_to("1.png")
    (place / "beside").symlink_to(other)
    (tmp_path / "name").symlink_to(place)
    for root in (place, tmp_path / "name"):
        assert len(folder(root, size=4)) == 4
        said = capsys.readouterr().err
        assert "1 links to files outside (such as out.png), 1 links to folders (such as beside)" in said
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "0.png").symlink_to(place / "0.png")
    with pytest.raises(BadInput, match=r"no image in this folder or below; left out 1 links to files outside"):
        folder(tmp_path / "links", size=4)


def test_a_fifo_is_left_out_and_refused_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = _images(tmp_path / "set")
    os.mkfifo(place / "fifo.png")
    with _within(20):
        assert len(folder(place, size=4)) == 3
        with pytest.raises(BadInput, match=r"fifo\.png: a FIFO, expected a regular file"):
            images.read(place / "fifo.png")
    assert "fifo.png" in capsys.readouterr().err


def test_names_are_printed_without_their_escape_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = _images(tmp_path / "set")
    os.mkfifo(place / "\x1b[31m\n.png")
    assert len(folder(place, size=4)) == 3
    said = capsys.readouterr().err
    assert "such as \\x1b[31m\\n.png" in said
    assert said.count("\n") == 1


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    place = tmp_path / "set"
    place.mkdir()
    Image.new("1", (8200, 8200)).save(place / "large.png")
    with pytest.raises(BadInput, match=r"large\.png: .*8200x8200 pixels, expected at most 67108864; make it smaller"):
        folder(place, size=4)


def test_a_jpeg_that_is_named_as_a_png_is_read(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(bad_files.picture("JPEG"))
    assert len(folder(tmp_path, size=4)) == 1


def test_cells_of_tables_hold_images_only(tmp_path: Path) -> None:
    assert encoded({"bytes": b"abc", "path": None}) == b"abc"
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadInput, match="a FIFO"):
        encoded({"bytes": None, "path": str(tmp_path / "fifo")})
    with pytest.raises(BadInput, match="empty"):
        encoded(None)


@pytest.mark.parametrize("pattern", ["{0..1000000000}", "{0..9999999}", "{0..999}{0..999}", "{0..99}-{0..99}-{0..99}"])
def test_brace_patterns_are_bounded(tmp_path: Path, pattern: str) -> None:
    with _within(20), pytest.raises(BadInput, match=r"expected at most 100000|no such tar"):
        webdataset(shards=str(tmp_path / f"a-{pattern}.tar"), size=4)


def test_odd_patterns_are_one_line(tmp_path: Path) -> None:
    for pattern in ("{5..1}", "{" + "9" * 200 + "..1}", "**x", "{0..{1..2}}", "[", "{..}"):
        with pytest.raises(BadInput) as refusal:
            webdataset(shards=str(tmp_path / f"{pattern}.tar"), size=4)
        assert "\n" not in str(refusal.value)


def test_several_ranges_give_all_combinations(tmp_path: Path) -> None:
    for name in ("0-08", "0-09", "1-08", "1-09"):
        (tmp_path / f"{name}.tar").write_bytes(bad_files.archive())
    assert len(webdataset(shards=str(tmp_path / "{0..1}-{08..09}.tar"), size=4)) == 8


def test_a_damaged_header_loses_no_images_silently(tmp_path: Path) -> None:
    data = bytearray(bad_files.archive())
    data[data.index(b"1.jpg") + 60] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(BadInput, match=r"a\.tar: not a plain tar of WebDataset \(a damaged header at byte \d+\)"):
        webdataset(shards=str(tmp_path / "a.tar"), size=4)


def _within(seconds: int) -> "_Alarm":
    return _Alarm(seconds)


class _Alarm:
    """Fails what hangs."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def late(*_: object) -> None:
            raise AssertionError(f"not done after {self.seconds} s")

        self.before = signal.signal(signal.SIGALRM, late)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.before)


def _mutations(data: bytes, count: int) -> Iterator[bytes]:
    """Copies with a few bytes replaced by opcodes and others, moved, repeated or removed."""
    head = min(len(data), 3000)
    for seed in range(count):
        rng, made = random.Random(seed), bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            at, other = rng.randrange(head), rng.randrange(head)
            match rng.randrange(4):
                case 0:
                    made[at] = rng.choice(b"\x85\x86\x87()]}aesutRbhqNKM.c")
                case 1:
                    made[at] = rng.randrange(256)
                case 2:
                    del made[at : at + rng.randrange(1, 40)]
                case _:
                    made[at:at] = made[other : other + rng.randrange(1, 40)] * rng.randrange(1, 50)
        yield bytes(made)


def test_mutated_pickles_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["ebmlife.data.cifar"]
    monkeypatch.setattr(module, "IMAGES_PER_FILE", 20)
    rng = np.random.default_rng(0)
    sound = python_file(rng.integers(256, size=(20, 3072), dtype=np.uint8), rng.integers(10, size=20))
    refused = 0
    for data in (sound, *_mutations(sound, 400)):
        (tmp_path / "test_batch").write_bytes(data)
        with _within(20):
            try:
                assert len(cifar10(tmp_path, train=False)) == 20
            except BadInput:
                refused += 1
    assert 100 < refused < 401
