"""Work that lasts for hours: stopped by signals where it can go on later, and by one process at a time."""

import fcntl
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ebmlife.errors import InUse


@dataclass
class Stop:
    wanted: bool = False


@contextmanager
def signals() -> Iterator[Stop]:
    """Within: SIGINT and SIGTERM ask for a stop at the next good moment; a second one kills as usual."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.wanted = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within, no other process works in the folder; the lock dies with its process."""
    with (folder / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(f"{folder} is in use by another process; wait for it or stop it") from error
        yield
