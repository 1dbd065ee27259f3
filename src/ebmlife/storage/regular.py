"""Reads regular files only: opening a FIFO waits for its writer, and a device may be endless."""

import os
import stat
from io import BufferedReader
from pathlib import Path

from ebmlife.errors import BadInput


def check(path: Path) -> Path:
    """Returns the path of a regular file, for libraries that open files themselves. Raises BadInput for others."""
    _refuse_odd(path, path.stat())
    return path


def opened(path: Path) -> BufferedReader:
    """Opens a file for reading; links are followed."""
    check(path)
    # O_NONBLOCK: the path may have become a FIFO since the check.
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _refuse_odd(path, os.fstat(stream.fileno()))
    except BadInput:
        stream.close()
        raise
    return stream


def read(path: Path, *, most: int | None = None) -> bytes:
    """Returns the content of a file. Raises BadInput if it is longer than `most` bytes."""
    with opened(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if most is not None and size > most:
            raise BadInput(f"{path}: {size} bytes, expected at most {most}; remove the file")
        return stream.read(-1 if most is None else most)


def _refuse_odd(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise BadInput(f"{path}: a {_kind(about.st_mode)}, expected a regular file")


def _kind(mode: int) -> str:
    names = {stat.S_ISDIR: "folder", stat.S_ISFIFO: "FIFO", stat.S_ISSOCK: "socket"}
    return next((name for matches, name in names.items() if matches(mode)), "device")
