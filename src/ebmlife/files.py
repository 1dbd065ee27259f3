"""Files and folders that appear whole or not at all."""

import os
import pwd
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from ebmlife import leftovers
from ebmlife.errors import BadInput

_TEMPORARY = re.compile(r"\.([^/\s'\"]+)\.[\w-]+(?:\.old)?\.unfinished")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`; what is written there (a file or a folder) is renamed to it at the end.

    On an error nothing is left, and what lay at `path` before still does. A disk that is full or read-only is a
    BadInput that names the path.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")  # another process may write it too
    try:
        leftovers.begin(unfinished)
        remove(unfinished)
        yield unfinished
        _flush(unfinished)
        _replace(path, unfinished)
        _flush(path.parent)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"cannot write {path}: {reason}") from error
    finally:
        with suppress(OSError):  # of a folder that is gone, or that was none
            remove(unfinished)
        leftovers.end(unfinished)


def sweep(folder: Path) -> None:
    """Removes what killed processes left unfinished in a folder that no other process writes to."""
    for path in folder.glob(".*.unfinished"):
        remove(path)


def cache_folder() -> Path:
    """Where what can be made again is kept: in $XDG_CACHE_HOME, or in ~/.cache if it is unset, empty or relative."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else home() / ".cache") / "ebmlife"


def home() -> Path:
    """$HOME, or what the system knows if it is unset, empty or relative; BadInput if there is none."""
    named = Path(os.environ.get("HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise BadInput("this user has no home folder; set XDG_CACHE_HOME to a folder for the cache") from None


def can_be_made(folder: Path) -> None:
    """BadInput for a folder that is not there and cannot be made: before hours are spent on what is to go there."""
    there = next(place for place in (folder, *folder.parents) if place.exists() or place == place.parent)
    if not there.is_dir():
        raise BadInput(f"cannot write {folder}: {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"cannot write {folder}: {there} does not permit it")


def located(name: str | Path) -> Path:
    """The path, a leading ~ replaced by the home folder that it stands for."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:  # of a user who is not known here
        raise BadInput(f"{name}: no such home folder; write the path without a ~") from error


def without_temporary_names(text: str) -> str:
    """A message in which the files being written are called by the names that they will have."""
    return _TEMPORARY.sub(r"\1", text)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _replace(path: Path, new: Path) -> None:
    """Renames `new` to `path`. A folder there is set aside first and removed last: no kill leaves half of one."""
    if not path.is_dir():
        new.rename(path)
        return
    old = path.with_name(f".{path.name}.{os.getpid()}.old.unfinished")
    remove(old)
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    remove(old)


def _flush(place: Path) -> None:
    """To the disk itself: what is in a folder first, then the folder."""
    if place.is_dir() and place.name.endswith(".unfinished"):
        for entry in place.iterdir():
            _flush(entry)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
