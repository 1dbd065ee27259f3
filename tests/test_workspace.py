"""Workspaces: one process at a time, the same settings or none, nothing lost by a kill, nothing left by a failure."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from ebmlife.errors import BadInput, InUse
from ebmlife.storage import checkpoint
from ebmlife.storage.locking import locked
from ebmlife.storage.workspace import Layout, Workspace

SETTINGS: dict[str, Any] = {"steps": 3, "seed": 0}
LAYOUT = Layout("count", result="total.json")
COUNT = """
import sys, time
from pathlib import Path
from ebmlife.errors import BadInput
from ebmlife.storage.workspace import Layout, Workspace

folder, steps, seed, pause = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
work = Workspace(folder, {"steps": steps, "seed": seed}, Layout("count", result="total.json"))
try:
    with work.open():
        done = work.newest() or 0
        print("from", done, flush=True)
        for step in range(done + 1, steps + 1):
            time.sleep(pause)
            work.save(step, {"total": sum(range(step + 1))}, about={})
        (folder / "total.json").write_text(str(work.load(steps, again="")["total"]))
except BadInput as error:
    print(error)
    sys.exit(2)
"""


def count(folder: Path, *, steps: int = 3, seed: int = 0, pause: float = 0.0) -> subprocess.Popen[str]:
    """Another process that adds the numbers up to `steps`, and saves each sum."""
    words = [str(folder), str(steps), str(seed), str(pause)]
    return subprocess.Popen([sys.executable, "-c", COUNT, *words], stdout=subprocess.PIPE, text=True)


def output(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=60)
    return process.returncode, out.strip()


@contextmanager
def working(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Within, another process works in the folder."""
    process = count(folder, pause=60)
    assert process.stdout is not None
    assert process.stdout.readline() == "from 0\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_of_two_processes_one_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    with working(folder) as other:
        before = sorted(folder.rglob("*"))
        with pytest.raises(InUse, match=r"work is in use by another process; wait for it or stop it"):
            Workspace(folder, SETTINGS, LAYOUT).open().__enter__()
        code, line = output(count(folder, seed=1))
        assert (code, "in use" in line) == (2, True)
        assert sorted(folder.rglob("*")) == before
        assert other.poll() is None
    with Workspace(folder, SETTINGS, LAYOUT).open():  # the lock ended with its process
        pass


def test_the_same_settings_continue_after_a_kill(tmp_path: Path) -> None:
    killed = count(tmp_path, steps=50, pause=0.05)
    while len(checkpoint.updates(tmp_path)) < 3:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    saved = checkpoint.updates(tmp_path)[-1]
    (tmp_path / "checkpoints" / ".000000099.unfinished").mkdir()  # what a kill within a save may leave
    assert output(count(tmp_path, steps=50)) == (0, f"from {saved}")
    assert (tmp_path / "total.json").read_text() == str(sum(range(51)))
    assert not list(tmp_path.rglob("*.unfinished"))


def test_other_settings_are_refused_by_name_values_and_advice(tmp_path: Path) -> None:
    assert output(count(tmp_path))[0] == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, line = output(count(tmp_path, steps=4, seed=1))
    assert code == 2
    assert line == f"{tmp_path} holds another count (seed: 0 -> 1; steps: 3 -> 4); choose another folder"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".lock"} == {
        path: changed for path, changed in before.items() if path.name != ".lock"
    }


def test_whether_work_is_finished_is_asked_without_writing(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    work = Workspace(folder, SETTINGS, LAYOUT)
    assert not work.finished()
    assert not folder.exists()
    assert output(count(folder))[0] == 0
    (folder / ".lock").unlink()
    assert work.finished()
    assert not (folder / ".lock").exists()
    with pytest.raises(BadInput, match=r"seed: 0 -> 1"):
        Workspace(folder, SETTINGS | {"seed": 1}, LAYOUT).finished()


@pytest.mark.parametrize("failure", [BadInput("a mistake"), ValueError("a fault"), KeyboardInterrupt()])
@pytest.mark.parametrize("lock", ["", "checkpoints"])
def test_work_that_fails_before_anything_is_saved_leaves_nothing(
    failure: BaseException, lock: str, tmp_path: Path
) -> None:
    def fail() -> None:
        assert (tmp_path / "a" / "b" / "settings.json").exists()  # from before the first step
        raise failure

    with pytest.raises(type(failure)), Workspace(tmp_path / "a" / "b", SETTINGS, Layout(lock=lock)).open():
        fail()
    assert not list(tmp_path.iterdir())


def test_work_that_fails_later_keeps_its_settings(tmp_path: Path) -> None:
    work = Workspace(tmp_path, SETTINGS, LAYOUT)

    def fail() -> None:
        work.save(1, {"x": torch.ones(2)}, about={})
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"), work.open():
        fail()
    with pytest.raises(BadInput, match="holds another count"), Workspace(tmp_path, {"steps": 5}, LAYOUT).open():
        pass
    assert work.saved_settings() == SETTINGS
    assert work.newest() == 1


def test_a_failure_does_not_remove_the_settings_that_were_there_before(tmp_path: Path) -> None:
    with Workspace(tmp_path, SETTINGS, LAYOUT).open():
        pass
    with pytest.raises(BadInput, match="holds another"), Workspace(tmp_path, {"steps": 5}, LAYOUT).open():
        pass
    with pytest.raises(KeyboardInterrupt), Workspace(tmp_path, SETTINGS, LAYOUT).open():
        raise KeyboardInterrupt
    assert Workspace(tmp_path, SETTINGS, LAYOUT).saved_settings() == SETTINGS


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(BadInput, match=r"cannot write .*: Permission denied"):
            Workspace(folder, SETTINGS).open().__enter__()


def test_finished_work_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert output(count(tmp_path))[0] == 0
    (tmp_path / ".lock").unlink()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    work = Workspace(tmp_path, SETTINGS, LAYOUT)
    assert work.finished()
    with pytest.raises(BadInput, match=r"cannot write .*: Permission denied"):
        work.open().__enter__()


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot write .*file"):
        Workspace(tmp_path / "file", SETTINGS).open().__enter__()


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_damaged_settings_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(BadInput, match=r"settings\.json .*choose another folder"):
        Workspace(tmp_path, SETTINGS).finished()


def test_measurements_may_differ_by_rounding_and_settings_may_not(tmp_path: Path) -> None:
    with Workspace(tmp_path, {"slope": [1.0, 2.0], "size": 0.1}).open():
        pass
    Workspace(tmp_path, {"slope": [1.001, 1.999], "size": 0.1}).check()
    for changed in ({"slope": [1.1, 2.0]}, {"size": 0.1001}, {"slope": [1.0]}):
        with pytest.raises(BadInput, match=f"{next(iter(changed))}: "):
            Workspace(tmp_path, {"slope": [1.0, 2.0], "size": 0.1} | changed).check()


def test_a_missing_setting_differs_unless_older_versions_saved_fewer(tmp_path: Path) -> None:
    with Workspace(tmp_path, {"seed": 0}).open():
        pass
    with pytest.raises(BadInput, match="steps: None -> 3"):
        Workspace(tmp_path, SETTINGS).check()
    Workspace(tmp_path, SETTINGS, Layout(missing_agrees=True)).check()
    Workspace(tmp_path, SETTINGS, Layout(described=("steps",))).check()


def test_work_may_replace_what_is_there_but_not_through_a_link(tmp_path: Path) -> None:
    layout, folder = Layout("walk", replaces=True), tmp_path / "work"
    with Workspace(folder, {"steps": 5}, layout).open():
        (folder / "old").touch()
    with Workspace(folder, {"steps": 5}, layout).open():
        assert (folder / "old").exists()
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(BadInput, match="is a link"), Workspace(tmp_path / "link", SETTINGS, layout).open():
        pass
    assert (folder / "old").exists()
    with Workspace(folder, SETTINGS, layout).open():
        assert sorted(path.name for path in folder.iterdir()) == [".lock", "settings.json"]


def test_a_part_of_the_work_shares_its_lock_and_nothing_else_does(tmp_path: Path) -> None:
    exam, walk = Layout("exam"), Layout("walk", file=None, within=("exam",))
    inner = Workspace(tmp_path, {}, walk)
    with Workspace(tmp_path, SETTINGS, exam).open():
        with inner.exclusive():
            for again in (Workspace(tmp_path, SETTINGS, exam), inner):
                with pytest.raises(InUse):
                    again.exclusive().__enter__()
        refused: list[bool] = []
        other = threading.Thread(target=lambda: refused.append(_refused(inner)))
        other.start()
        other.join()
        assert refused == [True]
    with inner.exclusive():
        pass


def _refused(work: Workspace) -> bool:
    try:
        with work.exclusive():
            return False
    except InUse:
        return True


def test_a_lock_on_a_removed_file_excludes_nobody_and_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process withdraws, and removes its lock, between the opening of that file and its locking."""
    flock, calls = fcntl.flock, list[int]()

    def removed_first(stream: Any, how: int) -> None:
        if not calls:
            (tmp_path / ".lock").unlink()
        calls.append(how)
        flock(stream, how)

    monkeypatch.setattr("ebmlife.storage.locking.fcntl.flock", removed_first)
    with locked(tmp_path):
        assert len(calls) == 2
        monkeypatch.undo()
        with pytest.raises(InUse), locked(tmp_path):
            pass


def test_a_damaged_part_is_set_aside_and_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = Workspace(tmp_path, SETTINGS, Layout(parts="parts", digits=6))
    with work.open():
        work.save(2, {"x": torch.ones(2)}, about={})
        (tmp_path / "parts" / "000002" / "state.json").write_text("{}")
        assert work.load(2, again="it is counted again") is None
        assert work.load(1, again="it is counted again") is None
    assert "000002.damaged, and it is counted again" in caplog.text
    work.finish()
    assert not (tmp_path / "parts").exists()
