"""Operations that change files, counted as they are about to happen: a command can be killed before any of them.

Most of them raise audit events of Python. Those that have none (fsync, safetensors' writing, the exchange of two names)
are wrapped.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

_CHANGES = {
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod"),
    "fcntl.flock",
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def kill_before(number: int) -> None:
    """From now on: SIGKILL before this process's operation of that number, counted from 1."""
    watch_operations(lambda reached, _: os.kill(os.getpid(), signal.SIGKILL) if reached == number else None)


def count_operations(file: Path) -> None:
    """From now on: the number of this process's operations so far is in the file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    watch_operations(lambda reached, _: os.pwrite(descriptor, str(reached).encode(), 0))


def watch_operations(reached: Callable[[int, str], object], *, within: Path = Path("/")) -> None:
    """Calls `reached(number, what)` before each of this process's operations on files inside `within`."""
    import safetensors.torch

    from ebmlife.storage import atomic

    numbers, process = count(1), os.getpid()

    def operation(name: str, place: Any) -> None:
        with contextlib.suppress(TypeError, OSError, ValueError):
            path = Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else Path(os.fsdecode(place))
            if os.getpid() == process and path.absolute().is_relative_to(within):
                reached(next(numbers), f"{name} {path}")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            operation("open", arguments[0])
        elif event in _CHANGES:
            operation(event, arguments[0].fileno() if hasattr(arguments[0], "fileno") else arguments[0])

    def before(module: Any, name: str, argument: int) -> None:
        original = getattr(module, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            operation(name, arguments[argument])
            return original(*arguments, **options)

        setattr(module, name, wrapped)

    before(os, "fsync", 0)
    before(atomic, "_exchange", 0)
    before(safetensors.torch, "serialize_file", 1)
    sys.addaudithook(hook)
