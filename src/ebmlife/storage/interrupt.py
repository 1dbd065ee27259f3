"""Signals that stop long work at a point from which it can be resumed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Whether a signal has requested a stop."""

    requested: bool = False


@contextmanager
def signals() -> Iterator[Stop]:
    """Yields a `Stop` whose `requested` SIGINT and SIGTERM set. A second signal acts as usual."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
