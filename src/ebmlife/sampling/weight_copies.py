"""Copies of a network for walks: each walk has one to itself, so that all of its steps see the same weights."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput

# A thread that changes weights while others walk holds this lock: a walk that begins then has all of the change or
# none of it.
changing_weights = threading.RLock()
os.register_at_fork(
    before=changing_weights.acquire,
    after_in_parent=changing_weights.release,
    after_in_child=changing_weights.release,
)
_ATTEMPTS = 100  # to copy weights that change without the lock


def versions(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Changes when a tensor is replaced by another, or written in place other than through `.data`."""
    return [(tensor.data_ptr(), tensor._version) for tensor in tensors]


class Copy:
    """A network with the weights that another one had at one moment."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.keep = True  # for further walks
        self._seen: list[tuple[int, int]] | None = None

    def follow(self, source: nn.Module, *, always: bool) -> None:
        """Takes the weights of `source`; unless `always`, only if they have changed otherwise than through `.data`."""
        with changing_weights:
            for _ in range(_ATTEMPTS):
                seen = versions(_tensors(source))
                if seen == self._seen and not always:
                    return
                with torch.no_grad():
                    for target, tensor in zip(_tensors(self.net), _tensors(source), strict=True):
                        target.copy_(tensor)
                if versions(_tensors(source)) == seen:
                    self._seen = seen
                    return
        raise BadInput(
            "the weights kept changing while Langevin sampling was about to start; "
            "hold ebmlife.sampling.weight_copies.changing_weights while you change them"
        )


def _tensors(net: nn.Module) -> list[Tensor]:
    return [*net.parameters(), *net.buffers()]


def _marks(net: nn.Module) -> list[tuple[int, int]]:
    """Changes when a parameter is replaced or written in place; buffers may count steps."""
    return [(id(p), p._version) for p in net.parameters() if not p.is_inference()]


C = TypeVar("C", bound=Copy)


@dataclass
class Walk(Generic[C]):
    always: bool
    copy: C | None = None  # of the network, once a step has needed one
    original: list[tuple[int, int]] | None = None  # marks of the network, once a step was on itself and not on a copy


class Copies(Generic[C]):
    """The copies of `net` that `make` makes: one for each walk at a time, used again by later walks.

    There is no lock, which a forked child could find locked: taking from a list and giving back to it are atomic.
    """

    def __init__(self, net: nn.Module, make: Callable[[], C]) -> None:
        self._net, self._make = net, make
        self._free: list[C] = []
        self._here = threading.local()  # `walks`: those of this thread, the innermost last

    @contextmanager
    def walk(self, *, always: bool = True) -> Iterator[None]:
        """Within, `current` gives this thread one copy, with the weights of the first time that it is asked for.

        `always` is that of `Copy.follow`. BadInput at the end if a step was on the network itself, and weights have
        changed since.
        """
        walk = Walk[C](always)
        self._walks().append(walk)
        try:
            yield
        except BaseException:  # also an interrupt, after which other threads may still work with the copy
            walk.copy = None
            raise
        finally:
            self._walks().pop()
            if walk.copy is not None and walk.copy.keep:
                self._free.append(walk.copy)
        if walk.original is not None and walk.original != _marks(self._net):
            raise BadInput("the weights changed during a walk on the network itself; let it walk on a copy of them")

    def current(self) -> C | None:
        """The copy of this thread's walk; None if it is on none."""
        walks = self._walks()
        if not walks:
            return None
        walk = walks[-1]
        if walk.copy is None:
            walk.copy = self._taken(always=walk.always)
        return walk.copy

    def note_original(self) -> None:
        """A step of this thread's walk, if it is on one, is on the network itself: its weights may not change then."""
        for walk in self._walks()[-1:]:
            if walk.original is None:
                walk.original = _marks(self._net)

    def _walks(self) -> list[Walk[C]]:
        walks: list[Walk[C]] = self._here.__dict__.setdefault("walks", [])
        return walks

    def _taken(self, *, always: bool) -> C:
        try:
            copy = self._free.pop()
        except IndexError:
            copy = self._make()
        copy.follow(self._net, always=always)
        return copy
