"""The exact gradient through the Langevin loop, in memory of the order of the square root of its length."""

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
    norms: Tensor  # (segments + 1, B): |v| of each chain from the chain's end (first) to its beginning (last)
    stored: int  # most states that were held at once


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
    """v^T dT/dx, T being `steps` Langevin steps from x under this noise: v <- v - (step_size**2 / 2) H(x_k) v,
    from the last step to the first.

    The chain is walked once to keep every sqrt(steps)-th state, and each stretch once more, under the same noise, to
    have its states (the same bits) while v passes through them. A gradient that grows or shrinks beyond what a float
    holds keeps its direction: its largest part is taken for 2**100 then, or for 2**-120.
    """
    length = isqrt(max(steps - 1, 0)) + 1
    counts = [min(length, steps - first) for first in range(0, steps, length)]
    marks = []
    for count in counts:
        marks.append((x, noise.place()))
        x, _ = langevin(energy, x, steps=count, step_size=step_size, noise=noise, clip=clip)
    v, exponent = _scaled(v)
    norms, stored = [_norms(v, exponent)], 0
    for i in reversed(range(len(counts))):
        start, place = marks[i]
        noise.go_to(place)
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
    """v^T dx'/dx of one step from x. Where `clip` shortens the slope s to length c, its derivative is
    (c / |s|) (I - s s^T / |s|^2) H."""
    pulled = v if clip is None else _through_clip(gradient(energy, x), v, longest=2 * clip / step_size**2)
    return v - step_size**2 / 2 * curved(energy, x, pulled)


def _through_clip(grad: Tensor, v: Tensor, *, longest: float) -> Tensor:
    s, flat = grad.flatten(1), v.flatten(1)
    lengths = s.norm(dim=1, keepdim=True)
    unit = s / lengths.clamp_min(torch.finfo(s.dtype).tiny)
    across = (flat - unit * (unit * flat).sum(1, keepdim=True)) * longest / lengths
    return torch.where(lengths > longest, across, flat).view_as(v)


class _Recorded(nn.Module):
    """An energy that keeps each state whose gradient the loop asks for."""

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
    """The states x_0 .. x_(steps-1) of a walk, by the loop itself."""
    recorded = _Recorded(energy)
    langevin(recorded, x, steps=steps, step_size=step_size, noise=noise, clip=clip)
    return recorded.states


def _scaled(v: Tensor) -> tuple[Tensor, Tensor]:
    """v divided by a power of two for each chain, which costs no bit of it, and the powers (B, 1, ...)."""
    exponent = torch.frexp(v.flatten(1).abs().amax(1)).exponent.clamp(-120, 120).view(-1, *[1] * (v.ndim - 1))
    return torch.ldexp(v, -exponent), exponent


def _norms(v: Tensor, exponent: Tensor) -> Tensor:
    return v.double().flatten(1).square().sum(1).sqrt() * exponent.flatten().double().exp2()
