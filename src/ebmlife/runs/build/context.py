"""The context that all builders share."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from ebmlife.runs.model import Model
from ebmlife.runs.user_code import Trust


class Load(Protocol):
    """Loads the model of another run that a recipe names. It is passed in, because loading calls `build` again."""

    def __call__(self, run: str | Path, *, trust_code: Trust) -> Model: ...


@dataclass(frozen=True)
class Context:
    load: Load
    device: torch.device
    trust: Trust  # the functions that recipes may call
    shape: tuple[int, ...] = ()  # of a state; empty until the data are known

    def with_shape(self, shape: tuple[int, ...]) -> "Context":
        return replace(self, shape=tuple(shape))

    def other(self, run: str) -> Model:
        """Returns the model of another run."""
        return self.load(run, trust_code=self.trust)
