"""What a command that fails must not leave behind: files it was still writing, and empty folders it made for them."""

import shutil
from contextlib import suppress
from pathlib import Path

_unfinished: set[Path] = set()
_folders: list[Path] = []  # the outer ones first


def begin(unfinished: Path) -> None:
    """A file or a folder is about to be written, in a folder that is made where there is none."""
    parents = unfinished.parent
    missing = [place for place in (parents, *parents.parents) if not place.exists()]
    _unfinished.add(unfinished)
    _folders.extend(reversed(missing))
    parents.mkdir(parents=True, exist_ok=True)


def end(unfinished: Path) -> None:
    """It was finished or removed."""
    _unfinished.discard(unfinished)


def clear() -> None:
    """Removes what is unfinished, and those of the folders that are empty. For the end of a process that failed."""
    for path in _unfinished:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink()
    _unfinished.clear()
    while _folders:
        with suppress(OSError):
            _folders.pop().rmdir()
