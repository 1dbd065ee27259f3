"""The energy that is learned: energies, and the gradient of a loss of them with respect to the weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ebmlife.sampling import torch_threads
from ebmlife.sampling.energy import Energy, tempered
from ebmlife.sampling.native import Unsupported, WeightGradients
from ebmlife.sampling.native.library import build_ahead

_FEWEST = 64  # images: with fewer, reading the weights into the program costs more than it gains in wide networks


def learned_energy(net: nn.Module, *, temperature: float = 1.0) -> Energy:
    """Returns the energy net(x) / temperature with the fastest gradient of its weights that this machine has.

    Energies and gradients are those of `net` up to the rounding of float32, whatever the precision of sampling: where
    data and samples are alike, their gradients nearly cancel, and the rounding of bfloat16 would be a sixth of what is
    left. On the CPU the compiled program computes both in one pass, if it supports the network. That pass assumes the
    loss of maximum likelihood, the mean energy of the first half of x minus that of the second half. Any other loss is
    exact too, and costs a second pass. One thread at a time may learn.

    Args:
        net: The network, from states (B, ...) to one number per state (B,).
        temperature: Divides the network's output.

    Returns:
        The energy, a module.
    """
    if all(p.device.type == "cpu" for p in net.parameters()):
        build_ahead(pairs=False)
    return tempered(_Learned(net, temperature), temperature)


class _Learned(nn.Module):
    def __init__(self, net: nn.Module, temperature: float) -> None:
        super().__init__()
        self.net, self.temperature = net, temperature
        self._programs: dict[tuple[int, ...], WeightGradients | None] = {}

    def forward(self, x: Tensor) -> Tensor:
        weights = [p for p in self.net.parameters() if p.requires_grad]
        program = self._program(x) if torch.is_grad_enabled() and weights and not x.requires_grad else None
        if program is None:
            energy: Tensor = self.net(x)
            return energy
        found: Tensor = _Energies.apply(program, x, self._expected(len(x)), *weights)
        return found

    def _expected(self, images: int) -> Tensor:
        """dL / dE(x) of each image for L = mean of the first half - mean of the second half, divided by T."""
        signs = torch.ones(images)
        signs[images // 2 :] = -1
        return signs / (images // 2) / self.temperature  # in this order, as autograd does it, for the same bits

    def _program(self, x: Tensor) -> WeightGradients | None:
        tensors = x, *self.net.parameters()
        if len(x) < _FEWEST or any(t.dtype != torch.float32 or t.device.type != "cpu" for t in tensors):
            return None
        shape = tuple(x.shape[1:])
        if shape not in self._programs:
            try:
                self._programs[shape] = WeightGradients(self.net, shape)
            except Unsupported:
                self._programs[shape] = None
        return self._programs[shape]

    def __reduce__(self) -> tuple[object, ...]:
        return _Learned, (self.net, self.temperature)


class _Energies(torch.autograd.Function):
    """E(x), with the gradient for the expected dL / dE(x) computed beside it."""

    @staticmethod
    def forward(ctx: Any, program: WeightGradients, x: Tensor, expected: Tensor, *weights: Tensor) -> Tensor:
        energies, ctx.gradients = _learn(program, x, expected)
        ctx.program, ctx.expected = program, expected
        ctx.save_for_backward(x, *weights)  # an error in `backward` if they are changed before it
        return energies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *factors: Tensor) -> tuple[Tensor | None, ...]:
        x, *_ = ctx.saved_tensors
        if not torch.equal(factors[0], ctx.expected):
            _, ctx.gradients = _learn(ctx.program, x, factors[0])
        return None, None, None, *ctx.gradients


def _learn(program: WeightGradients, x: Tensor, factors: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    threads = torch_threads.awake()
    with torch_threads.walking(asleep=True):
        return program.learn(x, factors, threads=threads)
