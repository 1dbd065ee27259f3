"""Underdamped Langevin dynamics with a Metropolis test: generalized Hamiltonian Monte Carlo."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels.interface import Info, State, check_energy, check_step_size, lengths, per_chain, shorten
from ebmlife.sampling.kernels.mala import mean_acceptance
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

TARGET = 0.9  # higher than MALA's, because a rejection reverses the momentum


@dataclass
class UnderdampedState(State):
    """States with momenta, energies and gradients, the step size in use, and counts."""

    x: Tensor
    momentum: Tensor
    energy: Tensor  # (B,)
    gradient: Tensor
    log_step_size: Tensor  # ()
    accepted: Tensor  # (B,): sum of acceptance probabilities after the warm-up
    steps: Tensor  # (): number of steps so far


@dataclass(frozen=True)
class Underdamped:
    """Underdamped Langevin dynamics in the splitting OBABO, with a Metropolis test (GHMC).

    One step of size h with friction g, for exp(-E(x) - |p|^2 / 2):

        O: p <- exp(-g / 2) p + sqrt(1 - exp(-g)) N(0, I)
        B: p <- p - (h / 2) grad E(x)
        A: x <- x + h p
        B: p <- p - (h / 2) grad E(x)
        test of B, A and B: accept with probability min(1, exp(H_before - H_after)), H = E(x) + |p|^2 / 2;
              a rejected chain keeps its state and reverses its momentum
        O: as above

    For g -> infinity this is MALA with the same step size.

    Args:
        step_size: h; the initial value if there is a warm-up.
        friction: g, the friction times h: a momentum survives about 1 / g steps.
        clip: Largest length of h^2 / 2 grad E(x); B stays reversible, and the test accounts for it.
        warm_up: Number of steps in which h is adapted to the target, one h for all chains of a batch.
        target: Acceptance rate that the warm-up aims at.
    """

    step_size: float
    friction: float = 0.1
    clip: float | None = None
    warm_up: int = WARM_UP
    target: float = TARGET

    def __post_init__(self) -> None:
        check_step_size("underdamped", self.step_size)
        check_adaptation("underdamped", self.target, self.warm_up)
        if not self.friction > 0:
            raise BadInput(f"underdamped needs a friction above 0, got {self.friction}")

    def init(self, energy: Energy, x: Tensor, noise: Noise) -> UnderdampedState:
        check_energy("underdamped", energy)
        start = first_point(energy, x.detach().clone(memory_format=torch.contiguous_format))
        log_size = torch.tensor(math.log(self.step_size), dtype=torch.float64, device=x.device)
        counts = torch.zeros_like(start.energy, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        return UnderdampedState(start.x, noise(start.x), start.energy, start.gradient, log_size, *counts)

    def step(self, energy: Energy, state: UnderdampedState, noise: Noise) -> tuple[UnderdampedState, Info]:
        done, log_size = int(state.steps), state.log_step_size
        h = log_size.exp().to(state.energy)
        current = Point(state.x, state.energy, state.gradient)
        p = self._refresh(state.momentum, noise)
        proposed, moved, log_ratio = leapfrog(energy, current, p, h, clip=self.clip)
        taken, probability = metropolis(log_ratio, noise)
        chosen, accepted = select(taken, proposed, current), state.accepted
        p = self._refresh(torch.where(per_chain(taken, p), moved, -p), noise)
        if done < self.warm_up:
            log_size = adapt(log_size, probability.mean(), target=self.target, step=done)
        else:
            accepted = accepted + probability
        after = UnderdampedState(chosen.x, p, chosen.energy, chosen.gradient, log_size, accepted, state.steps + 1)
        return after, Info(gradient=lengths(current.gradient).mean(), acceptance=probability)

    def _refresh(self, p: Tensor, noise: Noise) -> Tensor:
        """O, half of a step."""
        return math.exp(-self.friction / 2) * p + math.sqrt(-math.expm1(-self.friction)) * noise(p)

    def report(self, state: UnderdampedState) -> dict[str, Any]:
        return {"step_size": state.log_step_size.exp().item()} | mean_acceptance(state, self.warm_up)

    def settings(self) -> dict[str, Any]:
        return {"kind": "underdamped", **asdict(self)}


def leapfrog(
    energy: Energy, current: Point, momentum: Tensor, size: Tensor, *, clip: float | None = None
) -> tuple[Point, Tensor, Tensor]:
    """B, A, B. Returns the proposed states, their momenta, and the logarithms (B,) of their acceptance ratios."""
    first = _kick(current, size, clip)
    middle = momentum - first
    proposed = evaluate(energy, current.x + size * middle)
    second = _kick(proposed, size, clip)
    moved = middle - second
    # |p|^2 - |p'|^2 as a product, which loses fewer digits than the difference; p - p' is the sum of both kicks.
    kinetic = ((first + second) * (momentum + moved)).reshape(len(momentum), -1).sum(1) / 2
    log_ratio = current.energy - proposed.energy + kinetic
    return proposed, moved, torch.where(proposed.energy == torch.inf, -torch.inf, log_ratio)


def _kick(point: Point, size: Tensor, clip: float | None) -> Tensor:
    """(h / 2) grad E(x), such that h times it is no longer than `clip`."""
    kick = size / 2 * point.gradient
    return kick if clip is None else kick * per_chain(shorten(size * lengths(kick), to=clip), kick)
