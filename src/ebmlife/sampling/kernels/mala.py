"""The Metropolis-adjusted Langevin algorithm."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels.interface import (
    Info,
    State,
    check_energy,
    check_step_size,
    lengths,
    per_chain,
    shorten,
)
from ebmlife.sampling.kernels.metropolis import (
    WARM_UP,
    Point,
    adapt,
    check_adaptation,
    evaluate,
    first_point,
    metropolis,
    select,
)
from ebmlife.sampling.rng import Noise

TARGET = 0.574  # acceptance at which MALA is most efficient in many dimensions (Roberts and Rosenthal, 1998)


@dataclass
class MALAState(State):
    """States, their energies and gradients, the step size in use, and counts."""

    x: Tensor
    energy: Tensor  # (B,)
    gradient: Tensor
    log_step_size: Tensor  # ()
    accepted: Tensor  # (B,): sum of acceptance probabilities after the warm-up
    steps: Tensor  # (): number of steps so far


@dataclass(frozen=True)
class MALA:
    """Metropolis-adjusted Langevin: a Langevin step is a proposal, which each chain accepts or rejects.

    The proposal y = x - d(x) + h z, d(x) = (h^2 / 2) grad E(x), z ~ N(0, I), is accepted with probability
    min(1, exp(E(x) - E(y)) q(x | y) / q(y | x)), log q(y | x) = -|y - x + d(x)|^2 / (2 h^2). A rejected chain keeps its
    state. After the warm-up, exp(-E) is exactly invariant for every h.

    Args:
        step_size: h, the standard deviation of the noise of one step; the initial value if there is a warm-up.
        clip: Largest length of d(x); the test accounts for it.
        warm_up: Number of steps in which h is adapted to the target, one h for all chains of a batch.
        target: Acceptance rate that the warm-up aims at.
    """

    step_size: float
    clip: float | None = None
    warm_up: int = WARM_UP
    target: float = TARGET

    def __post_init__(self) -> None:
        check_step_size("mala", self.step_size)
        check_adaptation("mala", self.target, self.warm_up)

    def init(self, energy: Energy, x: Tensor, noise: Noise) -> MALAState:
        check_energy("mala", energy)
        start = first_point(energy, x.detach().clone(memory_format=torch.contiguous_format))
        log_size = torch.tensor(math.log(self.step_size), dtype=torch.float64, device=x.device)
        counts = torch.zeros_like(start.energy, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        return MALAState(start.x, start.energy, start.gradient, log_size, *counts)

    def step(self, energy: Energy, state: MALAState, noise: Noise) -> tuple[MALAState, Info]:
        done, log_size = int(state.steps), state.log_step_size
        sizes = log_size.exp().to(state.energy).expand(len(state.x))
        current = Point(state.x, state.energy, state.gradient)
        proposed, log_ratio = propose(energy, current, sizes, noise(state.x), clip=self.clip)
        taken, probability = metropolis(log_ratio, noise)
        chosen, accepted = select(taken, proposed, current), state.accepted
        if done < self.warm_up:
            log_size = adapt(log_size, probability.mean(), target=self.target, step=done)
        else:
            accepted = accepted + probability
        after = MALAState(chosen.x, chosen.energy, chosen.gradient, log_size, accepted, state.steps + 1)
        return after, Info(gradient=lengths(current.gradient).mean(), acceptance=probability)

    def report(self, state: MALAState) -> dict[str, Any]:
        return {"step_size": state.log_step_size.exp().item()} | mean_acceptance(state, self.warm_up)

    def settings(self) -> dict[str, Any]:
        return {"kind": "mala", **asdict(self)}


def propose(
    energy: Energy,
    current: Point,
    sizes: Tensor,
    z: Tensor,
    *,
    clip: float | None = None,
    temperatures: Tensor | float = 1.0,
) -> tuple[Point, Tensor]:
    """Returns Langevin proposals for the energy E / temperature, and the logarithms (B,) of their acceptance ratios.

    Energies and gradients of points are those of E. `sizes` and `temperatures` have one value for each state.
    """
    h = per_chain(sizes, current.x)
    proposed = evaluate(energy, current.x - _drift(current, sizes, clip, temperatures) + h * z)
    # The noise that would lead back. |z|^2 - |back|^2 as a product, which loses fewer digits than the difference.
    back = (current.x - proposed.x + _drift(proposed, sizes, clip, temperatures)) / h
    log_q = ((z - back) * (z + back)).reshape(len(z), -1).sum(1) / 2
    log_ratio = (current.energy - proposed.energy) / temperatures + log_q
    return proposed, torch.where(proposed.energy == torch.inf, -torch.inf, log_ratio)


def _drift(point: Point, sizes: Tensor, clip: float | None, temperatures: Tensor | float) -> Tensor:
    """(h^2 / 2) grad E(x) / temperature, shortened to `clip`."""
    factors = sizes**2 / (2 * temperatures)
    if clip is not None:
        factors = factors * shorten(factors * lengths(point.gradient), to=clip)
    return per_chain(factors, point.x) * point.gradient


def mean_acceptance(state: Any, warm_up: int) -> dict[str, float]:
    """Returns the acceptance rate since the warm-up, over all chains; nothing before its end."""
    counted = int(state.steps) - warm_up
    return {"acceptance": state.accepted.mean().item() / counted} if counted > 0 else {}
