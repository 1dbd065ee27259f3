"""Turns off `requires_grad` and `training` of networks for as long as any thread needs them off."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

_Key = tuple[int, str]  # id of the owner, name of the flag

_lock = threading.Lock()
_held: dict[
    _Key, tuple[nn.Module | Tensor, list[int]]
] = {}  # flags that were on: the owner, and the threads that need them off


@contextmanager
def flags_off(net: nn.Module) -> Iterator[None]:
    """Turns off `requires_grad` of parameters and `training` of modules within a `with` block.

    Flags that were on are restored at the end of the block; if several threads are inside, at the end of the last one.
    """
    thread = threading.get_ident()
    with _lock:
        keys = _turn_off(net, thread)
    try:
        yield
    finally:
        with _lock:
            for key in keys:
                _held[key][1].remove(thread)
                _turn_on_if_free(key)


def _turn_off(net: nn.Module, thread: int) -> list[_Key]:
    keys = []
    flags: list[tuple[nn.Module | Tensor, str]] = [(parameter, "requires_grad") for parameter in net.parameters()]
    flags += [(module, "training") for module in net.modules()]
    for owner, name in flags:
        key = id(owner), name
        if key not in _held and getattr(owner, name):
            setattr(owner, name, False)
            _held[key] = owner, []
        if key in _held:
            _held[key][1].append(thread)
            keys.append(key)
    return keys


def _turn_on_if_free(key: _Key) -> None:
    owner, threads = _held[key]
    if not threads:
        setattr(owner, key[1], True)
        del _held[key]


def _in_child() -> None:
    """Forgets the other threads, which a forked child does not have."""
    for key in list(_held):
        threads = _held[key][1]
        threads[:] = [thread for thread in threads if thread == threading.get_ident()]
        _turn_on_if_free(key)
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
