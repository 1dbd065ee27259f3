"""States that are kept between updates."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import Info, Walk
from ebmlife.training.starts import Start

_PART = 256  # states that are initialized together: a wide generator needs far more memory than a bank of its images


@dataclass(frozen=True)
class Negatives:
    """The samples of one update."""

    x: Tensor  # states after the walk
    z: Tensor | None  # the latents of their initial states, if a generator made them
    info: Info


class Bank:
    """Paired states: images, their latents if there are any, and the number of walks since their initialization."""

    def __init__(self, start: Start, size: int, rng: torch.Generator) -> None:
        parts = [start(min(_PART, size), rng=rng)]
        _check_memory(parts[0].x, size)
        parts += [start(min(_PART, size - done), rng=rng) for done in range(_PART, size, _PART)]
        self.x = torch.cat([part.x for part in parts])
        self.z = None if parts[0].z is None else torch.cat([part.z for part in parts if part.z is not None])
        self.age = torch.zeros(size, dtype=torch.int64, device=self.x.device)

    def draw(self, n: int, rng: torch.Generator) -> Tensor:
        """Returns the indices of n different states."""
        if n > len(self.x):
            raise BadInput(f"a batch of {n} cannot be drawn from a bank of {len(self.x)}; make chains.size larger")
        return torch.randperm(len(self.x), generator=rng, device=rng.device)[:n]

    def rejuvenate(self, rows: Tensor, start: Start, rng: torch.Generator) -> None:
        """Replaces these states by new ones."""
        if len(rows):
            new = start(len(rows), rng=rng, old=self.x[rows])
            self.x[rows] = new.x
            self.age[rows] = 0
            if self.z is not None and new.z is not None:
                self.z[rows] = new.z

    def overwrite(self, rows: Tensor, other: "Bank", other_rows: Tensor) -> None:
        """Replaces these states by states of another bank."""
        self.x[rows] = other.x[other_rows]
        self.age[rows] = other.age[other_rows]
        if self.z is not None and other.z is not None:
            self.z[rows] = other.z[other_rows]

    def walk(self, rows: Tensor, walk: Walk, energy: Energy, *, update: int) -> Negatives:
        """Runs a Langevin walk from these states and stores the results in the bank."""
        x, info = walk(energy, self.x[rows], update=update)
        self.x[rows] = x
        self.age[rows] += 1
        return Negatives(x, None if self.z is None else self.z[rows], info)

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "z": self.z, "age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["x"].shape != self.x.shape:
            raise ValueError(f"the saved bank has shape {tuple(state['x'].shape)}, expected {tuple(self.x.shape)}")
        if (state["z"] is None) != (self.z is None):
            raise ValueError("a bank with latents cannot be restored from one without them, or the reverse")
        self.x, self.z, self.age = state["x"], state["z"], state["age"]


def _check_memory(some: Tensor, size: int) -> None:
    needed = some[0].numel() * some.element_size() * size / 2**30
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if some.device.type == "cpu" and needed > available:
        raise BadInput(f"chains.size {size} needs {needed:.0f} GB, the machine has {available:.0f}; make it smaller")
