"""The gradient of a network's energy with respect to x, by the compiled library: see program.c."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ebmlife.sampling.native.library import Operation, library
from ebmlife.sampling.native.lowering import lower
from ebmlife.sampling.native.steps import Step, Unsupported
from ebmlife.sampling.native.winograd import accelerated
from ebmlife.sampling.weight_copies import versions

_BAND_BYTES = 1 << 18  # of the source that a band of pixels reads: half of a usual cache of a core


class Program:
    """x (B, C, H, W) -> grad E(x), for one network and one shape of x. Weights are read anew when they have changed.

    Its workspaces are its own: it is called by one thread at a time, and the weights do not change meanwhile.
    `images` is the size of a block, 8 or 16: one block is one thread's work. It changes no bit of the result.
    """

    def __init__(self, net: nn.Module, shape: tuple[int, ...], *, images: int = 16) -> None:
        compiled = library(images)
        if compiled is None:
            raise Unsupported("no compiled library")
        self._run, self._tile, self._images = compiled.run, compiled.tile_size(), images
        self._net = net
        plan = lower(net, shape)
        self._steps, sizes = accelerated(plan.steps, plan.sizes)
        self._channels, self._pixels = shape[0], shape[1] * shape[2]
        offsets, self._lanes = _offsets(self._steps, sizes, plan.output)
        self._input, self._output = offsets[plan.input], offsets[plan.output]
        self._packed: dict[Callable[[], Tensor], _Packed] = {}
        operations = [self._operation(step, offsets) for step in self._steps]
        self._operations = (Operation * len(operations))(*operations)
        self._workspaces: list[Tensor] = []
        self._versions: list[tuple[int, int]] = []

    def __call__(self, x: Tensor, *, threads: int) -> Tensor:
        self._refresh()
        x = x.detach().contiguous()
        gradient = torch.empty_like(x)
        blocks = -(-len(x) // self._images)
        workers = max(1, min(threads, blocks))
        cuts = [min(len(x), self._images * (blocks * i // workers)) for i in range(workers + 1)]
        while len(self._workspaces) < workers:
            self._workspaces.append(_aligned(self._lanes * self._images))

        def work(worker: int) -> None:
            self._run(
                self._operations,
                len(self._operations),
                self._workspaces[worker].data_ptr(),
                self._input,
                self._output,
                self._channels,
                self._pixels,
                x.data_ptr(),
                gradient.data_ptr(),
                cuts[worker],
                cuts[worker + 1],
            )

        waiting = [_pool().submit(work, worker) for worker in range(1, workers)]
        work(0)
        for future in waiting:
            future.result()
        return gradient

    @torch.no_grad()
    def _refresh(self) -> None:
        found = versions((*self._net.parameters(), *self._net.buffers()))
        if found == self._versions:
            return
        for read, packed in self._packed.items():
            packed.memory.copy_(_tiled(read(), packed) if packed.tile else read())
        self._versions = found

    def _operation(self, step: Step, offsets: dict[str, int]) -> Operation:
        taps, size = step.taps, step.outputs * max(step.inputs, 1) * step.places
        first = step.first_pixel * step.outputs
        if taps is not None and len(taps.first) != step.pixels + 1:
            raise Unsupported("taps that do not fit their map")
        return Operation(
            kind=step.kind,
            source=offsets.get(step.source, 0),
            target=offsets[step.target] + first,
            other=-1 if step.other is None else offsets[step.other] + first,
            mask=-1 if step.mask is None else offsets[step.mask] + first,
            rectify=step.rectify,
            pixels=step.pixels,
            inputs=step.inputs,
            outputs=step.outputs,
            first_tap=None if taps is None else taps.first.ctypes.data,
            tap_pixel=None if taps is None else taps.pixel.ctypes.data,
            tap_value=None if taps is None else taps.value.ctypes.data,
            weights=self._place(step.weight, size, tile=self._tile if taps else 0, transform=step.transform),
            bias=self._place(step.bias, step.outputs),
            kernel=step.places,
            band=_band(step, bytes_each=4 * self._images),
        )

    def _place(
        self, read: Callable[[], Tensor] | None, size: int, *, tile: int = 0, transform: Tensor | None = None
    ) -> int | None:
        """Where the weights will lie that `read` gives; steps may share them."""
        if read is None:
            return None
        if read not in self._packed:
            self._packed[read] = _Packed(torch.empty(size), tile, transform)
        return self._packed[read].memory.data_ptr()


@dataclass(frozen=True)
class _Packed:
    """Weights as the program reads them."""

    memory: Tensor
    tile: int  # outputs of a tile; 0: as they are
    transform: Tensor | None  # of the places of their kernel


def _band(step: Step, *, bytes_each: int) -> int:
    """How many pixels of a convolution's result to compute at a time: at most 32, fewer where they read too much."""
    if step.taps is None:
        return step.pixels
    most = _BAND_BYTES // (bytes_each * max(step.inputs, 1))  # pixels of the source
    band = min(32, step.pixels)
    while band > 1 and len(np.unique(step.taps.pixel[: step.taps.first[band]])) > most:
        band -= 1
    return band


def _tiled(weight: Tensor, packed: _Packed) -> Tensor:
    """(outputs, inputs, places) -> [tile][place][input][output of the tile], flat; the last tile may be smaller.

    Transformed last: there are fewer places before, and so less to permute.
    """
    whole = len(weight) // packed.tile * packed.tile
    full = weight[:whole].reshape(-1, packed.tile, *weight.shape[1:]).permute(0, 3, 2, 1).flatten(2)
    rest = weight[whole:].permute(2, 1, 0).flatten(1)
    if packed.transform is not None:
        full, rest = packed.transform @ full, packed.transform @ rest
    return torch.cat([full.flatten(), rest.flatten()])


def _offsets(steps: list[Step], sizes: dict[str, int], output: str) -> tuple[dict[str, int], int]:
    """Places for all maps in one workspace, and its size; a map that is not read any more gives its place back."""
    last = {name: i for i, step in enumerate(steps) for name in (step.source, step.other, step.mask) if name}
    last[output] = len(steps)
    live: dict[str, int] = {}
    offsets: dict[str, int] = {}
    names = [name for name in sizes if name not in {step.target for step in steps}]  # x
    total = 0
    for i, name in [*((-1, name) for name in names), *((i, step.target) for i, step in enumerate(steps))]:
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


def _aligned(floats: int) -> Tensor:
    """Uninitialised memory at an address that vectors of 64 bytes may be loaded from."""
    memory = torch.empty(floats + 16)
    return memory[(-memory.data_ptr() % 64) // 4 :]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads of our own: OpenMP's spin while they wait, and on a shared machine that stops the work itself."""
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="ebmlife")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not follow into a child
