"""Atomic writing of files and folders, and reading of untrusted JSON files."""

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
_DEEPEST = 64  # levels of JSON, far more than ebmlife writes
_EXCHANGE, _CWD = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`. The file or folder written there is renamed to `path` at the end.

    After an error, nothing is left and `path` is unchanged. Unfinished files that a killed process of this machine left
    for the same `path` are removed.

    Raises:
        BadInput: The file cannot be written, because the disk is full or read-only, for example.
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
        with suppress(OSError):  # the parent has been removed, or is not a folder
            remove(unfinished)
        leftovers.end(unfinished)


def sweep(folder: Path) -> None:
    """Removes unfinished files of killed processes from a folder that no other process writes to.

    A folder that was being replaced, and is missing, is put back.
    """
    for path in folder.glob(".*.unfinished"):
        _clear(path)


def read_json(file: Path) -> Any:
    """Returns the content of a JSON file. Raises BadInput if it is unreadable, not JSON, or nested too deeply."""
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
    """Returns the cache: in $XDG_CACHE_HOME, or in ~/.cache if that is unset, empty or relative."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else home() / ".cache") / "ebmlife"


def home() -> Path:
    """Returns $HOME, or the system's home folder of the user if that is unset, empty or relative.

    Raises:
        BadInput: Neither exists.
    """
    named = Path(os.environ.get("HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise BadInput("this user has no home folder; set XDG_CACHE_HOME to a folder for the cache") from None


def can_be_made(folder: Path) -> None:
    """Raises BadInput if the folder cannot be written. It is called before hours of work."""
    existing = next(place for place in (folder, *folder.parents) if place.exists() or place == place.parent)
    if not existing.is_dir():
        raise BadInput(f"cannot write {folder}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise BadInput(f"cannot write {folder}: no permission to write in {existing}")


def located(name: str | Path) -> Path:
    """Returns the path, with a leading ~ replaced by the home folder."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:  # no such user on this machine
        raise BadInput(f"{name}: no such home folder; write the path without a ~") from error


def without_temporary_names(text: str) -> str:
    """Returns the message with temporary names of files replaced by their final names."""
    return _TEMPORARY.sub(r"\1", text)


def remove(path: Path) -> None:
    """Removes a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Removes a folder atomically: a kill leaves no part of it under its name."""
    renamed = _temporary(folder)
    folder.rename(renamed)
    remove(renamed)


def _replace(path: Path, new: Path) -> None:
    """Renames `new` to `path`. If a folder is at `path`, the two are exchanged in one step.

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
    """Exchanges two names in one step; False if the system cannot do that."""
    rename = _renameat2()
    return rename is not None and rename(_CWD, os.fsencode(one), _CWD, os.fsencode(other), _EXCHANGE) == 0


@functools.cache
def _renameat2() -> Any:
    with suppress(OSError, AttributeError):
        return ctypes.CDLL(None).renameat2
    return None


@functools.cache
def _machine() -> str:
    """Returns a name of this machine for temporary names: process ids are valid on one machine only."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}.unfinished")


def _alive(unfinished: Path) -> bool:
    """Whether the process that writes it, on this machine, is still running."""
    number = unfinished.name.removesuffix(_OLD).removesuffix(".unfinished").rpartition("-")[2]
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _flush(place: Path) -> None:
    """Flushes a file to the disk, or the content of an unfinished folder and then the folder."""
    if place.is_dir() and place.name.endswith(".unfinished"):
        for entry in place.iterdir():
            _flush(entry)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
