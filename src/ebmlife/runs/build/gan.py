"""SNGANs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ebmlife.data import Batches, Dataset
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import GANRecipe
from ebmlife.runs.build.live import Training, require_single_process, weights_of
from ebmlife.runs.build.other import other_generator
from ebmlife.runs.build.parts import (
    DATA,
    DISCRIMINATORS,
    GENERATORS,
    STARTS,
    deferred,
    find_device,
    fit_weights,
    learner,
    make_networks,
    restore_weights,
)
from ebmlife.runs.model import Model
from ebmlife.runs.user_code import Trust
from ebmlife.sampling.rng import Streams
from ebmlife.training.gan import CriticEnergy, GANTrainer


def resolve(recipe: GANRecipe) -> GANRecipe:
    if recipe.generator.optimizer is None:
        raise BadInput("generator.optimizer of a GAN must not be none: its generator learns")
    generator = recipe.generator.model_copy(update={"net": GENERATORS.resolve(recipe.generator.net)})
    parts = {kinds.field: kinds.resolve(getattr(recipe, kinds.field)) for kinds in (DATA, DISCRIMINATORS, STARTS)}
    return recipe.model_copy(update={**parts, "generator": generator})


def training(recipe: GANRecipe, *, resumed: dict[str, Any] | None, ranks: Ranks, trust: Trust) -> Training:
    require_single_process(recipe, ranks)
    assert recipe.generator.optimizer is not None
    device = find_device(recipe.device)
    dataset: Dataset = DATA.make(recipe.data)
    streams = Streams(recipe.seed, device=device)
    net, maker = _networks(recipe, dataset.shape, device, trust)
    if recipe.generator.run is not None and resumed is None:
        weights = other_generator(recipe.generator.run, trust=trust)
        fit_weights(maker, weights, f"the generator of {recipe.generator.run}")
    discriminator, generator = (
        learner(net.train(), recipe.optimizer),
        learner(maker.train(), recipe.generator.optimizer),
    )
    trainer = GANTrainer(
        Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, workers=recipe.workers),
        discriminator=discriminator,
        generator=generator,
        rng=streams["latents"],
        discriminator_steps=recipe.discriminator_steps,
        generator_batch=recipe.generator_batch or recipe.batch,
        device=device,
    )
    averaged = discriminator.ema.eval(), generator.ema.eval()
    return Training(trainer, streams, _model(recipe, *averaged, dataset.shape, device, lambda: dataset, trust))


def model(
    recipe: GANRecipe,
    state: dict[str, Any],
    *,
    averaged: bool,
    shape: tuple[int, ...],
    device: torch.device,
    trust: Trust,
) -> Model:
    net, maker = _networks(recipe, shape, device, trust)
    for network, learned in ((net, "discriminator"), (maker, "generator")):
        restore_weights(network, weights_of(state, learned, averaged=averaged))
    return _model(recipe, net, maker, shape, device, lambda: DATA.make(recipe.data), trust)


def _networks(
    recipe: GANRecipe, shape: tuple[int, ...], device: torch.device, trust: Trust
) -> tuple[nn.Module, nn.Module]:
    chosen = (DISCRIMINATORS, recipe.net), (GENERATORS, recipe.generator.net)
    net, maker = make_networks(*chosen, seed=recipe.seed, shape=shape, device=device, trust=trust)
    return net, maker


def _model(
    recipe: GANRecipe,
    net: nn.Module,
    maker: nn.Module,
    shape: tuple[int, ...],
    device: torch.device,
    dataset: Callable[[], Dataset],
    trust: Trust,
) -> Model:
    start = deferred(STARTS, recipe.start, dataset, shape=shape, generator=maker, trust=trust)
    return Model(net, CriticEnergy(net), maker, start, recipe, shape, device)
