"""Operations that change files, counted as they are about to happen: a command can be killed before any of them."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def kill_before(number: int) -> None:
    """From now on: SIGKILL before this process's operation of that number, counted from 1."""
    _watch(lambda count: os.kill(os.getpid(), signal.SIGKILL) if count == number else None)


def count_operations(file: Path) -> None:
    """From now on: the number of this process's operations so far is in the file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    _watch(lambda count: os.pwrite(descriptor, str(count).encode(), 0))


def _watch(call: Callable[[int], object]) -> None:
    """Calls with 1, 2, 3 before each operation. What Python opens, renames and removes is audited; fsync is not."""
    count, process, flush = 0, os.getpid(), os.fsync

    def operation() -> None:
        nonlocal count
        if os.getpid() == process:
            count += 1
            call(count)

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
            operation()

    def counted_flush(descriptor: int) -> None:
        operation()
        flush(descriptor)

    os.fsync = counted_flush  # type: ignore[assignment]
    sys.addaudithook(audited)
