"""Files and folders that appear whole or not at all, whenever the process dies."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebmlife.errors import BadInput
from ebmlife.storage import atomic
from ebmlife.storage.atomic import atomic_write, sweep

OLD, NEW = {"a": "old", "b": "old", "c": "old"}, {"a": "new", "b": "new"}
CHANGES = ("rename", "unlink", "rmdir")


class Killed(BaseException):
    pass


def write(path: Path, files: dict[str, str]) -> None:
    with atomic_write(path) as unfinished:
        unfinished.mkdir()
        for name, text in files.items():
            (unfinished / name).write_text(text)


def held(path: Path) -> dict[str, str] | None:
    return {file.name: file.read_text() for file in path.iterdir()} if path.exists() else None


def mortal(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """From now on, so many changes of the disk's names happen and no more, as after a SIGKILL."""
    made = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            if made == changes:
                raise Killed
            made += 1
            return change(*arguments, **options)

        return changed

    for name in CHANGES:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


@pytest.fixture(params=["exchanged", "set aside"])
def replacing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to replace a folder: in one step, or by two where the file system has no such step."""
    if request.param == "set aside":
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    elif atomic._renameat2() is None:
        pytest.skip("this system cannot exchange two names")
    return str(request.param)


def test_a_folder_that_is_replaced_is_the_old_one_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replacing: str
) -> None:
    """A kill before any change of names: what was there is not lost."""
    path, found = tmp_path / "it", []
    for changes in itertools.count():
        write(path, OLD)
        with monkeypatch.context() as dying:
            mortal(dying, changes)
            try:
                write(path, NEW)
                break
            except Killed:
                pass
        sweep(tmp_path)
        found.append(held(path))
        assert list(tmp_path.iterdir()) == [path]
    assert held(path) == NEW
    assert all(one in (OLD, NEW) for one in found)
    if replacing == "set aside":
        assert found[:2] == [OLD, OLD]


def test_what_an_earlier_version_set_aside_is_put_back(tmp_path: Path) -> None:
    (tmp_path / ".000000004.1234.old.unfinished").mkdir()
    sweep(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["000000004"]


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    left, other = (tmp_path / f".{name}.{atomic._machine()}-{process.pid}.unfinished" for name in ("it", "other"))
    mine = tmp_path / f".it.{atomic._machine()}-{os.getppid()}.unfinished"  # of a process that is there
    for path in (left, other, mine):
        path.touch()
    write(tmp_path / "it", NEW)
    assert sorted(tmp_path.iterdir()) == sorted([other, mine, tmp_path / "it"])


def test_one_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rename = tmp_path / "it", os.rename
    write(path, OLD)

    def refused(source: Path, target: Path) -> None:
        if Path(target) == path and ".old." not in Path(source).name:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(BadInput, match=r"cannot write .*it: Input/output error"):
        write(path, NEW)
    assert held(path) == OLD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested"),
        ("[" * 90 + "]" * 90, "nested"),
        ("\udcff", "not JSON"),
        (None, "No such"),
    ],
)
def test_json_that_cannot_be_read_is_one_line(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "a.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match=why):
        atomic.read_json(tmp_path / "a.json")
