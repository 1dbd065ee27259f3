"""Normalizing flows."""

from typing import Any

import torch
from torch import nn

from ebmlife.data import Dataset
from ebmlife.nets import Glow, GlowGenerator
from ebmlife.recipes.schema import FlowRecipe
from ebmlife.runs.build.single import Single, batches
from ebmlife.runs.build.tables import FLOWS
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams
from ebmlife.training.base import Loop
from ebmlife.training.flow import FlowTrainer
from ebmlife.training.learner import Learner


class Flow(Single[FlowRecipe]):
    nets, learner = FLOWS, "flow"

    def trainer(self, recipe: FlowRecipe, dataset: Dataset, learned: Learner, streams: Streams) -> Loop[Any]:
        device = torch.device(streams.device)
        rng = streams["dequantisation"]
        return FlowTrainer(batches(recipe, dataset), flow=learned, levels=recipe.levels, rng=rng, device=device)

    def energy(self, recipe: FlowRecipe, net: nn.Module) -> Energy:
        return net

    def generator(self, net: nn.Module) -> nn.Module:
        assert isinstance(net, Glow)
        return GlowGenerator(net)
