"""The fastest gradient of a network's energy that this machine has. The network's mathematics stay in its `forward`."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput, nearest
from ebmlife.sampling import torch_threads
from ebmlife.sampling.energy import Energy, gradient, tempered
from ebmlife.sampling.native import Program, Unsupported
from ebmlife.sampling.weight_copies import Copies, Copy

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
    does so on CUDA only, which is unmeasured.

    `net` can go on learning: each walk takes the weights of its beginning, also if several threads walk. Where PyTorch
    does the work in float32, the walk is on `net` itself, and is a BadInput if weights change meanwhile. A thread that
    changes several weights while another may begin a walk holds `ebmlife.sampling.weight_copies.changing_weights`.
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


class _Full(nn.Module):
    """float32: by the compiled program where there is one for this network and these states, else by autograd."""

    def __init__(self, net: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.net, self._compiled = net, compiled
        self._torch = [_by_torch(net, compiled)]  # in a list: it is no submodule of its own
        self._copies = Copies(net, lambda: _Programs(net))
        self._programmed: dict[tuple[tuple[int, ...], int], bool] = {}  # by shape of a state and size of a block

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        count = torch_threads.awake()
        key = tuple(x.shape[1:]), 8 if len(x) < 16 * count else 16  # work for every thread
        fits = x.dtype == torch.float32 and x.device.type == "cpu" and len(x) >= _FEWEST
        if fits and self._programmed.get(key, True):
            try:
                copied = self._copies.current()
                if copied is None:
                    with self._copies.walk(always=False):
                        return self.gradient(x)
                program = copied.program(*key)
                self._programmed[key] = True
                return program(x, threads=count)
            except Unsupported:
                self._programmed[key] = False
        self._copies.note_original()
        return gradient(self._torch[0], x)

    @contextmanager
    def walking(self) -> Iterator[None]:
        with torch_threads.walking(asleep=any(self._programmed.values())), self._copies.walk():
            yield

    def __reduce__(self) -> tuple[object, ...]:
        return _Full, (self.net, self._compiled)  # programs and copies are made again


class _Programs(Copy):
    """A copy with its programs."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(_copied(net))
        self._programs: dict[tuple[tuple[int, ...], int], Program] = {}

    def program(self, shape: tuple[int, ...], images: int) -> Program:
        """For states of this shape and blocks of so many, or Unsupported."""
        if (shape, images) not in self._programs:
            self.keep = bool(self._programs)  # until there is one
            self._programs[shape, images] = Program(self.net, shape, images=images)
            self.keep = True
        return self._programs[shape, images]


def _copied(net: nn.Module) -> nn.Module:
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in net.parameters()):
        raise Unsupported("weights of another type or on another device")
    try:
        return copy.deepcopy(net)
    except Exception as error:  # whatever a stranger's network holds, autograd can do the work
        raise Unsupported(f"{type(error).__name__}: {error}") from error


class _Half(nn.Module):
    """A bfloat16 copy of the network for the gradient; the copy follows the weights."""

    def __init__(self, net: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.net, self._compiled = net, compiled
        self._copies = Copies(net, lambda: _Halved(net, compiled))

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        copied = self._copies.current()
        if copied is None:
            with self._copies.walk(always=False):
                return self.gradient(x)
        half = x.detach().bfloat16()
        if half.ndim == 4:
            half = half.contiguous(memory_format=torch.channels_last)
        return gradient(copied.torch, half).to(x.dtype).contiguous()

    @contextmanager
    def walking(self) -> Iterator[None]:
        with torch_threads.walking(asleep=False), self._copies.walk():
            yield

    def __reduce__(self) -> tuple[object, ...]:
        return _Half, (self.net, self._compiled)


class _Halved(Copy):
    """A copy in bfloat16, as PyTorch runs it."""

    def __init__(self, net: nn.Module, compiled: bool) -> None:
        half = copy.deepcopy(net).bfloat16().eval().requires_grad_(False)
        super().__init__(half.to(memory_format=torch.channels_last))
        self.torch = _by_torch(self.net, compiled)


def _by_torch(net: nn.Module, compiled: bool) -> Energy:
    """The network as PyTorch runs it; dynamic, as the last batch may be smaller."""
    if not compiled:
        return net
    compiled_net: Energy = torch.compile(net, dynamic=True)
    return compiled_net


def _device(net: nn.Module) -> torch.device:
    return next((p.device for p in net.parameters()), torch.device("cpu"))
