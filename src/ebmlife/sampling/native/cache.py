"""Compiled libraries on disk: each is used only if this user alone could write it and its checksum is right."""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ebmlife.sampling.native.trust import Untrusted, read_file, trusted

Build = Callable[[Path], None]  # writes the library to this path, which lies in a folder of its own

_UNFINISHED = ".build-"
_LONGEST_BUILD = 120.0  # seconds: then others stop waiting for it
_STALE = 3600.0  # seconds: a folder in the system's temporary folder that is older was left by a killed process


def find(folder: Path, name: str) -> Path | None:
    """The library of this name, or None if there is no sound one. Untrusted if others can write to the folder."""
    if not folder.is_dir():
        return None
    return next((file for file in trusted(folder).glob(f"{name}-*.so") if _is_sound(file)), None)


def make(folder: Path, name: str, build: Build) -> Path:
    """Returns the library of this name, and builds it if needed. One process builds at a time, and others wait.

    The file is written atomically, and its name ends with its checksum. Damaged and leftover files are removed first.
    """
    _make_private(folder)
    folder = trusted(folder)
    with _locked(folder) as alone:
        found = find(folder, name)
        if found is not None:
            return found
        if alone:
            _remove_leftovers(folder, name)
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as private:
            built = Path(private, "library.so")
            build(built)
            built.chmod(0o600)
            with built.open("rb") as stream:
                checksum = _checksum(stream.read())
                os.fsync(stream.fileno())
            return built.rename(folder / f"{name}-{checksum}.so")


@contextmanager
def made_for_now(build: Build) -> Iterator[Path]:
    """The library in a private temporary folder, which is removed at the end. A loaded library needs no file."""
    for left in Path(tempfile.gettempdir()).glob("ebmlife-build-*"):
        with suppress(OSError):
            found = left.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _STALE:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix="ebmlife-build-") as private:
        built = trusted(Path(private)) / "library.so"
        build(built)
        yield built


def _is_sound(file: Path) -> bool:
    try:
        return file.stem.endswith(f"-{_checksum(read_file(file))}")
    except Untrusted:
        return False


def _checksum(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()[:32]


def _make_private(folder: Path) -> None:
    """The folder and those above it that are missing, for this user alone."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Within: whether this process is the only one that builds here. A killed process loses its lock."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield _has_lock(descriptor)
    finally:
        os.close(descriptor)


def _has_lock(descriptor: int) -> bool:
    deadline = time.monotonic() + _LONGEST_BUILD
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return False
        else:
            return True


def _remove_leftovers(folder: Path, name: str) -> None:
    for left in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    for damaged in folder.glob(f"{name}-*.so"):
        damaged.unlink(missing_ok=True)
