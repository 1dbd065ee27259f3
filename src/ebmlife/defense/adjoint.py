"""The exact gradient through the Langevin loop, in memory that grows with the square root of its length."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor, nn

from ebmlife.sampling.energy import Energy, curvature, frozen, gradient
from ebmlife.sampling.loop import langevin
from ebmlife.sampling.rng import PerImageNoise

Curvature = Callable[[Energy, Tensor, Tensor], Tensor]  # E, x, v -> H(x) v


@dataclass(frozen=True)
class PullInfo:
    """What `pull_back` measured."""

    norms: Tensor  # (segments + 1, B): |v| of each chain, from its end (first row) to its beginning (last row)
    stored: int  # the largest number of states in memory at once


def pull_back(
    energy: Energy,
    x: Tensor,
    v: Tensor,
    *,
    steps: int,
    step_size: float,
    noise: PerImageNoise,
    clip: float | None = None,
    curved: Curvature = curvature,
) -> tuple[Tensor, PullInfo]:
    """Returns v^T dT/dx, with T the Langevin chain from x under this noise: v <- v - (step_size**2 / 2) H(x_k) v,
    from the last step to the first.

    The chain is walked once, and every sqrt(steps)-th state is kept. Each segment is then walked again under the same
    noise, which gives the same bits, and v passes through its states. A gradient that overflows or underflows keeps its
    direction: its largest entry becomes 2**100 or 2**-120.

    Args:
        energy: The energy of the chain.
        x: Where the chains start (B, ...).
        v: The gradient at the end of the chains (B, ...).
        steps: Number of Langevin steps.
        step_size: Langevin step size.
        noise: The noise of the chains, at its beginning.
        clip: Longest drift of a step; None does not clip.
        curved: The Hessian-vector product (energy, x, v) -> H(x) v.

    Returns:
        The gradient at x, and its norms along the chain.
    """
    length = isqrt(max(steps - 1, 0)) + 1
    counts = [min(length, steps - first) for first in range(0, steps, length)]
    marks = []
    for count in counts:
        marks.append((x, noise.position()))
        x, _ = langevin(energy, x, steps=count, step_size=step_size, noise=noise, clip=clip)
    v, exponent = _scaled(v)
    norms, stored = [_norms(v, exponent)], 0
    for i in reversed(range(len(counts))):
        start, place = marks[i]
        noise.seek(place)
        states = _states(energy, start, steps=counts[i], step_size=step_size, noise=noise, clip=clip)
        stored = max(stored, len(marks) + len(states))
        with frozen(energy, walking=False):
            while states:
                v = _through_step(energy, states.pop(), v, step_size=step_size, clip=clip, curved=curved)
        v, more = _scaled(v)
        exponent = exponent + more
        norms.append(_norms(v, exponent))
    return torch.ldexp(v, exponent.clamp(-120, 100)), PullInfo(torch.stack(norms), stored)


def _through_step(
    energy: Energy, x: Tensor, v: Tensor, *, step_size: float, clip: float | None, curved: Curvature
) -> Tensor:
    """Returns v^T dx'/dx of one step from x. Where `clip` shortens the gradient g to length c, the derivative of the
    gradient is (c / |g|) (I - g g^T / |g|^2) H."""
    pulled = v if clip is None else _through_clip(gradient(energy, x), v, longest=2 * clip / step_size**2)
    return v - step_size**2 / 2 * curved(energy, x, pulled)


def _through_clip(grad: Tensor, v: Tensor, *, longest: float) -> Tensor:
    g, flat = grad.flatten(1), v.flatten(1)
    lengths = g.norm(dim=1, keepdim=True)
    unit = g / lengths.clamp_min(torch.finfo(g.dtype).tiny)
    across = (flat - unit * (unit * flat).sum(1, keepdim=True)) * longest / lengths
    return torch.where(lengths > longest, across, flat).view_as(v)


class _Recorded(nn.Module):
    """An energy that records each state at which the loop evaluates its gradient."""

    def __init__(self, energy: Energy) -> None:
        super().__init__()
        self.energy = energy
        self.states: list[Tensor] = []

    def gradient(self, x: Tensor) -> Tensor:
        self.states.append(x.clone())
        return gradient(self.energy, x)


def _states(
    energy: Energy, x: Tensor, *, steps: int, step_size: float, noise: PerImageNoise, clip: float | None
) -> list[Tensor]:
    """Returns the states x_0 .. x_(steps-1) of a chain, as the loop itself visits them."""
    recorded = _Recorded(energy)
    langevin(recorded, x, steps=steps, step_size=step_size, noise=noise, clip=clip)
    return recorded.states


def _scaled(v: Tensor) -> tuple[Tensor, Tensor]:
    """Returns v divided by a power of two for each chain, without rounding, and the exponents (B, 1, ...)."""
    exponent = torch.frexp(v.flatten(1).abs().amax(1)).exponent.clamp(-120, 120).view(-1, *[1] * (v.ndim - 1))
    return torch.ldexp(v, -exponent), exponent


def _norms(v: Tensor, exponent: Tensor) -> Tensor:
    return v.double().flatten(1).square().sum(1).sqrt() * exponent.flatten().double().exp2()
