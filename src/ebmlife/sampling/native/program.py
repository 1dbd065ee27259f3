"""The gradient of a network's energy with respect to x, by the compiled library: see program.c."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ebmlife.sampling.native.library import Layout, Operation, library
from ebmlife.sampling.native.lowering import lower
from ebmlife.sampling.native.packing import Packed, split, tiled
from ebmlife.sampling.native.steps import Op, Read, Step, Unsupported
from ebmlife.sampling.native.strips import in_strips, neighbors, places
from ebmlife.sampling.native.winograd import accelerated
from ebmlife.sampling.weight_copies import versions

_BAND_BYTES = 1 << 18  # of the source that a band of pixels reads: half of a usual cache of a core


class Program:
    """x (B, C, H, W) -> grad E(x), for one network and one shape of x. Weights are read again when they have changed.

    Its workspaces are its own: it is called by one thread at a time, and the weights do not change meanwhile.
    `images` is the size of a block, 8 or 16: one block is one thread's work. It changes no bit of the result. With
    `half`, weights and feature maps are bfloat16; sums, x and the gradient are float32. With `strips`, images are cut
    into that many, and a block holds fewer of them: see strips.py.
    `learning` is for `WeightGradients`.
    """

    def __init__(
        self,
        net: nn.Module,
        shape: tuple[int, ...],
        *,
        images: int = 16,
        half: bool = False,
        strips: int = 1,
        processor: str = "native",
        learning: bool = False,
    ) -> None:
        compiled = library(images, half, processor)
        if compiled is None:
            raise Unsupported("no compiled library")
        self._library, self._images, self._half = compiled, images, half
        self._tile_sizes = tuple(takewhile(bool, compiled.tile_sizes()))
        self._net = net
        plan = lower(net, shape, learning=learning)
        if strips > 1:
            plan = in_strips(plan, strips)
        self._steps, self._maps = accelerated(plan.steps, plan.maps)
        self._forget = plan.forget
        sizes = {name: found.pixels * self._across(name) for name, found in self._maps.items()}
        offsets, self._lanes = _offsets(self._steps, sizes, (plan.output, plan.energy))
        self._strips, self._kept = strips, places(shape[2], shape[1] * shape[2], strips)  # arrays that C points at
        self._neighbors = {crossed: neighbors(images, strips, crossed=crossed) for crossed in (False, True)}
        self._layout = Layout(
            *(offsets[name] for name in (plan.input, plan.output, plan.energy)),
            shape[0],
            shape[1] * shape[2],
            strips,
            self._maps[plan.input].pixels,
            *(array.ctypes.data for array in self._kept),
        )
        self._split: dict[int, NDArray[np.int32]] = {}
        self._packed: dict[Read, Packed] = {}
        self._learned: dict[Read, Sums] = {}
        operations = [self._operation(step, offsets) for step in self._steps]
        self._operations = (Operation * len(operations))(*operations)
        self._workspaces: list[Tensor] = []
        self._versions: list[tuple[int, int]] = []

    def __call__(self, x: Tensor, *, threads: int, energy: Tensor | None = None) -> Tensor:
        """The gradient; `energy` (B,), where it is given, is filled with E(x)."""
        self._refresh()
        x = x.detach().contiguous()
        gradient = torch.empty_like(x)
        given = x.data_ptr(), gradient.data_ptr(), None if energy is None else energy.data_ptr()
        self._in_threads(len(x), threads, lambda worker, cut: self._call(self._library.run, worker, *given, *cut))
        return gradient

    def _in_threads(self, images: int, threads: int, work: Callable[[int, tuple[int, int]], None]) -> int:
        """Calls `work` with the number of each worker and the images that are its part, and returns how many there
        are."""
        each = self._images // self._strips
        blocks = -(-images // each)
        workers = max(1, min(threads, blocks))
        cuts = [min(images, each * (blocks * i // workers)) for i in range(workers + 1)]
        while len(self._workspaces) < workers:
            self._workspaces.append(_aligned(self._lanes * self._images))
        parts = list(enumerate(pairwise(cuts)))
        waiting = [_pool().submit(work, *part) for part in parts[1:]]
        work(*parts[0])
        for future in waiting:
            future.result()
        return workers

    def _call(self, function: Callable[..., None], worker: int, *arguments: int | None) -> None:
        """Calls a function of the library with the operations, a worker's memory and the further arguments."""
        function(
            self._operations,
            len(self._operations),
            self._workspaces[worker].data_ptr(),
            self._layout,
            *arguments,
        )

    def _in_pairs(self, name: str) -> bool:
        return self._half and not self._maps[name].exact

    def _across(self, name: str) -> int:
        """Lanes of a pixel of a map."""
        channels = self._maps[name].channels
        return (channels + 1) // 2 if self._in_pairs(name) else channels

    def _tiles(self, outputs: int) -> NDArray[np.int32]:
        """The sizes of tiles for so many output channels, with 0 after the last; kept for the program to point at."""
        if outputs not in self._split:
            self._split[outputs] = np.array([*split(outputs, self._tile_sizes), 0], np.int32)
        return self._split[outputs]

    @torch.no_grad()
    def _refresh(self) -> None:
        found = versions((*self._net.parameters(), *self._net.buffers()))
        if found == self._versions:
            return
        for read, packed in self._packed.items():
            packed.memory.copy_(tiled(read(), packed) if packed.tiles is not None else read())
        self._forget()
        self._versions = found

    def _operation(self, step: Step, offsets: dict[str, int]) -> Operation:
        taps = step.taps
        first = step.first_pixel * self._across(step.target) if step.target else 0
        if taps is not None and len(taps.first) != (step.pixels if step.band is None else step.places) + 1:
            raise Unsupported("taps that do not fit their map")

        def offset(name: str | None) -> int:
            return -1 if name is None else offsets[name] + first

        activation = step.activation if step.gate is None else step.gate.activation
        source, other = offsets.get(step.source, 0), offset(step.other)
        if step.band is not None:
            source += step.band.first_source * step.inputs
            other += step.band.first_result * step.outputs
        return Operation(
            kind=step.kind,
            source=source,
            target=offset(step.target) if step.learned is None else self._sums(step),
            other=other,
            gate=offset(step.gate.map if step.gate else None),
            gating=activation.gating,
            activation=step.activation.number,
            derivative=offset(step.derivative),
            source_pairs=step.source in self._maps and self._in_pairs(step.source),
            target_pairs=step.target in self._maps and self._in_pairs(step.target),
            pixels=step.pixels,
            inputs=step.inputs,
            outputs=step.outputs,
            first_tap=None if taps is None else taps.first.ctypes.data,
            tap_pixel=self._tap_pixels(step),
            tap_value=None if taps is None else taps.value.ctypes.data,
            weights=self._weights(step),
            bias=self._place(step.bias, step.outputs),
            tiles=self._tiles(step.outputs).ctypes.data,
            kernel=step.places,
            band=_band(step, bytes_each=self._images * (2 if self._half else 4)),
            parameter=activation.parameter,
            epsilon=activation.epsilon,
        )

    def _tap_pixels(self, step: Step) -> int | None:
        if step.kind is Op.GHOST:
            return int(self._neighbors[step.crossed].ctypes.data)
        return None if step.taps is None else int(step.taps.pixel.ctypes.data)

    def _sums(self, step: Step) -> int:
        """Where the gradient of weights will lie, in floats. Several steps may add to it."""
        assert step.learned is not None
        if step.learned not in self._learned:
            shape = (step.outputs,) if step.kind is Op.BIASES else (step.outputs, step.inputs, step.places)
            first = sum(math.prod(sums.shape) for sums in self._learned.values())
            self._learned[step.learned] = Sums(first, shape)
        return self._learned[step.learned].first

    def _weights(self, step: Step) -> int | None:
        if step.kind is not Op.CONVOLVE:
            return self._place(step.weight, max(step.inputs, step.outputs))
        inputs = (step.inputs + 1) // 2 if self._half else step.inputs
        size = step.outputs * inputs * step.places
        return self._place(
            step.weight, size, tiles=self._tiles(step.outputs), transform=step.transform, half=self._half
        )

    def _place(
        self,
        read: Read | None,
        size: int,
        *,
        tiles: NDArray[np.int32] | None = None,
        transform: Tensor | None = None,
        half: bool = False,
    ) -> int | None:
        """Where the weights will lie that `read` gives; steps may share them."""
        if read is None:
            return None
        if read not in self._packed:
            memory = torch.empty(size, dtype=torch.int32 if half else torch.float32)
            self._packed[read] = Packed(memory, tiles, transform)
        return self._packed[read].memory.data_ptr()


@dataclass(frozen=True)
class Sums:
    """A place for the gradient of weights."""

    first: int
    shape: tuple[int, ...]  # (outputs,) of biases, (outputs, inputs, places) of a kernel


def _band(step: Step, *, bytes_each: int) -> int:
    """How many pixels of a convolution's result to compute at a time: at most 32, fewer where they read too much."""
    if step.band is not None:
        return step.band.sources
    if step.taps is None or step.kind is not Op.CONVOLVE:
        return step.pixels
    most = _BAND_BYTES // (bytes_each * max(step.inputs, 1))  # pixels of the source
    band = min(32, step.pixels)
    while band > 1 and len(np.unique(step.taps.pixel[: step.taps.first[band]])) > most:
        band -= 1
    return band


def _offsets(steps: list[Step], sizes: dict[str, int], results: Sequence[str]) -> tuple[dict[str, int], int]:
    """Places for all maps in one workspace, and its size; a map that is not read any more gives its place back."""
    last = {name: i for i, step in enumerate(steps) for name in _read_by(step)}
    last |= dict.fromkeys(results, len(steps))
    live: dict[str, int] = {}
    offsets: dict[str, int] = {}
    written = [(i, name) for i, step in enumerate(steps) for name in (step.target, step.derivative) if name]
    given = [(-1, name) for name in sizes if name not in {name for _, name in written}]  # x
    total = 0
    for i, name in [*given, *written]:
        live = {other: offset for other, offset in live.items() if last.get(other, -1) >= i}
        if name in offsets:  # a further band of it
            continue
        offset = 0
        for other in sorted(live, key=live.__getitem__):
            if live[other] - offset >= sizes[name]:
                break
            offset = max(offset, live[other] + sizes[other])
        offsets[name] = live[name] = offset
        total = max(total, offset + sizes[name])
    return offsets, total


def _read_by(step: Step) -> list[str]:
    """The maps that a step reads. A map that a step writes must not lie where it still reads another."""
    gate = step.gate.map if step.gate else None
    names = (step.source, step.other, gate, step.target, step.derivative)
    return [name for name in names if name]


def _aligned(floats: int) -> Tensor:
    """Uninitialized memory at an address that vectors of 64 bytes may be loaded from."""
    memory = torch.empty(floats + 16)
    return memory[(-memory.data_ptr() % 64) // 4 :]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads of our own: OpenMP's spin while they wait, and on a shared machine that stops the work itself."""
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="ebmlife")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not follow into a child
