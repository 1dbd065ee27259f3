"""The fastest way to a network's energy gradient on this machine. The network's mathematics stay in its `forward`."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput, nearest
from ebmlife.sampling import torch_threads
from ebmlife.sampling.energy import Energy, energy_and_gradient, gradient, tempered
from ebmlife.sampling.native import Program, Unsupported
from ebmlife.sampling.native.library import build_ahead
from ebmlife.sampling.precision import fastest
from ebmlife.sampling.weight_copies import Copies, Copy

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
        precision: "f32" is exact up to rounding. "bf16" rounds weights and feature maps to bfloat16; sums, states and
            updates are float32. Rounding changes the sign of some activations, and the cosine of the gradient with the
            exact one is about 0.99 to 0.998. "auto" takes the faster of the two where the processor computes in
            bfloat16, measured once for each network and shape of a batch, and f32 elsewhere. Networks of convolutions
            with ReLU, leaky ReLU, SiLU, softplus or soft leaky ReLU run in a compiled program on the CPU, in either
            precision; PyTorch runs all others.
        compile: Whether PyTorch compiles the network where it does the work: "on" (up to a minute, cached on disk),
            "off", or "auto", which is on for CUDA only and has not been measured.

    Returns:
        The energy, a module with methods `forward` and `gradient`.

    Raises:
        BadInput: If `precision` or `compile` is unknown.
    """
    choices = ("auto", "f32", "bf16")
    if precision not in choices:
        raise BadInput(f"unknown precision {precision!r}{nearest(precision, choices)}")
    compiled = {"auto": _device(net).type == "cuda", "on": True, "off": False}
    if compile not in compiled:
        raise BadInput(f"unknown compile {compile!r}{nearest(compile, compiled)}")
    if _device(net).type == "cpu":
        build_ahead(pairs=precision != "f32" and has_bf16(_device(net)))
    energy: nn.Module
    if precision == "auto" and has_bf16(_device(net)):
        energy = _Fastest(net, compiled[compile])
    else:
        energy = _Fast(net, compiled[compile], half=precision == "bf16")
    return energy if temperature == 1 else tempered(energy, temperature)


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


class Block(NamedTuple):
    """The places of a block of the compiled program, and the strips that each image is cut into."""

    places: int
    strips: int


_UNKNOWN = Block(0, 0)


def blocks(images: int) -> list[Block]:
    """Returns the blocks for so many images, the fullest first, without those of which more than three quarters are
    empty."""
    if images >= 8:
        return [Block(16 if images >= 16 else 8, 1)]
    found = [Block(places, strips) for places in (8, 16) for strips in (1, 2, 4, 8, 16) if images * strips <= places]
    full = [block for block in found if 4 * images * block.strips >= 8]
    return sorted(full, key=lambda block: (-images * block.strips, block.places))


class _Fast(nn.Module):
    """The energy in one precision: by the compiled program where it supports the network and the states, else by
    PyTorch, for bfloat16 on a copy of the network in that type."""

    def __init__(self, net: nn.Module, compiled: bool = False, half: bool = False) -> None:
        super().__init__()
        self.net, self._compiled, self._half = net, compiled, half
        self._saved_class_name = "_Half" if half else "_Full"  # as in the fingerprints of saved exams and attacks
        self._torch = [_by_torch(net, compiled)]  # in a list, so that it is not registered as a submodule
        self._programs = Copies(net, lambda: _Programs(net, half))
        self._halves = Copies(net, lambda: _Halved(net, compiled))
        self._blocks: dict[tuple[tuple[int, ...], int], Block | None] = {}  # by shape, and states of a thread

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        return self._gradient(x, None)

    def energy_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        energy = torch.full((len(x),), torch.nan, device=x.device)
        grad = self._gradient(x, energy)
        return energy, grad

    def _gradient(self, x: Tensor, energy: Tensor | None) -> Tensor:
        """Returns the gradient, and fills `energy` if it is given."""
        count = torch_threads.awake()
        key = tuple(x.shape[1:]), min(16, -(-len(x) // count))  # so that every thread has work
        fits = x.dtype == torch.float32 and x.device.type == "cpu" and len(x) > 0
        if fits and self._blocks.get(key, _UNKNOWN) is not None:
            try:
                copied = self._programs.current()
                if copied is None:
                    with self._programs.walk():
                        return self._gradient(x, energy)
                if key not in self._blocks:
                    self._blocks[key] = copied.fitting(*key)
                block = self._blocks[key]
                if block is not None:
                    return copied.program(key[0], block)(x, threads=count, energy=energy)
            except Unsupported:
                self._blocks[key] = None
        return self._by_halves(x, energy) if self._half else self._by_itself(x, energy)

    def _by_itself(self, x: Tensor, energy: Tensor | None) -> Tensor:
        self._programs.note_original()
        if energy is None:
            return gradient(self._torch[0], x)
        found, grad = energy_and_gradient(self._torch[0], x)
        energy.copy_(found)
        return grad

    def _by_halves(self, x: Tensor, energy: Tensor | None) -> Tensor:
        copied = self._halves.current()
        if copied is None:
            with self._halves.walk():
                return self._by_halves(x, energy)
        half = x.detach().bfloat16()
        if half.ndim == 4:
            half = half.contiguous(memory_format=torch.channels_last)
        if energy is not None:
            with torch.no_grad():
                energy.copy_(copied.torch(half))
        return gradient(copied.torch, half).to(x.dtype).contiguous()

    @contextmanager
    def walking(self) -> Iterator[None]:
        with (
            torch_threads.walking(asleep=any(self._blocks.values())),
            self._programs.walk(),
            self._halves.walk(),
        ):
            yield

    def __reduce__(self) -> tuple[object, ...]:
        return _Fast, (self.net, self._compiled, self._half)  # programs and copies are rebuilt


class _Fastest(nn.Module):
    """The energy in the precision that is faster on this machine, measured once for each shape of a batch."""

    def __init__(self, net: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.net, self._compiled = net, compiled
        self._by_precision = {half: [_Fast(net, compiled, half)] for half in (False, True)}  # not submodules
        self._chosen: dict[tuple[int, ...], _Fast] = {}

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        return self._choose(x).gradient(x)

    def energy_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._choose(x).energy_and_gradient(x)

    def _choose(self, x: Tensor) -> _Fast:
        key = tuple(x.shape)
        if key not in self._chosen:
            ways = {"bf16" if half else "f32": fast for half, (fast,) in self._by_precision.items()}
            name = fastest({name: fast.gradient for name, fast in ways.items()}, self.net, x)
            self._chosen[key] = ways[name]
        return self._chosen[key]

    @contextmanager
    def walking(self) -> Iterator[None]:
        with ExitStack() as stack:
            for (fast,) in self._by_precision.values():
                stack.enter_context(fast.walking())
            yield

    def __reduce__(self) -> tuple[object, ...]:
        return _Fastest, (self.net, self._compiled)


class _Programs(Copy):
    """A copy of the network with its compiled programs."""

    def __init__(self, net: nn.Module, half: bool) -> None:
        super().__init__(_copied(net))
        self._half = half
        self._programs: dict[tuple[tuple[int, ...], Block], Program] = {}

    def fitting(self, shape: tuple[int, ...], images: int) -> Block | None:
        """Returns the block that so many images of a thread fill best; None where too much of it would be empty."""
        for block in blocks(images):
            try:
                self.program(shape, block)
            except Unsupported:
                if block.strips == 1:
                    raise
                continue
            return block
        return None

    def program(self, shape: tuple[int, ...], block: Block) -> Program:
        """Returns the program for states of this shape and such blocks, or raises Unsupported."""
        if (shape, block) not in self._programs:
            self.keep = bool(self._programs)  # a copy without any program is dropped
            made = Program(self.net, shape, images=block.places, half=self._half, strips=block.strips)
            self._programs[shape, block] = made
            self.keep = True
        return self._programs[shape, block]


def _copied(net: nn.Module) -> nn.Module:
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in net.parameters()):
        raise Unsupported("weights of another type or on another device")
    try:
        return copy.deepcopy(net)
    except Exception as error:  # any network can be given, and autograd can do the work
        raise Unsupported(f"{type(error).__name__}: {error}") from error


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
