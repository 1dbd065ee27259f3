"""The live objects of a run, and their state in a checkpoint."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe
from ebmlife.runs.model import Model
from ebmlife.sampling.rng import Streams
from ebmlife.storage.contents import part
from ebmlife.training.base import Loop


@dataclass(frozen=True)
class Training:
    """A trainer with its random streams and the model that it trains."""

    trainer: Loop[Any]
    streams: Streams
    model: Model  # with the averaged weights
    frozen_generator: nn.Module | None = None  # saved with the run, which must not depend on another

    def state_dict(self) -> dict[str, Any]:
        return {
            "trainer": self.trainer.state_dict(),
            "streams": self.streams.state_dict(),
            "torch": torch.get_rng_state(),
            "recipe": self.model.recipe.model_dump(mode="json"),
            "shape": self.model.shape,
            "frozen_generator": None if self.frozen_generator is None else self.frozen_generator.state_dict(),
            "prior": self.model.prior.state_dict() if self.model.prior else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.trainer.load_state_dict(_to(state["trainer"], self.model.device))
        if self.frozen_generator is not None:
            self.frozen_generator.load_state_dict(frozen_or_learned(state, averaged=True))
        self.streams.load_state_dict(state["streams"])
        torch.set_rng_state(state["torch"])


def weights_of(state: dict[str, Any], learner: str, *, averaged: bool) -> dict[str, Tensor]:
    """Returns the averaged or raw weights of a learner in a checkpoint."""
    kind, learned = "ema" if averaged else "net", part(state, "trainer", learner)
    if kind not in learned:
        raise BadInput("this model has averaged weights only; the raw ones are in the folder of its training")
    return part(learned, kind)


def frozen_or_learned(state: dict[str, Any], *, averaged: bool) -> dict[str, Tensor]:
    """Returns the weights of the generator in a checkpoint, whether it learned or not."""
    if part(state, "trainer").get("generator") is None:
        return part(state, "frozen_generator")
    return weights_of(state, "generator", averaged=averaged)


def scope(ranks: Ranks) -> str:
    """Returns the prefix of a rank's random streams; a single process has none."""
    return f"rank {ranks.rank} of {ranks.count}/" if ranks.count > 1 else ""


def require_single_process(recipe: Recipe, ranks: Ranks) -> None:
    if ranks.count > 1:
        raise BadInput(
            f"the method {recipe.method!r} trains in one process, not {ranks.count}; run it without torchrun"
        )


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return {key: _to(item, device) for key, item in value.items()} if isinstance(value, dict) else value
