"""Cleans up after a failed command: unfinished files, and the empty folders that it created for them."""

import shutil
from contextlib import suppress
from pathlib import Path

_unfinished: set[Path] = set()
_folders: list[Path] = []  # the outer ones first


def begin(unfinished: Path) -> None:
    """Registers a file or folder that is about to be written, and creates its parent."""
    parents = unfinished.parent
    missing = [folder for folder in (parents, *parents.parents) if not folder.exists()]
    _unfinished.add(unfinished)
    _folders.extend(reversed(missing))
    parents.mkdir(parents=True, exist_ok=True)


def end(unfinished: Path) -> None:
    """Forgets a file or folder that is finished or removed."""
    _unfinished.discard(unfinished)


def clear() -> None:
    """Removes unfinished files and empty created folders, at the end of a process that failed."""
    for path in _unfinished:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink()
    _unfinished.clear()
    while _folders:
        with suppress(OSError):
            _folders.pop().rmdir()
