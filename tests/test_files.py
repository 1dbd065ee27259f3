"""Files and folders that appear whole or not at all, whenever the process dies."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebmlife.errors import BadInput
from ebmlife.files import sweep, whole

OLD, NEW = {"a": "old", "b": "old", "c": "old"}, {"a": "new", "b": "new"}
CHANGES = ("rename", "unlink", "rmdir")


class Killed(BaseException):
    pass


def write(path: Path, files: dict[str, str]) -> None:
    with whole(path) as unfinished:
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


@pytest.mark.parametrize("changes", range(7))
def test_a_folder_that_is_replaced_is_the_old_one_or_the_new_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    path = tmp_path / "it"
    write(path, OLD)
    with monkeypatch.context() as dying:
        mortal(dying, changes)
        with pytest.raises(Killed):
            write(path, NEW)
    assert held(path) in (OLD, NEW, None)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == ([path] if path.exists() else [])
    write(path, NEW)
    assert held(path) == NEW


def test_one_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rename = tmp_path / "it", os.rename
    write(path, OLD)

    def refused(source: Path, target: Path) -> None:
        if Path(target) == path and ".old." not in Path(source).name:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(BadInput, match=r"cannot write .*it: Input/output error"):
        write(path, NEW)
    assert held(path) == OLD
    assert list(tmp_path.iterdir()) == [path]
