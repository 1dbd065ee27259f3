"""Recovery likelihood."""

from typing import Any

import torch
from torch import nn

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import RecoveryRecipe
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.nets import make_networks
from ebmlife.runs.build.single import Single, batches
from ebmlife.runs.build.tables import NETS, STARTS
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams
from ebmlife.training.base import Loop
from ebmlife.training.learner import Learner
from ebmlife.training.recovery import Diffusion, LevelNet, LowestEnergy, Progressive, RecoveryTrainer


class Recovery(Single[RecoveryRecipe]):
    nets, learner = NETS, "energy"
    starts = Registry(
        "start", STARTS.constructors | {"progressive": Progressive}, STARTS.provided | {"net", "diffusion"}
    )

    def network(self, recipe: RecoveryRecipe, context: Context) -> nn.Module:
        if len(context.shape) != 3:
            raise BadInput(f"recovery likelihood needs images (C, H, W), got states of shape {context.shape}")
        channels, height, width = context.shape
        with_level = context.with_shape((channels + recipe.levels, height, width))  # one channel marks each level
        (net,) = make_networks((self.nets, recipe.net), seed=recipe.seed, context=with_level)
        return LevelNet(net, recipe.levels).eval()

    def trainer(self, recipe: RecoveryRecipe, dataset: Dataset, learned: Learner, streams: Streams) -> Loop[Any]:
        device = torch.device(streams.device)
        return RecoveryTrainer(
            batches(recipe, dataset),
            energy=learned,
            diffusion=_diffusion(recipe, learned.net),
            steps=recipe.steps,
            rng=streams["noise"],
            device=device,
        )

    def energy(self, recipe: RecoveryRecipe, net: nn.Module) -> Energy:
        return LowestEnergy(net, _diffusion(recipe, net))

    def for_start(self, recipe: RecoveryRecipe, net: nn.Module) -> dict[str, Any]:
        return {"net": net, "diffusion": _diffusion(recipe, net)}


def _diffusion(recipe: RecoveryRecipe, net: nn.Module) -> Diffusion:
    device = next(net.parameters()).device
    return Diffusion(recipe.levels, relative_step=recipe.relative_step, device=device)
