"""Replica exchange, also called parallel tempering."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels.interface import Info, State, check_energy, check_step_size, lengths
from ebmlife.sampling.kernels.mala import TARGET, mean_acceptance, propose
from ebmlife.sampling.kernels.metropolis import (
    WARM_UP,
    Point,
    adapt,
    check_adaptation,
    first_point,
    metropolis,
    select,
)
from ebmlife.sampling.rng import Noise

SWAP_RATE = 0.3  # rates from 0.23 to 0.4 move states along the ladder almost equally fast


@dataclass
class ReplicaExchangeState(State):
    """States of R replicas of each chain with energies and gradients of E, the ladder, step sizes, and counts."""

    replicas: Tensor  # (B, R, ...), the coldest first
    energy: Tensor  # (B, R)
    gradient: Tensor  # (B, R, ...)
    log_gaps: Tensor  # (R - 1,): log(T_next / T - 1)
    log_step_sizes: Tensor  # (R,)
    accepted: Tensor  # (B,): sum of acceptance probabilities at temperature 1 after the warm-up
    swapped: Tensor  # (R - 1,): sum of swap probabilities after the warm-up
    steps: Tensor  # (): number of steps so far

    @property
    def x(self) -> Tensor:
        """The states (B, ...) at temperature 1."""
        return self.replicas[:, 0]

    @property
    def temperatures(self) -> Tensor:
        """The ladder (R,), from 1 upward."""
        ratios = 1 + self.log_gaps.exp()
        return torch.cat([torch.ones_like(ratios[:1]), ratios.cumprod(0)])


@dataclass(frozen=True)
class ReplicaExchange:
    """MALA at several temperatures, 1 = T_1 < ... < T_R, with exchanges of states between neighbors.

    Each chain has R replicas. A step moves replica r by MALA on E / T_r, and then exchanges replicas r and r + 1, for
    even r in even steps and odd r in odd ones, with probability
    min(1, exp((1 / T_r - 1 / T_{r+1}) (E(x_r) - E(x_{r+1})))). Hot replicas cross barriers that cold ones do not. After
    the warm-up, the product of all exp(-E / T_r) is exactly invariant. One step costs R gradients.

    The warm-up adapts each gap of the ladder to the target swap rate and the step size of each replica to the target
    acceptance. The hottest temperature results from the number of replicas: `report` returns it.

    Args:
        step_size: Step size at temperature 1; that of replica r is sqrt(T_r) times it. Initial values if there is a
            warm-up.
        temperatures: The ladder, from 1 upward; its initial values if there is a warm-up.
        clip: Largest length of the gradient term of a step.
        warm_up: Number of steps in which the ladder and the step sizes are adapted, in common for all chains of a
            batch.
        target: Acceptance rate of MALA steps that the warm-up aims at.
        swap_rate: Swap rate of neighbors that the warm-up aims at.
    """

    step_size: float
    temperatures: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    clip: float | None = None
    warm_up: int = WARM_UP
    target: float = TARGET
    swap_rate: float = SWAP_RATE

    def __post_init__(self) -> None:
        check_step_size("replica-exchange", self.step_size)
        check_adaptation("replica-exchange", self.target, self.warm_up)
        check_adaptation("replica-exchange", self.swap_rate, self.warm_up)
        ladder = self.temperatures
        if len(ladder) < 2 or ladder[0] != 1 or sorted(set(ladder)) != list(ladder) or not ladder[-1] < math.inf:
            raise BadInput(f"replica-exchange needs at least 2 temperatures that start at 1 and increase, got {ladder}")

    def init(self, energy: Energy, x: Tensor, noise: Noise) -> ReplicaExchangeState:
        check_energy("replica-exchange", energy)
        rungs = len(self.temperatures)
        start = first_point(energy, x.detach())

        def spread(values: Tensor) -> Tensor:
            return values[:, None].expand(-1, rungs, *values.shape[1:]).clone(memory_format=torch.contiguous_format)

        ladder = torch.tensor(self.temperatures, dtype=torch.float64, device=x.device)
        return ReplicaExchangeState(
            spread(x.detach()),
            spread(start.energy),
            spread(start.gradient),
            (ladder[1:] / ladder[:-1] - 1).log(),
            math.log(self.step_size) + ladder.log() / 2,
            torch.zeros_like(start.energy, dtype=torch.float64),
            torch.zeros_like(ladder[1:]),
            torch.zeros((), dtype=torch.int64),
        )

    def step(self, energy: Energy, state: ReplicaExchangeState, noise: Noise) -> tuple[ReplicaExchangeState, Info]:
        done, ladder = int(state.steps), state.temperatures
        moved, acceptance = self._move(energy, state, ladder, noise)
        moved, swaps = exchange(moved, ladder, noise, odd=bool(done % 2))
        gaps, sizes, accepted, swapped = state.log_gaps, state.log_step_sizes, state.accepted, state.swapped
        if done < self.warm_up:
            gaps = adapt(gaps, swaps, target=self.swap_rate, step=done)
            sizes = adapt(sizes, acceptance.mean(0), target=self.target, step=done)
        else:
            accepted, swapped = accepted + acceptance[:, 0], swapped + swaps
        after = ReplicaExchangeState(
            moved.x, moved.energy, moved.gradient, gaps, sizes, accepted, swapped, state.steps + 1
        )
        return after, Info(lengths(state.gradient[:, 0]).mean(), acceptance[:, 0], swaps)

    def _move(self, energy: Energy, state: ReplicaExchangeState, ladder: Tensor, noise: Noise) -> tuple[Point, Tensor]:
        """One MALA step of all replicas in one batch. Returns them, (B, R, ...), and their acceptance (B, R)."""
        chains, rungs = state.energy.shape
        sizes = state.log_step_sizes.exp().to(state.energy).repeat(chains)
        temperatures = ladder.to(state.energy).repeat(chains)
        current = Point(state.replicas.flatten(0, 1), state.energy.flatten(), state.gradient.flatten(0, 1))
        z = noise(state.replicas).flatten(0, 1)  # drawn in the shape (B, R, ...): the noise may differ by chain
        proposed, log_ratio = propose(energy, current, sizes, z, clip=self.clip, temperatures=temperatures)
        taken, probability = metropolis(log_ratio.view(chains, rungs), noise)
        chosen = select(taken.flatten(), proposed, current)
        moved = Point(chosen.x.view_as(state.replicas), chosen.energy.view_as(state.energy), chosen.gradient)
        return Point(moved.x, moved.energy, moved.gradient.view_as(state.gradient)), probability

    def report(self, state: ReplicaExchangeState) -> dict[str, Any]:
        counted = int(state.steps) - self.warm_up
        rates = {"swap_rates": (state.swapped / counted).tolist()} if counted > 0 else {}
        return {
            "step_size": state.log_step_sizes[0].exp().item(),
            **mean_acceptance(state, self.warm_up),
            "temperatures": state.temperatures.tolist(),
            **rates,
        }

    def settings(self) -> dict[str, Any]:
        return {"kind": "replica-exchange", **asdict(self), "temperatures": list(self.temperatures)}


def exchange(replicas: Point, ladder: Tensor, noise: Noise, *, odd: bool) -> tuple[Point, Tensor]:
    """Exchanges replicas (B, R, ...) of neighboring temperatures; returns them, and the swap rates (R - 1,).

    Only every second pair is exchanged, but the probabilities of all of them are averaged over chains.
    """
    cold = 1 / ladder.to(replicas.energy)
    log_ratio = (cold[:-1] - cold[1:]) * (replicas.energy[:, :-1] - replicas.energy[:, 1:])
    swapped, probability = metropolis(log_ratio, noise)
    rungs = torch.arange(len(ladder), device=ladder.device)
    swapped = swapped & (rungs[:-1] % 2 == int(odd))
    order = rungs.repeat(len(swapped), 1)  # (B, R): which replica each temperature takes over
    order[:, :-1] += swapped.long()
    order[:, 1:] -= swapped.long()
    rows = torch.arange(len(swapped), device=ladder.device)[:, None]
    chosen = Point(replicas.x[rows, order], replicas.energy[rows, order], replicas.gradient[rows, order])
    return chosen, probability.double().mean(0)
