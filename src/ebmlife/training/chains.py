"""What happens to the states between updates: thrown away (Fresh), kept (Persistent), kept until ripe (Maturing).

Rejuvenation happens when states are drawn, with the generator of that moment. The paper's Algorithms 1 and 3 print it
on return to the bank; its authors' code, and so its numbers, draw first. Then probability 1 is exactly `Fresh`.
"Walked more than w times" is meant as the paper writes it. Their code does not count the walk that follows a
rejuvenation: `count_first_walk=False`.
"""

import os
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ebmlife.errors import BadInput, at_least
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import Info, Walk
from ebmlife.sampling.rng import Streams
from ebmlife.sampling.schedule import Schedule, scheduled
from ebmlife.training.starts import Start


@dataclass(frozen=True)
class Negatives:
    x: Tensor  # walked states
    z: Tensor | None  # the latents that they were born from, where a generator bore them
    info: Info


class Bank:
    """Paired states: images, their latents where there are any, and how often each has been walked since its birth."""

    def __init__(self, start: Start, size: int, rng: torch.Generator) -> None:
        # In parts: a bank of 10,000 images through a wide generator at once would need far more than the bank.
        births = [start(min(256, size), rng=rng)]
        _check_memory(births[0].x, size)
        births += [start(min(256, size - i), rng=rng) for i in range(256, size, 256)]
        self.x = torch.cat([born.x for born in births])
        self.z = None if births[0].z is None else torch.cat([born.z for born in births if born.z is not None])
        self.age = torch.zeros(size, dtype=torch.int64, device=self.x.device)

    def draw(self, n: int, rng: torch.Generator) -> Tensor:
        """Indices of n different states."""
        if n > len(self.x):
            raise BadInput(f"a batch of {n} cannot be drawn from a bank of {len(self.x)}; make chains.size larger")
        return torch.randperm(len(self.x), generator=rng, device=rng.device)[:n]

    def rejuvenate(self, rows: Tensor, start: Start, rng: torch.Generator) -> None:
        if len(rows):
            born = start(len(rows), rng=rng, old=self.x[rows])
            self.x[rows] = born.x
            self.age[rows] = 0
            if self.z is not None and born.z is not None:
                self.z[rows] = born.z

    def overwrite(self, rows: Tensor, other: "Bank", other_rows: Tensor) -> None:
        self.x[rows] = other.x[other_rows]
        self.age[rows] = other.age[other_rows]
        if self.z is not None and other.z is not None:
            self.z[rows] = other.z[other_rows]

    def walk(self, rows: Tensor, walk: Walk, energy: Energy, *, update: int) -> Negatives:
        x, info = walk(energy, self.x[rows], update=update)
        self.x[rows] = x
        self.age[rows] += 1
        return Negatives(x, None if self.z is None else self.z[rows], info)

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "z": self.z, "age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["x"].shape != self.x.shape:
            raise ValueError(f"a bank of {tuple(state['x'].shape)} was saved, one of {tuple(self.x.shape)} is wanted")
        if (state["z"] is None) != (self.z is None):
            raise ValueError("states with latents and states without them cannot take each other's place")
        self.x, self.z, self.age = state["x"], state["z"], state["age"]


def _check_memory(some: Tensor, size: int) -> None:
    needed = some[0].numel() * some.element_size() * size / 2**30
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if some.device.type == "cpu" and needed > there:
        raise BadInput(f"chains.size {size} needs {needed:.0f} GB, the machine has {there:.0f}; make it smaller")


class Chains(Protocol):
    @property
    def bank(self) -> Bank | None:
        """The states that are kept, for those who watch."""
        ...

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Fresh:
    """New states each time: noise, data (contrastive divergence), or a generator (cooperative learning)."""

    bank = None

    def __init__(self, start: Start, walk: Walk, streams: Streams) -> None:
        self.start, self.walk, self.rng = start, walk, streams["births"]

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        born = self.start(n, rng=self.rng)
        x, info = self.walk(energy, born.x, update=update)
        return Negatives(x, born.z, info)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Persistent:
    """States are kept in a bank, drawn, walked and returned; each one drawn is reborn with probability `rejuvenate`,
    or when it has been walked more than `rounds` times.

    With a learning generator as start this is the paper's hybrid (Algorithm 1): latents and images stay paired.
    With a frozen one, or data, it is midrun (Algorithm 3).
    """

    def __init__(
        self,
        start: Start,
        walk: Walk,
        streams: Streams,
        *,
        size: int = 10_000,  # N in the paper
        rejuvenate: Schedule = 0.0,  # p in the paper
        rounds: int | None = None,  # w in the paper
        count_first_walk: bool = True,  # since a rejuvenation
    ) -> None:
        at_least(1, "chains", size=size, rounds=1 if rounds is None else rounds)
        self.start, self.walk, self.rejuvenate, self.rounds = start, walk, scheduled(rejuvenate), rounds
        self.count_first_walk = count_first_walk
        if not all(0 <= p <= 1 for p in self.rejuvenate.values):
            raise BadInput(f"chains.rejuvenate is a probability, from 0 to 1, not {self.rejuvenate.values}")
        self.rng, self.births = streams["bank"], streams["births"]
        self.bank: Bank = Bank(start, size, self.rng)

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        rows = self.bank.draw(n, self.rng)
        rejuvenated = torch.rand(n, generator=self.rng, device=self.rng.device) < self.rejuvenate(update)
        if self.rounds is not None:
            rejuvenated |= self.bank.age[rows] > self.rounds
        self.bank.rejuvenate(rows[rejuvenated], self.start, self.births)
        negatives = self.bank.walk(rows, self.walk, energy, update=update)
        if not self.count_first_walk:
            self.bank.age[rows[rejuvenated]] = 0
        return negatives

    def state_dict(self) -> dict[str, Any]:
        return self.bank.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bank.load_state_dict(state)


class BurnIn:
    """Longrun (Algorithm 4): states are born into the burn-in bank, and after `mature` walks there replace random
    states of the update batch. Only the update bank's states are learned from.

    Burn-in ages begin uniform in {0..mature}, so that arrivals are steady from the first update on.
    """

    def __init__(
        self,
        start: Start,
        walk: Walk,
        streams: Streams,
        *,
        size: int = 10_000,  # N_2 in the paper
        burn_in_size: int = 1_000,  # N_1 in the paper
        mature: int = 750,  # D in the paper
        burn_in_steps: int | None = None,  # Langevin steps of a burn-in walk; None: as many as the update bank's
        count_first_walk: bool = True,  # False: states mature after one walk more
    ) -> None:
        at_least(1, "chains", size=size, burn_in_size=burn_in_size, mature=mature)
        at_least(0, "chains", burn_in_steps=burn_in_steps or 0)
        self.start, self.walk, self.mature = start, walk, mature
        self.needed = mature if count_first_walk else mature + 1
        self.burn_in_walk = walk if burn_in_steps is None else walk.with_steps(burn_in_steps)
        self.rng, self.births = streams["bank"], streams["births"]
        self.bank: Bank = Bank(start, size, self.rng)
        self.burn_in = Bank(start, burn_in_size, self.rng)
        self.burn_in.age = torch.randint(0, mature + 1, (burn_in_size,), generator=self.rng, device=self.rng.device)
        self.arrived = 0  # states that have matured so far

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        rows, young = self.bank.draw(n, self.rng), self.burn_in.draw(n, self.rng)
        negatives = self.bank.walk(rows, self.walk, energy, update=update)
        self.burn_in.walk(young, self.burn_in_walk, energy, update=update)
        self._promote(young[self.burn_in.age[young] >= self.needed], rows)
        return negatives

    def _promote(self, ripe: Tensor, rows: Tensor) -> None:
        """Matured states overwrite random ones of the batch just walked, and are born again."""
        place = rows[torch.randperm(len(rows), generator=self.rng, device=self.rng.device)[: len(ripe)]]
        self.bank.overwrite(place, self.burn_in, ripe)
        self.burn_in.rejuvenate(ripe, self.start, self.births)
        self.arrived += len(ripe)

    def state_dict(self) -> dict[str, Any]:
        return {"bank": self.bank.state_dict(), "burn_in": self.burn_in.state_dict(), "arrived": self.arrived}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bank.load_state_dict(state["bank"])
        self.burn_in.load_state_dict(state["burn_in"])
        self.arrived = state["arrived"]
