"""A trainer and what else a run is."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.loop import Loop
from ebmlife.model import Model
from ebmlife.randomness import Streams


@dataclass(frozen=True)
class Training:
    trainer: Loop[Any]
    streams: Streams
    model: Model  # of the averaged weights
    frozen_generator: nn.Module | None = None  # one that does not learn travels with the run

    def state_dict(self) -> dict[str, Any]:
        return {
            "trainer": self.trainer.state_dict(),
            "streams": self.streams.state_dict(),
            "torch": torch.get_rng_state(),
            "recipe": self.model.recipe.model_dump(mode="json"),
            "shape": self.model.shape,
            "frozen_generator": None if self.frozen_generator is None else self.frozen_generator.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.trainer.load_state_dict(_to(state["trainer"], self.model.device))
        if self.frozen_generator is not None:
            self.frozen_generator.load_state_dict(frozen_or_learned(state, "ema"))
        self.streams.load_state_dict(state["streams"])
        torch.set_rng_state(state["torch"])


def frozen_or_learned(state: dict[str, Any], kind: str) -> dict[str, Tensor]:
    """The weights of the generator in a run's state; of one that learned, its average ('ema') or itself ('net')."""
    learned = state["trainer"]["generator"]
    weights: dict[str, Tensor] = state["frozen_generator"] if learned is None else learned[kind]
    return weights


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return {key: _to(item, device) for key, item in value.items()} if isinstance(value, dict) else value
