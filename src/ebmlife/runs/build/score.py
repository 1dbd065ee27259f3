"""Score models."""

from typing import Any

import torch
from torch import nn

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import ScoreRecipe
from ebmlife.runs.build.single import Single, batches
from ebmlife.runs.build.tables import SCORES, STARTS
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams
from ebmlife.training.base import Loop
from ebmlife.training.learner import Learner
from ebmlife.training.score import ScoreEnergy, ScoreTrainer, annealed, geometric


class Score(Single[ScoreRecipe]):
    nets, learner = SCORES, "score"
    starts = Registry("start", STARTS.constructors | {"annealed": annealed}, STARTS.provided | {"net", "sigmas"})

    def resolve(self, recipe: ScoreRecipe) -> ScoreRecipe:
        if recipe.noise.smallest >= recipe.noise.largest:
            raise BadInput(f"noise.smallest {recipe.noise.smallest} must be below noise.largest {recipe.noise.largest}")
        return super().resolve(recipe)

    def trainer(self, recipe: ScoreRecipe, dataset: Dataset, learned: Learner, streams: Streams) -> Loop[Any]:
        device = torch.device(streams.device)
        rng, sigmas = streams["noise"], _sigmas(recipe)
        return ScoreTrainer(batches(recipe, dataset), score=learned, sigmas=sigmas, rng=rng, device=device)

    def energy(self, recipe: ScoreRecipe, net: nn.Module) -> Energy:
        return ScoreEnergy(net, recipe.noise.smallest)

    def for_start(self, recipe: ScoreRecipe, net: nn.Module) -> dict[str, Any]:
        return {"net": net, "sigmas": _sigmas(recipe)}


def _sigmas(recipe: ScoreRecipe) -> list[float]:
    return geometric(recipe.noise.largest, recipe.noise.smallest, recipe.noise.count)
