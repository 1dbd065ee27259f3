"""The fastest gradient of a network's energy that this machine has. The network's mathematics stay in its `forward`."""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from ebmlife.energy import Energy, gradient, tempered
from ebmlife.errors import BadInput, nearest
from ebmlife.native import Program, Unsupported, fingerprint

_FEWEST = 8  # images: of a block that is less than full, more is wasted than won
Precision = Literal["auto", "f32", "bf16"]
Compile = Literal["auto", "on", "off"]


def prepare(
    net: nn.Module, *, temperature: float = 1.0, precision: Precision = "f32", compile: Compile = "auto"
) -> Energy:
    """net(x) / temperature, whose gradient along a Langevin walk is taken the fastest way there is.

    - "f32": exact. ReLU networks of convolutions run in a compiled program on the CPU, anything else under autograd.
    - "bf16": the network in bfloat16, states and updates in float32. Rounding puts some activations on the other side
      of 0, and with them their part of the gradient: its cosine with the exact one is about 0.998.
    - "auto": bf16 where the hardware computes in it, else f32; never where it would be emulated.

    Where PyTorch does the work, `compile="on"` lets it compile the network (up to a minute, cached on disk) and "auto"
    does so on CUDA only, which is unmeasured. `net` can go on learning: each walk takes the weights of its beginning.
    """
    choices = {"auto": has_bf16(_device(net)), "f32": False, "bf16": True}
    if precision not in choices:
        raise BadInput(f"unknown precision {precision!r}{nearest(precision, choices)}")
    compiled = {"auto": _device(net).type == "cuda", "on": True, "off": False}
    if compile not in compiled:
        raise BadInput(f"unknown compile {compile!r}{nearest(compile, compiled)}")
    walked = (_Half if choices[precision] else _Full)(net, compiled[compile])
    return walked if temperature == 1 else tempered(walked, temperature)


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


class _Threads:
    """PyTorch's own threads, kept asleep beside the program's: woken by each small operation of a step, they spin for
    milliseconds on the very cores that the next gradient needs."""

    def __init__(self) -> None:
        self._lock, self._walks, self._count = threading.Lock(), 0, 1

    def count(self) -> int:
        """How many there are when they are awake."""
        with self._lock:
            return self._count if self._walks else torch.get_num_threads()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        with self._lock:
            if self._walks == 0:
                self._count = torch.get_num_threads()
                torch.set_num_threads(1)
            self._walks += 1
        try:
            yield
        finally:
            with self._lock:
                self._walks -= 1
                if self._walks == 0:
                    torch.set_num_threads(self._count)


_threads = _Threads()


class _Full(nn.Module):
    """float32: by the compiled program where there is one for this network and these states, else by autograd."""

    def __init__(self, net: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.net, self._compiled = net, compiled
        self._torch = [_by_torch(net, compiled)]  # in a list: it is no submodule of its own
        self._programs: dict[tuple[tuple[int, ...], int], Program | None] = {}  # by shape of a state, size of a block

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu" or len(x) < _FEWEST:
            return gradient(self._torch[0], x)
        threads = _threads.count()
        shape, images = tuple(x.shape[1:]), 8 if len(x) < 16 * threads else 16  # work for every thread
        if (shape, images) not in self._programs:
            self._programs[shape, images] = _program(self.net, shape, images)
        program = self._programs[shape, images]
        return gradient(self._torch[0], x) if program is None else program(x, threads=threads)

    @contextmanager
    def walking(self) -> Iterator[None]:
        for program in self._programs.values():
            if program is not None:
                program.forget()
        if not any(self._programs.values()):
            yield
            return
        with _threads.asleep():
            yield

    def __deepcopy__(self, memo: dict[int, object]) -> "_Full":
        return _Full(copy.deepcopy(self.net, memo), self._compiled)  # programs point into this one's weights


def _program(net: nn.Module, shape: tuple[int, ...], images: int) -> Program | None:
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in net.parameters()):
        return None
    try:
        return Program(net, shape, images=images)
    except Unsupported:
        return None


class _Half(nn.Module):
    """A bfloat16 copy of the network for the gradient; the copy follows the weights."""

    def __init__(self, net: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.net, self._compiled = net, compiled
        self._copy = [self._halved()]  # in a list: it is no submodule, its weights are not to be trained or saved
        self._torch = [_by_torch(self._copy[0], compiled)]
        self._fingerprint = fingerprint(self.net)

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        if fingerprint(self.net) != self._fingerprint:
            self._follow()
        half = x.detach().bfloat16()
        if half.ndim == 4:
            half = half.contiguous(memory_format=torch.channels_last)
        return gradient(self._torch[0], half).to(x.dtype).contiguous()

    def _halved(self) -> nn.Module:
        half = copy.deepcopy(self.net).bfloat16().eval().requires_grad_(False)
        return half.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def _follow(self) -> None:
        half = self._copy[0]
        for target, source in zip(
            (*half.parameters(), *half.buffers()), (*self.net.parameters(), *self.net.buffers()), strict=True
        ):
            target.copy_(source)
        self._fingerprint = fingerprint(self.net)

    @contextmanager
    def walking(self) -> Iterator[None]:
        self._follow()
        yield

    def __deepcopy__(self, memo: dict[int, object]) -> "_Half":
        return _Half(copy.deepcopy(self.net, memo), self._compiled)


def _by_torch(net: nn.Module, compiled: bool) -> Energy:
    """The network as PyTorch runs it; dynamic, as the last batch may be smaller."""
    if not compiled:
        return net
    compiled_net: Energy = torch.compile(net, dynamic=True)
    return compiled_net


def _device(net: nn.Module) -> torch.device:
    return next((p.device for p in net.parameters()), torch.device("cpu"))
