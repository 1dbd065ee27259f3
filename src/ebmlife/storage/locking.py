"""The lock of a folder, which only one process holds at a time."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

from ebmlife.errors import BadInput, InUse

LOCK = ".lock"  # the file that is locked
_held: set[tuple[Path, int, int, str]] = set()  # (folder, process, thread, kind of work) of the locks held here


@contextmanager
def locked(folder: Path, *, kind: str = "work", within: tuple[str, ...] = ()) -> Iterator[None]:
    """Locks the folder against other processes and threads. The lock ends with its process, even if that is killed.

    A thread that holds it for a kind of work named in `within` holds it for this kind too.
    """
    here = folder.resolve(), os.getpid(), threading.get_ident()
    mine = (*here, kind)
    covered = mine not in _held and any((*here, outer) in _held for outer in within)
    with nullcontext() if covered else _lock_file(folder):
        _held.add(mine)
        try:
            yield
        finally:
            _held.discard(mine)


@contextmanager
def _lock_file(folder: Path) -> Iterator[None]:
    file = folder / LOCK
    while True:
        try:
            stream = file.open("w")
        except OSError as error:
            raise BadInput(f"cannot write {folder}: {error.strerror}") from error
        with stream:
            _lock(stream, folder)
            if _is_current(stream, file):
                yield
                return


def _lock(stream: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InUse(f"{folder} is in use by another process; wait for it or stop it") from error
    except OSError as error:
        raise BadInput(f"cannot lock {folder}: {error.strerror}") from error


def _is_current(stream: IO[str], file: Path) -> bool:
    """Whether the locked file still exists. The previous holder may have removed it, and the lock would be useless."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), file.stat())
    except OSError:
        return False
