"""How Langevin chains are kept between updates.

`Fresh` starts new chains at every update, `Persistent` keeps their states in a bank, and `BurnIn` keeps new states in a
burn-in bank until they have been walked long enough to learn from.

States are rejuvenated when they are drawn, with the generator of that moment. The paper's Algorithms 1 and 3 print this
step on return to the bank; the authors' code, and so the paper's numbers, do it on drawing. A probability of 1 is then
exactly `Fresh`. "Walked more than w times" is coded as the paper writes it. The authors' code does not count the walk
that follows a rejuvenation: `count_first_walk=False`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from ebmlife.errors import BadInput, at_least
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import INITIAL_STATES, Streams
from ebmlife.sampling.schedule import Schedule, scheduled
from ebmlife.training.bank import Bank as Bank  # modules with chains import both from here
from ebmlife.training.bank import Negatives as Negatives
from ebmlife.training.starts import Start


@dataclass(frozen=True)
class UpdateCost:
    """The average cost of the chains in one update."""

    initialized: float  # states that the start makes
    langevin_steps: float  # Langevin steps, summed over states


class Chains(Protocol):
    """The interface of chains to a trainer."""

    @property
    def bank(self) -> Bank | None:
        """The states that are kept between updates and learned from, for logs and pictures."""
        ...

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        """Returns n samples for one update, after a walk on the energy."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Declared(Protocol):
    """The declarations of a class of chains that recipes can choose. They are used to share banks between processes, to
    check batch sizes, and to estimate costs.

    Chains with a burn-in bank (`WithBurnIn`) declare as `burn_in_length` the option that counts its walks.
    """

    bank_sizes: ClassVar[tuple[str, ...]]  # the options that count states

    @staticmethod
    def cost(options: Mapping[str, Any], *, batch: int, steps: float) -> UpdateCost:
        """Returns the cost of an update with these options, this batch size and `steps` Langevin steps per walk."""
        ...


@runtime_checkable
class WithBurnIn(Protocol):
    """Chains with a burn-in bank, which logs and pictures show."""

    burn_in: Bank
    mature: int  # walks until a state is burned in
    arrived: int  # states that have been burned in so far


class Fresh:
    """New chains at every update: from noise, from data (contrastive divergence) or from a generator (cooperative
    learning).

    Args:
        start: Makes the initial states.
        walk: The Langevin walk of an update.
        streams: Random streams. Default: those of seed 0.
    """

    bank_sizes: ClassVar[tuple[str, ...]] = ()
    bank = None

    def __init__(self, start: Start, walk: Walk, streams: Streams | None = None) -> None:
        streams = streams or Streams()
        self.start, self.walk, self.rng = start, walk, streams[INITIAL_STATES]

    @staticmethod
    def cost(options: Mapping[str, Any], *, batch: int, steps: float) -> UpdateCost:
        return UpdateCost(initialized=batch, langevin_steps=batch * steps)

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        initial = self.start(n, rng=self.rng)
        x, info = self.walk(energy, initial.x, update=update)
        return Negatives(x, initial.z, info)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Persistent:
    """Chains whose states are kept in a bank. States are drawn, walked and returned to the bank.

    A state that is drawn is rejuvenated with probability `rejuvenate`, or if it was walked more than `rounds` times.
    With a learning generator as start this is the paper's hybrid (Algorithm 1): latents and images stay paired. With a
    frozen generator, or with data, it is midrun (Algorithm 3).

    Args:
        start: Makes the initial states, and the new ones of a rejuvenation.
        walk: The Langevin walk of an update.
        streams: Random streams. Default: those of seed 0.
        size: Number of states in the bank, N in the paper.
        rejuvenate: Probability that a drawn state is rejuvenated, p in the paper.
        rounds: Walks after which a state is rejuvenated, w in the paper. None: no limit.
        count_first_walk: Whether the walk that follows a rejuvenation counts.
    """

    bank_sizes: ClassVar[tuple[str, ...]] = ("size",)

    def __init__(
        self,
        start: Start,
        walk: Walk,
        streams: Streams | None = None,
        *,
        size: int = 10_000,
        rejuvenate: Schedule = 0.0,
        rounds: int | None = None,
        count_first_walk: bool = True,
    ) -> None:
        at_least(1, "chains", size=size, rounds=1 if rounds is None else rounds)
        self.start, self.walk, self.rejuvenate, self.rounds = start, walk, scheduled(rejuvenate), rounds
        self.count_first_walk = count_first_walk
        if not all(0 <= p <= 1 for p in self.rejuvenate.values):
            raise BadInput(f"chains.rejuvenate is a probability, from 0 to 1, not {self.rejuvenate.values}")
        streams = streams or Streams()
        self.rng, self.start_rng = streams["bank"], streams[INITIAL_STATES]
        self.bank: Bank = Bank(start, size, self.rng)

    @staticmethod
    def cost(options: Mapping[str, Any], *, batch: int, steps: float) -> UpdateCost:
        """Returns the cost. A state that is rejuvenated with probability p, and after at most w + 1 walks, is walked
        sum over k in {0..w} of (1 - p)^k times on average."""
        share, rounds = scheduled(options["rejuvenate"])(0), options["rounds"]
        if rounds is not None:
            walks = range(rounds + (1 if options["count_first_walk"] else 2))
            share = 1 / sum((1 - share) ** walked for walked in walks)
        return UpdateCost(initialized=batch * share, langevin_steps=batch * steps)

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        rows = self.bank.draw(n, self.rng)
        rejuvenated = torch.rand(n, generator=self.rng, device=self.rng.device) < self.rejuvenate(update)
        if self.rounds is not None:
            rejuvenated |= self.bank.age[rows] > self.rounds
        self.bank.rejuvenate(rows[rejuvenated], self.start, self.start_rng)
        negatives = self.bank.walk(rows, self.walk, energy, update=update)
        if not self.count_first_walk:
            self.bank.age[rows[rejuvenated]] = 0
        return negatives

    def state_dict(self) -> dict[str, Any]:
        return self.bank.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bank.load_state_dict(state)


class BurnIn:
    """Longrun (Algorithm 4): new states stay in a burn-in bank for `mature` walks, and then replace random states of
    the update batch. Only the states of the update bank are learned from.

    The ages of the burn-in bank begin uniform in {0..mature}, so that arrivals are steady from the first update on.

    Args:
        start: Makes the initial states.
        walk: The Langevin walk of an update.
        streams: Random streams. Default: those of seed 0.
        size: Number of states in the update bank, N_2 in the paper.
        burn_in_size: Number of states in the burn-in bank, N_1 in the paper.
        mature: Walks until a state is burned in, D in the paper.
        burn_in_steps: Langevin steps of a walk in the burn-in bank. None: as many as in the update bank.
        count_first_walk: Whether the first walk of a state counts. False: states are burned in after one walk more.
    """

    bank_sizes: ClassVar[tuple[str, ...]] = ("size", "burn_in_size")
    burn_in_length: ClassVar[str] = "mature"

    def __init__(
        self,
        start: Start,
        walk: Walk,
        streams: Streams | None = None,
        *,
        size: int = 10_000,
        burn_in_size: int = 1_000,
        mature: int = 750,
        burn_in_steps: int | None = None,
        count_first_walk: bool = True,
    ) -> None:
        at_least(1, "chains", size=size, burn_in_size=burn_in_size, mature=mature)
        at_least(0, "chains", burn_in_steps=burn_in_steps or 0)
        self.start, self.walk, self.mature = start, walk, mature
        self.needed = mature if count_first_walk else mature + 1
        self.burn_in_walk = walk if burn_in_steps is None else walk.with_steps(burn_in_steps)
        streams = streams or Streams()
        self.rng, self.start_rng = streams["bank"], streams[INITIAL_STATES]
        self.bank: Bank = Bank(start, size, self.rng)
        self.burn_in = Bank(start, burn_in_size, self.rng)
        self.burn_in.age = torch.randint(0, mature + 1, (burn_in_size,), generator=self.rng, device=self.rng.device)
        self.arrived = 0

    @staticmethod
    def cost(options: Mapping[str, Any], *, batch: int, steps: float) -> UpdateCost:
        """Returns the cost. A second batch is walked in the burn-in bank, and a share of 1 / D of it is replaced."""
        walks = options["mature"] + (0 if options["count_first_walk"] else 1)
        burn_in_steps = steps if options["burn_in_steps"] is None else options["burn_in_steps"]
        return UpdateCost(initialized=batch / walks, langevin_steps=batch * (steps + burn_in_steps))

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        rows, burning_in = self.bank.draw(n, self.rng), self.burn_in.draw(n, self.rng)
        negatives = self.bank.walk(rows, self.walk, energy, update=update)
        self.burn_in.walk(burning_in, self.burn_in_walk, energy, update=update)
        self._promote(burning_in[self.burn_in.age[burning_in] >= self.needed], rows)
        return negatives

    def _promote(self, burned_in: Tensor, rows: Tensor) -> None:
        """Burned-in states overwrite random ones of the batch that was just walked, and are rejuvenated."""
        replaced = rows[torch.randperm(len(rows), generator=self.rng, device=self.rng.device)[: len(burned_in)]]
        self.bank.overwrite(replaced, self.burn_in, burned_in)
        self.burn_in.rejuvenate(burned_in, self.start, self.start_rng)
        self.arrived += len(burned_in)

    def state_dict(self) -> dict[str, Any]:
        return {"bank": self.bank.state_dict(), "burn_in": self.burn_in.state_dict(), "arrived": self.arrived}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bank.load_state_dict(state["bank"])
        self.burn_in.load_state_dict(state["burn_in"])
        self.arrived = state["arrived"]
