"""Normalizing flows."""

from typing import Any

import torch
from torch import nn

from ebmlife.build.parts import FLOWS
from ebmlife.build.single import Single, batches
from ebmlife.data import Dataset
from ebmlife.energy import Energy
from ebmlife.learner import Learner
from ebmlife.loop import Loop
from ebmlife.methods.flow import FlowTrainer
from ebmlife.nets import Glow, GlowGenerator
from ebmlife.randomness import Streams
from ebmlife.recipe import FlowRecipe


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
