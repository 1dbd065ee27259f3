"""Maximum likelihood by Langevin sampling: shortrun, midrun and longrun."""

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import torch
from torch import nn

from ebmlife.data import Batches, Dataset
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.nets.batch_norm import share_batch_norm
from ebmlife.recipes.schema import EBMRecipe, Part, part
from ebmlife.runs.build.live import Training, frozen_or_learned, scope, weights_of
from ebmlife.runs.build.other import find_prior, other_generator, restored_prior
from ebmlife.runs.build.parts import (
    CHAINS,
    DATA,
    GENERATORS,
    NETS,
    STARTS,
    deferred,
    find_device,
    fit_weights,
    learner,
    make_networks,
    restore_weights,
)
from ebmlife.runs.model import Model
from ebmlife.runs.prior import FixedPrior
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.energy import Energy, gaussian, tempered, total
from ebmlife.sampling.fast import prepare
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams, normal
from ebmlife.training.chains import Chains
from ebmlife.training.divergence import Divergence
from ebmlife.training.ebm import Trainer
from ebmlife.training.starts import Start

_BANKS = ("size", "burn_in_size")  # options of chains that count states


def resolve(recipe: EBMRecipe) -> EBMRecipe:
    parts: dict[str, Any] = {
        kinds.field: kinds.resolve(getattr(recipe, kinds.field)) for kinds in (DATA, NETS, STARTS, CHAINS)
    }
    if recipe.generator is not None:
        net = GENERATORS.resolve(recipe.generator.net)
        parts["generator"] = recipe.generator.model_copy(update={"net": net})
    elif recipe.start.kind == "generator":
        raise BadInput("start.kind 'generator' needs the section 'generator'; choose a recipe that has one")
    return recipe.model_copy(update=parts)


def training(recipe: EBMRecipe, *, resumed: dict[str, Any] | None, ranks: Ranks, trust: Trust) -> Training:
    _check_sizes(recipe, ranks)
    device = find_device(recipe.device)
    with ranks.rank0_first():
        dataset: Dataset = DATA.make(recipe.data)
    prior = find_prior(recipe, dataset.shape, device, resumed, trust=trust)
    streams = Streams(recipe.seed, device=device, scope=scope(ranks))
    whole = recipe if resumed is None else self_contained(recipe)
    net, maker = networks(whole, dataset.shape, device, trust=trust)
    ebm = learner(net, recipe.optimizer, ranks)
    options = recipe.generator.optimizer if recipe.generator else None
    if maker and options and ranks.count > 1:
        share_batch_norm(maker, ranks)
    generator = learner(maker.train(), options, ranks) if maker and options else None
    start: Start = STARTS.make(recipe.start, shape=dataset.shape, dataset=dataset, generator=maker, trust=trust)
    shared = _shared(recipe.chains, ranks)
    chains: Chains = CHAINS.make(shared, start=start, walk=_walk(recipe, streams), streams=streams)
    whose = ranks.part(recipe.batch)
    trainer = Trainer(
        Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, workers=recipe.workers, part=whose),
        chains,
        learned=tempered(net, recipe.temperature),
        energy=energy_of(net, recipe, prior),
        ebm=ebm,
        generator=generator,
        data_noise=recipe.data_noise,
        noise=normal(streams["data noise"]),
        divergence=Divergence(balance=_balance(recipe, dataset.shape), limit=recipe.explosion),
        device=device,
        average=ranks.average,
    )
    averaged = generator.ema.eval() if generator else maker
    model = _model(recipe, ebm.ema, averaged, prior, dataset.shape, device, lambda: dataset, trust)
    return Training(trainer, streams, model, frozen_generator=None if generator else maker)


def _check_sizes(recipe: EBMRecipe, ranks: Ranks) -> None:
    if recipe.batch % ranks.count:
        raise BadInput(f"a batch of {recipe.batch} cannot be split evenly over {ranks.count} ranks; choose another")
    for name in _BANKS:
        if recipe.batch > recipe.chains.options.get(name, recipe.batch):
            raise BadInput(
                f"chains.{name} must be at least the batch of {recipe.batch}, got {recipe.chains.options[name]}"
            )


def _shared(chains: Part, ranks: Ranks) -> Part:
    """The chains of one rank: all ranks together hold as many states as the recipe says."""
    sizes = {name: ranks.share(size) for name, size in chains.options.items() if name in _BANKS}
    return part(chains.kind, **chains.options | sizes)


def _walk(recipe: EBMRecipe, streams: Streams) -> Walk:
    how = recipe.langevin
    return Walk(steps=how.steps, step_size=how.step_size, noise=normal(streams["langevin"]), clip=how.clip)


def _balance(recipe: EBMRecipe, shape: tuple[int, ...]) -> float:
    """|grad E| at which step_size^2 / 2 |grad E|, the drift of a step, is as long as step_size sqrt(D), its noise."""
    return 2 * sqrt(prod(shape)) / recipe.langevin.step_size


def networks(
    recipe: EBMRecipe, shape: tuple[int, ...], device: torch.device, *, trust: Trust = NOTHING
) -> tuple[nn.Module, nn.Module | None]:
    """The energy and the generator, in eval mode, with the weights that the recipe's seed or another run gives them."""
    if recipe.generator is None:
        (net,) = make_networks((NETS, recipe.net), seed=recipe.seed, shape=shape, device=device)
        return net, None
    chosen = (NETS, recipe.net), (GENERATORS, recipe.generator.net)
    net, maker = make_networks(*chosen, seed=recipe.seed, shape=shape, device=device, trust=trust)
    if recipe.generator.run is not None:
        weights = other_generator(recipe.generator.run, trust=trust)
        fit_weights(maker, weights, f"the generator of {recipe.generator.run}")
    return net, maker


def model(
    recipe: EBMRecipe,
    state: dict[str, Any],
    *,
    averaged: bool,
    shape: tuple[int, ...],
    device: torch.device,
    trust: Trust,
) -> Model:
    net, maker = networks(self_contained(recipe), shape, device, trust=trust)
    restore_weights(net, weights_of(state, "ebm", averaged=averaged))
    if maker is not None:
        restore_weights(maker, frozen_or_learned(state, averaged=averaged))
    prior = restored_prior(state, shape, device)
    if recipe.prior is not None and prior is None:
        raise BadInput("the checkpoint has no prior, and its recipe has one")
    return _model(recipe, net, maker, prior, shape, device, lambda: DATA.make(recipe.data), trust)


def self_contained(recipe: EBMRecipe) -> EBMRecipe:
    """For weights from a checkpoint: the run that the generator once came from need not be there any more."""
    if recipe.generator is None:
        return recipe
    return recipe.model_copy(update={"generator": recipe.generator.model_copy(update={"run": None})})


def _model(
    recipe: EBMRecipe,
    net: nn.Module,
    maker: nn.Module | None,
    prior: FixedPrior | None,
    shape: tuple[int, ...],
    device: torch.device,
    dataset: Callable[[], Dataset],
    trust: Trust,
) -> Model:
    start = deferred(STARTS, recipe.start, dataset, shape=shape, generator=maker, trust=trust)
    return Model(net, energy_of(net, recipe, prior), maker, start, recipe, shape, device, prior)


def energy_of(
    net: nn.Module, recipe: EBMRecipe, prior: FixedPrior | None = None, evaluation_temperature: float = 1.0
) -> Energy:
    """What chains walk on:

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
