"""Maximum likelihood by Langevin sampling: shortrun, midrun and longrun."""

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

from torch import nn

from ebmlife.data import Batches, Dataset
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.nets.batch_norm import share_batch_norm
from ebmlife.recipes.schema import EBMRecipe, part
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.lazy import deferred, make_start
from ebmlife.runs.build.live import Training, frozen_or_learned, scope, weights_of
from ebmlife.runs.build.nets import fit_weights, learner, make_networks, restore_weights
from ebmlife.runs.build.other import find_prior, other_generator, restored_prior
from ebmlife.runs.build.tables import CHAINS, DATA, GENERATORS, NETS, STARTS, bank_sizes, declared
from ebmlife.runs.model import Model
from ebmlife.runs.prior import FixedPrior
from ebmlife.sampling.energy import Energy, gaussian, tempered, total
from ebmlife.sampling.fast import prepare
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams, normal
from ebmlife.training.chains import Chains
from ebmlife.training.divergence import Divergence
from ebmlife.training.ebm import TrainableEnergy, Trainer
from ebmlife.training.learner import Learner
from ebmlife.training.starts import Start


def resolve(recipe: EBMRecipe) -> EBMRecipe:
    parts: dict[str, Any] = {
        table.field: table.resolve(getattr(recipe, table.field)) for table in (DATA, NETS, STARTS, CHAINS)
    }
    declared(recipe.chains)
    if recipe.generator is not None:
        net = GENERATORS.resolve(recipe.generator.net)
        parts["generator"] = recipe.generator.model_copy(update={"net": net})
    elif STARTS.accepts(recipe.start, "generator"):
        raise BadInput(f"start.kind {recipe.start.kind!r} needs the section 'generator'; choose a recipe that has one")
    return recipe.model_copy(update=parts)


def training(recipe: EBMRecipe, context: Context, *, resumed: dict[str, Any] | None, ranks: Ranks) -> Training:
    _check_sizes(recipe, ranks)
    with ranks.rank0_first():
        dataset: Dataset = DATA.make(recipe.data)
    context = context.with_shape(dataset.shape)
    prior = find_prior(recipe, context, resumed)
    streams = Streams(recipe.seed, device=context.device, scope=scope(ranks))
    net, generator_net = networks(recipe if resumed is None else self_contained(recipe), context)
    ebm = learner(net, recipe.optimizer, ranks)
    options = recipe.generator.optimizer if recipe.generator else None
    if generator_net and options and ranks.count > 1:
        share_batch_norm(generator_net, ranks)
    generator = learner(generator_net.train(), options, ranks) if generator_net and options else None
    start = make_start(STARTS, recipe.start, dataset, context, generator=generator_net)
    chains = _chains(recipe, start, streams, context, ranks)
    share = ranks.part(recipe.batch)
    trainer = Trainer(
        Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, workers=recipe.workers, part=share),
        chains,
        _trainable(ebm, recipe, prior),
        generator=generator,
        data_noise=recipe.data_noise,
        energy_l2=recipe.energy_l2,
        noise=normal(streams["data noise"]),
        divergence=Divergence(balance=_balance(recipe, dataset.shape), limit=recipe.explosion),
        device=context.device,
        average=ranks.average,
    )
    averaged = generator.ema.eval() if generator else generator_net
    model = _model(recipe, ebm.ema, averaged, prior, lambda: dataset, context)
    return Training(trainer, streams, model, frozen_generator=None if generator else generator_net)


def _check_sizes(recipe: EBMRecipe, ranks: Ranks) -> None:
    if recipe.batch % ranks.count:
        raise BadInput(f"a batch of {recipe.batch} cannot be split evenly over {ranks.count} ranks; choose another")
    for name, size in bank_sizes(recipe.chains).items():
        if recipe.batch > size:
            raise BadInput(f"chains.{name} must be at least the batch of {recipe.batch}, got {size}")


def _chains(recipe: EBMRecipe, start: Start, streams: Streams, context: Context, ranks: Ranks) -> Chains:
    """Returns the chains of one rank: all ranks together hold the number of states in the recipe."""
    sizes = {name: ranks.share(size) for name, size in bank_sizes(recipe.chains).items()}
    chosen = part(recipe.chains.kind, **recipe.chains.options | sizes)
    chains: Chains = CHAINS.make(chosen, start=start, walk=_walk(recipe, streams), streams=streams, shape=context.shape)
    return chains


def _walk(recipe: EBMRecipe, streams: Streams) -> Walk:
    how = recipe.langevin
    noise = normal(streams["langevin"])
    return Walk(steps=how.steps, step_size=how.step_size, noise=noise, clip=how.clip, sampler=how.sampler)


def _balance(recipe: EBMRecipe, shape: tuple[int, ...]) -> float:
    """|grad E| at which step_size^2 / 2 |grad E|, the drift of a step, is as long as step_size sqrt(D), its noise."""
    return 2 * sqrt(prod(shape)) / recipe.langevin.step_size


def networks(recipe: EBMRecipe, context: Context) -> tuple[nn.Module, nn.Module | None]:
    """Returns the energy and the generator, in eval mode, with weights from the recipe's seed or from another run."""
    if recipe.generator is None:
        (net,) = make_networks((NETS, recipe.net), seed=recipe.seed, context=context)
        return net, None
    chosen = (NETS, recipe.net), (GENERATORS, recipe.generator.net)
    net, generator = make_networks(*chosen, seed=recipe.seed, context=context)
    if recipe.generator.run is not None:
        weights = other_generator(recipe.generator.run, context)
        fit_weights(generator, weights, f"the generator of {recipe.generator.run}")
    return net, generator


def model(recipe: EBMRecipe, state: dict[str, Any], context: Context, *, averaged: bool) -> Model:
    net, generator = networks(self_contained(recipe), context)
    restore_weights(net, weights_of(state, "ebm", averaged=averaged))
    if generator is not None:
        restore_weights(generator, frozen_or_learned(state, averaged=averaged))
    prior = restored_prior(state, context)
    if recipe.prior is not None and prior is None:
        raise BadInput("the checkpoint has no prior, and its recipe has one")
    return _model(recipe, net, generator, prior, lambda: DATA.make(recipe.data), context)


def self_contained(recipe: EBMRecipe) -> EBMRecipe:
    """Returns the recipe without the run of its generator, which is not needed if a checkpoint has the weights."""
    if recipe.generator is None:
        return recipe
    return recipe.model_copy(update={"generator": recipe.generator.model_copy(update={"run": None})})


def _model(
    recipe: EBMRecipe,
    net: nn.Module,
    generator: nn.Module | None,
    prior: FixedPrior | None,
    dataset: Callable[[], Dataset],
    context: Context,
) -> Model:
    start = deferred(STARTS, recipe.start, dataset, context, generator=generator)
    energy = energy_of(net, recipe, prior)
    return Model(net, energy, generator, start, recipe, context.shape, context.device, prior)


def _trainable(ebm: Learner, recipe: EBMRecipe, prior: FixedPrior | None) -> TrainableEnergy:
    """Returns the energy of a training: net(x) / temperature [+ prior(x) / prior.temperature] [+ |x|^2 / (2 tau^2)]."""
    precision = recipe.langevin.precision
    fixed = [] if prior is None else [prepare(prior.net, temperature=prior.temperature, precision=precision)]
    fixed += [] if recipe.tau is None else [gaussian(recipe.tau)]
    return TrainableEnergy(ebm, temperature=recipe.temperature, fixed=fixed, precision=precision)


def energy_of(
    net: nn.Module, recipe: EBMRecipe, prior: FixedPrior | None = None, evaluation_temperature: float = 1.0
) -> Energy:
    """Returns the energy of a trained model:

    (net(x) / temperature [+ prior(x) / prior.temperature]) / evaluation_temperature [+ |x|^2 / (2 tau^2)].
    """
    precision = recipe.langevin.precision
    terms = [prepare(net, temperature=recipe.temperature, precision=precision)]
    if prior is not None:
        terms.append(prepare(prior.net, temperature=prior.temperature, precision=precision))
    energy = total(*terms)
    if evaluation_temperature != 1:
        energy = tempered(energy, evaluation_temperature)
    return energy if recipe.tau is None else total(energy, gaussian(recipe.tau))
