"""PyTorch's own threads, kept asleep during walks of the compiled program.

Woken by each small operation of a step, they spin for milliseconds on the very cores that the next gradient needs.
PyTorch keeps their number for each thread that calls it, so each walk sets and restores it in its own thread.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_here = threading.local()  # `sleeps`: how many of them this thread is in
_sleeps, _count = 0, 1  # of all threads; how many threads PyTorch has when they are awake
_walked = False  # whether there was a walk in this process


def awake() -> int:
    """How many threads PyTorch has when they are not asleep."""
    with _lock:
        return _count if _sleeps else torch.get_num_threads()


@contextmanager
def walking(*, asleep: bool) -> Iterator[None]:
    """For a walk: if `asleep`, PyTorch works in the calling thread alone until the end."""
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
    """Returns the number of threads to wake up to."""
    global _sleeps, _count
    before = torch.get_num_threads()
    with _lock:
        if _sleeps == 0:
            _count = before
        elif before == 1 and not _sleeps_here():  # a thread that first calls PyTorch during another's walk inherits 1
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
    """A forked child has neither the walks of other threads nor the threads of OpenMP, for which it would wait."""
    global _sleeps
    if _walked:
        torch.set_num_threads(1)
    _sleeps = _sleeps_here()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
