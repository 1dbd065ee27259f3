"""The fastest way to a network's energy gradient on this machine. The network's mathematics stay in its `forward`."""

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

_FEWEST = 8  # images: a block that is not full wastes more than it gains
Precision = Literal["auto", "f32", "bf16"]
Compile = Literal["auto", "on", "off"]


def prepare(
    net: nn.Module, *, temperature: float = 1.0, precision: Precision = "f32", compile: Compile = "auto"
) -> Energy:
    """Returns the energy net(x) / temperature with the fastest gradient that this machine has.

    `net` can be trained further: each call of `langevin` uses the weights at its start, in every thread. Where PyTorch
    computes in float32, sampling uses `net` itself, and changing its weights meanwhile is an error. A thread that
    changes several weights while another may start sampling must hold
    `ebmlife.sampling.weight_copies.changing_weights`.

    Args:
        net: The network, from states (B, ...) to one number per state (B,).
        temperature: Divides the network's output.
        precision: "f32" is exact; ReLU networks of convolutions run in a compiled program on the CPU, others under
            autograd. "bf16" runs the network in bfloat16, with states and updates in float32; rounding changes the
            sign of some activations, and the cosine of the gradient with the exact one is about 0.998. "auto" is bf16
            where the hardware computes in it, else f32.
        compile: Whether PyTorch compiles the network where it does the work: "on" (up to a minute, cached on disk),
            "off", or "auto", which is on for CUDA only and has not been measured.

    Returns:
        The energy, a module with methods `forward` and `gradient`.

    Raises:
        BadInput: If `precision` or `compile` is unknown.
    """
    choices = {"auto": has_bf16(_device(net)), "f32": False, "bf16": True}
    if precision not in choices:
        raise BadInput(f"unknown precision {precision!r}{nearest(precision, choices)}")
    compiled = {"auto": _device(net).type == "cuda", "on": True, "off": False}
    if compile not in compiled:
        raise BadInput(f"unknown compile {compile!r}{nearest(compile, compiled)}")
    energy = (_Half if choices[precision] else _Full)(net, compiled[compile])
    return energy if temperature == 1 else tempered(energy, temperature)


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


class _Full(nn.Module):
    """The energy in float32: by the compiled program where it supports the network and the states, else by autograd."""

    def __init__(self, net: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.net, self._compiled = net, compiled
        self._torch = [_by_torch(net, compiled)]  # in a list, so that it is not registered as a submodule
        self._copies = Copies(net, lambda: _Programs(net))
        self._programmed: dict[tuple[tuple[int, ...], int], bool] = {}  # by shape of a state and size of a block

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        count = torch_threads.awake()
        key = tuple(x.shape[1:]), 8 if len(x) < 16 * count else 16  # so that every thread has work
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
        return _Full, (self.net, self._compiled)  # programs and copies are rebuilt


class _Programs(Copy):
    """A copy of the network with its compiled programs."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(_copied(net))
        self._programs: dict[tuple[tuple[int, ...], int], Program] = {}

    def program(self, shape: tuple[int, ...], images: int) -> Program:
        """Returns the program for states of this shape and blocks of this many images, or raises Unsupported."""
        if (shape, images) not in self._programs:
            self.keep = bool(self._programs)  # a copy without any program is dropped
            self._programs[shape, images] = Program(self.net, shape, images=images)
            self.keep = True
        return self._programs[shape, images]


def _copied(net: nn.Module) -> nn.Module:
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in net.parameters()):
        raise Unsupported("weights of another type or on another device")
    try:
        return copy.deepcopy(net)
    except Exception as error:  # any network can be given, and autograd can do the work
        raise Unsupported(f"{type(error).__name__}: {error}") from error


class _Half(nn.Module):
    """The energy whose gradient is that of a bfloat16 copy of the network. The copy follows the weights."""

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
    """A copy of the network in bfloat16, run by PyTorch."""

    def __init__(self, net: nn.Module, compiled: bool) -> None:
        half = copy.deepcopy(net).bfloat16().eval().requires_grad_(False)
        super().__init__(half.to(memory_format=torch.channels_last))
        self.torch = _by_torch(self.net, compiled)


def _by_torch(net: nn.Module, compiled: bool) -> Energy:
    """Returns the network, compiled or not. Shapes are dynamic because the last batch may be smaller."""
    if not compiled:
        return net
    compiled_net: Energy = torch.compile(net, dynamic=True)
    return compiled_net


def _device(net: nn.Module) -> torch.device:
    return next((p.device for p in net.parameters()), torch.device("cpu"))
