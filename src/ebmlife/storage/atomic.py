"""Files and folders that appear whole or not at all, and JSON that is read with suspicion."""

import ctypes
import functools
import json
import os
import platform
import pwd
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ebmlife.errors import BadInput
from ebmlife.storage import leftovers, regular

_TEMPORARY = re.compile(r"\.([^/\s'\"]+)\.[\w-]+(?:\.old)?\.unfinished")
_DEEPEST = 64  # of JSON: nothing that ebmlife writes comes near
_EXCHANGE, _CWD = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`; what is written there (a file or a folder) is renamed to it at the end.

    On an error nothing is left, and what lay at `path` before still does. What a killed process of this machine left
    of the same `path` is removed. A disk that is full or read-only is a BadInput that names the path.
    """
    unfinished = _temporary(path)
    try:
        leftovers.begin(unfinished)
        for left in path.parent.glob(f".{escape(path.name)}.{_machine()}-*.unfinished"):
            if not _alive(left) or left == unfinished:
                _clear(left)
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
    """Clears up after killed processes in a folder that no other process writes to.

    What they left unfinished is removed. A folder that was being replaced and has nothing in its place is put back.
    """
    for path in folder.glob(".*.unfinished"):
        _clear(path)


def read_json(file: Path) -> Any:
    """What a JSON file holds; BadInput where it cannot be read, is no JSON, or is nested deeper than anything here."""
    try:
        value = json.loads(regular.read(file))
        level, depth = [value], 0
        while level:
            level = [item for outer in level for item in _inside(outer)]
            depth += 1
            if depth > _DEEPEST:
                raise RecursionError
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise BadInput(f"{file} cannot be read: it is nested too deeply") from error
    except ValueError as error:
        raise BadInput(f"{file} cannot be read: it is not JSON ({error})") from error
    return value


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


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
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Removes a folder, which is gone at once: a kill leaves no part of it under its name."""
    doomed = _temporary(folder)
    folder.rename(doomed)
    remove(doomed)


def _replace(path: Path, new: Path) -> None:
    """Renames `new` to `path`. A folder there changes places with it in one step, so that there always is one.

    Where the file system cannot do that, the old folder is set aside first; `sweep` puts it back after a kill.
    """
    if not path.is_dir():
        new.rename(path)
        return
    if _exchange(path, new):
        return  # the old one is now called `new`, which the caller removes
    old = new.with_suffix(_OLD)
    remove(old)
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    remove(old)


_OLD = ".old.unfinished"


def _clear(unfinished: Path) -> None:
    replaced = unfinished.name.removesuffix(_OLD).rpartition(".")[0].removeprefix(".")
    if unfinished.name.endswith(_OLD) and not unfinished.with_name(replaced).exists():
        unfinished.rename(unfinished.with_name(replaced))
    remove(unfinished)


def _exchange(one: Path, other: Path) -> bool:
    """Two names change places, in one step; False where the system has none for that."""
    rename = _renameat2()
    return rename is not None and rename(_CWD, os.fsencode(one), _CWD, os.fsencode(other), _EXCHANGE) == 0


@functools.cache
def _renameat2() -> Any:
    with suppress(OSError, AttributeError):
        return ctypes.CDLL(None).renameat2
    return None


@functools.cache
def _machine() -> str:
    """Part of temporary names: processes are known by number on one machine only."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}.unfinished")


def _alive(unfinished: Path) -> bool:
    """Whether the process of this machine that writes it is still there."""
    number = unfinished.name.removesuffix(_OLD).removesuffix(".unfinished").rpartition("-")[2]
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


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
