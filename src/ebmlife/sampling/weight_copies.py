"""Copies of a network for sampling. Each chain run has its own, so that all of its steps see the same weights."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput

# A thread that changes weights while others sample holds this lock: sampling that begins then sees all of the change
# or none of it.
changing_weights = threading.RLock()
os.register_at_fork(
    before=changing_weights.acquire,
    after_in_parent=changing_weights.release,
    after_in_child=changing_weights.release,
)
_ATTEMPTS = 100  # to copy weights that change without the lock


def versions(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Returns marks that change when a tensor is replaced, or written in place other than through `.data`."""
    return [(tensor.data_ptr(), tensor._version) for tensor in tensors]


class Copy:
    """A network with the weights that another one had at one moment."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.keep = True  # for later use

    def follow(self, source: nn.Module) -> None:
        """Copies the weights of `source` that have changed. They are compared: not every change counts as a version."""
        with changing_weights:
            for _ in range(_ATTEMPTS):
                seen = versions(_tensors(source))
                with torch.no_grad():
                    for target, tensor in zip(_tensors(self.net), _tensors(source), strict=True):
                        if not torch.equal(
                            target, tensor.to(target.dtype)
                        ):  # otherwise, values derived from the copy are still valid
                            target.copy_(tensor)
                if versions(_tensors(source)) == seen:
                    return
        raise BadInput(
            "the weights kept changing while Langevin sampling was about to start; "
            "hold ebmlife.sampling.weight_copies.changing_weights while you change them"
        )


def _tensors(net: nn.Module) -> list[Tensor]:
    return [*net.parameters(), *net.buffers()]


def _marks(net: nn.Module) -> list[tuple[int, int]]:
    """Returns marks that change when a parameter does. Buffers are left out: they may count steps."""
    return [(id(p), p._version) for p in net.parameters() if not p.is_inference()]


C = TypeVar("C", bound=Copy)


@dataclass
class _Use(Generic[C]):
    """One `with` block of `Copies.walk`."""

    copy: C | None = None  # of the network, once a step has needed one
    original: list[tuple[int, int]] | None = None  # marks of the network, once a step used the network itself


class Copies(Generic[C]):
    """Copies of `net` that `make` creates: one for each use at a time, which later uses take again.

    There is no lock, which a forked child could find locked: appending to a list and popping from it are atomic.
    """

    def __init__(self, net: nn.Module, make: Callable[[], C]) -> None:
        self._net, self._make = net, make
        self._free: list[C] = []
        self._here = threading.local()  # `uses`: those of this thread, the innermost last

    @contextmanager
    def walk(self) -> Iterator[None]:
        """Gives this thread one copy within a `with` block, with the weights at the first call of `current`.

        Raises:
            BadInput: At the end, if a step used the network itself and its weights have changed since.
        """
        use = _Use[C]()
        self._uses().append(use)
        try:
            yield
        except BaseException:  # also an interrupt, after which other threads may still work with the copy
            use.copy = None
            raise
        finally:
            self._uses().pop()
            if use.copy is not None and use.copy.keep:
                self._free.append(use.copy)
        if use.original is not None and use.original != _marks(self._net):
            raise BadInput(
                "the weights changed while Langevin sampling used the network itself; "
                "sample from a copy of the network, such as copy.deepcopy(net)"
            )

    def current(self) -> C | None:
        """Returns this thread's copy, or None outside of `walk`."""
        uses = self._uses()
        if not uses:
            return None
        use = uses[-1]
        if use.copy is None:
            use.copy = self._take()
        return use.copy

    def note_original(self) -> None:
        """Notes that a step uses the network itself, whose weights may not change until the end of `walk`."""
        for use in self._uses()[-1:]:
            if use.original is None:
                use.original = _marks(self._net)

    def _uses(self) -> list[_Use[C]]:
        uses: list[_Use[C]] = self._here.__dict__.setdefault("uses", [])
        return uses

    def _take(self) -> C:
        try:
            copy = self._free.pop()
        except IndexError:
            copy = self._make()
        copy.follow(self._net)
        return copy
