"""Ctrl-C at any moment: exit code 130, or death by SIGINT while PyTorch is loading; no traceback, nothing left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ebmlife.cli import main
from ebmlife.errors import shown
from ebmlife.storage import atomic, leftovers

LONG = {
    "sample": "sample zoo:digits-shortrun --n 100000 --steps 100000 --out new/a.npy",
    "fid": "fid zoo:digits-shortrun --steps 100000",
    "purify": "purify zoo:digits-shortrun a.png --steps 10000000 --out new/clean",
    "grid": "sample zoo:digits-shortrun --n 5000 --steps 100000 --out new/images",
}


def _loading(process: subprocess.Popen[str], folder: Path) -> bool:
    return "torch" in Path(f"/proc/{process.pid}/maps").read_text()


def _writing(process: subprocess.Popen[str], folder: Path) -> bool:
    return any(folder.rglob("*.unfinished"))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has loaded is seen in /proc")
@pytest.mark.parametrize(
    ("name", "moment", "later"),
    [
        ("sample", _loading, 0),
        ("purify", _loading, 1),
        ("sample", _writing, 0),
        ("grid", _writing, 1),
        ("fid", _loading, 6),
        ("purify", _loading, 6),
    ],
)
def test_an_interrupt_leaves_nothing(tmp_path: Path, name: str, moment, later: float) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "a.png")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = [sys.executable, "-m", "ebmlife", *LONG[name].split()]
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=-1, stderr=-1, text=True) as process:
        while process.poll() is None and not moment(process, folder):
            time.sleep(0.05)
        time.sleep(later)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode in (130, -signal.SIGINT), said
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
    assert sorted(path.name for path in folder.rglob("*")) == ["a.png"]


def test_unfinished_files_and_their_empty_folders_are_cleared(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for target in (tmp_path / "old" / "a", tmp_path / "x" / "y" / "b", tmp_path / "kept" / "c"):
        leftovers.begin(target.with_name(f".{target.name}.unfinished"))
        target.with_name(f".{target.name}.unfinished").write_text("half")
    with atomic.atomic_write(tmp_path / "kept" / "d") as unfinished:
        unfinished.write_text("whole")
    leftovers.clear()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["kept", "kept/d", "old"]


def test_messages_show_neither_escape_codes_nor_temporary_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("\x1b[31mred", "two\nlines", "bell\x07", "caf\udce9", "\u202eright-to-left"):
        assert main(["sample", name, "--out", "a.npy"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.strip("\n").isprintable()
        assert name not in said
    assert main(["sample", "zoo:digits-shortrun", "--n", "2", "--steps", "1", "--out", "\x1b[31ma.npy"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr("ebmlife.cli.sampling.build.load", _fails(tmp_path / ".a.npy.123.unfinished"))
    assert main(["sample", "zoo:digits-shortrun", "--out", "a.npy"]) == 2
    said = capsys.readouterr().err
    assert "unfinished" not in said
    assert "a.npy" in said
    assert shown("x" * 5000).endswith("x...")


def _fails(path: Path):
    def load(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    return load


def test_a_library_that_turns_an_interrupt_into_its_own_error_prints_no_traceback() -> None:
    program = """if True:
        import os, signal, sys
        sys.argv[0] = "ebmlife"
        from ebmlife.storage.ctrl_c import handled

        @handled
        def main(arguments):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise RuntimeError("as pydantic does while it builds a schema") from error

        sys.exit(main())
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "ebmlife: interrupted\n")
