"""SNGANs."""

from collections.abc import Callable
from typing import Any

from torch import nn

from ebmlife.data import Batches, Dataset
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import GANRecipe
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.lazy import deferred
from ebmlife.runs.build.live import Training, require_single_process, weights_of
from ebmlife.runs.build.nets import fit_weights, learner, make_networks, restore_weights
from ebmlife.runs.build.other import other_generator
from ebmlife.runs.build.tables import DATA, DISCRIMINATORS, GENERATORS, STARTS
from ebmlife.runs.model import Model
from ebmlife.sampling.rng import Streams
from ebmlife.training.gan import CriticEnergy, GANTrainer


def resolve(recipe: GANRecipe) -> GANRecipe:
    if recipe.generator.optimizer is None:
        raise BadInput("generator.optimizer of a GAN must not be none, because its generator learns")
    generator = recipe.generator.model_copy(update={"net": GENERATORS.resolve(recipe.generator.net)})
    parts = {table.field: table.resolve(getattr(recipe, table.field)) for table in (DATA, DISCRIMINATORS, STARTS)}
    return recipe.model_copy(update={**parts, "generator": generator})


def training(recipe: GANRecipe, context: Context, *, resumed: dict[str, Any] | None, ranks: Ranks) -> Training:
    require_single_process(recipe, ranks)
    assert recipe.generator.optimizer is not None
    dataset: Dataset = DATA.make(recipe.data)
    context = context.with_shape(dataset.shape)
    streams = Streams(recipe.seed, device=context.device)
    net, generator_net = _networks(recipe, context)
    if recipe.generator.run is not None and resumed is None:
        weights = other_generator(recipe.generator.run, context)
        fit_weights(generator_net, weights, f"the generator of {recipe.generator.run}")
    discriminator = learner(net.train(), recipe.optimizer)
    generator = learner(generator_net.train(), recipe.generator.optimizer)
    trainer = GANTrainer(
        Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, workers=recipe.workers),
        discriminator=discriminator,
        generator=generator,
        rng=streams["latents"],
        discriminator_steps=recipe.discriminator_steps,
        generator_batch=recipe.generator_batch or recipe.batch,
        device=context.device,
    )
    model = _model(recipe, discriminator.ema.eval(), generator.ema.eval(), lambda: dataset, context)
    return Training(trainer, streams, model)


def model(recipe: GANRecipe, state: dict[str, Any], context: Context, *, averaged: bool) -> Model:
    net, generator = _networks(recipe, context)
    for network, name in ((net, "discriminator"), (generator, "generator")):
        restore_weights(network, weights_of(state, name, averaged=averaged))
    return _model(recipe, net, generator, lambda: DATA.make(recipe.data), context)


def _networks(recipe: GANRecipe, context: Context) -> tuple[nn.Module, nn.Module]:
    chosen = (DISCRIMINATORS, recipe.net), (GENERATORS, recipe.generator.net)
    net, generator = make_networks(*chosen, seed=recipe.seed, context=context)
    return net, generator


def _model(
    recipe: GANRecipe, net: nn.Module, generator: nn.Module, dataset: Callable[[], Dataset], context: Context
) -> Model:
    start = deferred(STARTS, recipe.start, dataset, context, generator=generator)
    return Model(net, CriticEnergy(net), generator, start, recipe, context.shape, context.device)
