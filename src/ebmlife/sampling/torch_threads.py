"""Keeps PyTorch's own threads idle while the compiled program samples.

Each small operation of a step would wake them, and they then spin for milliseconds on the cores that the next gradient
needs. PyTorch keeps the number of threads per calling thread, so each sampling sets and restores it in its own.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_here = threading.local()  # `sleeps`: how often this thread has put PyTorch's threads to sleep
_sleeps, _count = 0, 1  # the same over all threads; the number of PyTorch's threads when they are awake
_walked = False  # whether this process has sampled


def awake() -> int:
    """Returns the number of PyTorch's threads when they are not asleep."""
    with _lock:
        return _count if _sleeps else torch.get_num_threads()


@contextmanager
def walking(*, asleep: bool) -> Iterator[None]:
    """Marks a `with` block that samples. If `asleep`, PyTorch uses only the calling thread in it."""
    global _walked
    _walked = True
    if not asleep:
        yield
        return
    before = _fall_asleep()
    try:
        yield
    finally:
        _wake_up(before)


def _fall_asleep() -> int:
    """Returns the number of threads to restore."""
    global _sleeps, _count
    before = torch.get_num_threads()
    with _lock:
        if _sleeps == 0:
            _count = before
        elif before == 1 and not _sleeps_here():  # a new thread inherits the 1 of another's block
            before = _count
        _sleeps += 1
    _here.sleeps = _sleeps_here() + 1
    torch.set_num_threads(1)
    return before


def _wake_up(threads: int) -> None:
    global _sleeps
    torch.set_num_threads(threads)
    _here.sleeps -= 1
    with _lock:
        _sleeps -= 1


def _sleeps_here() -> int:
    return getattr(_here, "sleeps", 0)


def _in_child() -> None:
    """Resets the state in a forked child, which would otherwise wait forever for OpenMP's threads."""
    global _sleeps
    if _walked:
        torch.set_num_threads(1)
    _sleeps = _sleeps_here()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
