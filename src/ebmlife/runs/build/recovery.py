"""Recovery likelihood."""

from typing import Any

import torch
from torch import nn

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import RecoveryRecipe
from ebmlife.runs.build.parts import NETS, STARTS, make_networks
from ebmlife.runs.build.single import Single, batches
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams
from ebmlife.training.base import Loop
from ebmlife.training.learner import Learner
from ebmlife.training.recovery import Diffusion, LevelNet, LowestEnergy, Progressive, RecoveryTrainer


class Recovery(Single[RecoveryRecipe]):
    nets, learner = NETS, "energy"
    starts = Registry("start", STARTS.makers | {"progressive": Progressive}, STARTS.provided | {"net", "diffusion"})

    def network(self, recipe: RecoveryRecipe, shape: tuple[int, ...], device: torch.device) -> nn.Module:
        if len(shape) != 3:
            raise BadInput(f"recovery likelihood needs images (C, H, W), got states of shape {shape}")
        marked = (shape[0] + recipe.levels, *shape[1:])  # with the channels that tell the level
        (net,) = make_networks((self.nets, recipe.net), seed=recipe.seed, shape=marked, device=device)
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
