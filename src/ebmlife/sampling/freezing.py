"""Flags of networks that are off for as long as any thread needs them off."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

_Key = tuple[int, str]  # id of the owner, name of the flag

_lock = threading.Lock()
_held: dict[_Key, tuple[nn.Module | Tensor, list[int]]] = {}  # what was on: the owner, and the threads that need it off


@contextmanager
def turned_off(net: nn.Module) -> Iterator[None]:
    """Within, `requires_grad` of parameters and `training` of modules are off; what was on is on again at the end.

    Where several threads need them off, that is the end of the last of them.
    """
    thread = threading.get_ident()
    with _lock:
        mine = _turn_off(net, thread)
    try:
        yield
    finally:
        with _lock:
            for key in mine:
                _held[key][1].remove(thread)
                _turn_on_if_free(key)


def _turn_off(net: nn.Module, thread: int) -> list[_Key]:
    mine = []
    flags: list[tuple[nn.Module | Tensor, str]] = [(parameter, "requires_grad") for parameter in net.parameters()]
    flags += [(module, "training") for module in net.modules()]
    for owner, name in flags:
        key = id(owner), name
        if key not in _held and getattr(owner, name):
            setattr(owner, name, False)
            _held[key] = owner, []
        if key in _held:
            _held[key][1].append(thread)
            mine.append(key)
    return mine


def _turn_on_if_free(key: _Key) -> None:
    owner, threads = _held[key]
    if not threads:
        setattr(owner, key[1], True)
        del _held[key]


def _in_child() -> None:
    """Other threads are not in a forked child."""
    for key in list(_held):
        threads = _held[key][1]
        threads[:] = [thread for thread in threads if thread == threading.get_ident()]
        _turn_on_if_free(key)
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
