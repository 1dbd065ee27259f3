"""Maximum likelihood by Langevin sampling: shortrun, midrun and longrun."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ebmlife.build.parts import (
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
)
from ebmlife.build.training import Training, frozen_or_learned
from ebmlife.chains import Chains
from ebmlife.data import Batches, Dataset
from ebmlife.energy import Energy, gaussian, tempered, total
from ebmlife.errors import BadInput
from ebmlife.langevin import Walk
from ebmlife.model import Model
from ebmlife.prepare import prepare
from ebmlife.randomness import Streams, normal
from ebmlife.recipe import EBMRecipe
from ebmlife.starts import Start
from ebmlife.trainer import Trainer


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


def training(recipe: EBMRecipe, *, resumed: bool) -> Training:
    for name in ("size", "burn_in_size"):
        if recipe.batch > recipe.chains.options.get(name, recipe.batch):
            raise BadInput(
                f"chains.{name} must be at least the batch of {recipe.batch}, got {recipe.chains.options[name]}"
            )
    device = find_device(recipe.device)
    dataset: Dataset = DATA.make(recipe.data)
    streams = Streams(recipe.seed, device=device)
    net, maker = networks(_self_contained(recipe) if resumed else recipe, dataset.shape, device)
    ebm = learner(net, recipe.optimizer)
    options = recipe.generator.optimizer if recipe.generator else None
    generator = learner(maker.train(), options) if maker and options else None
    start: Start = STARTS.make(recipe.start, shape=dataset.shape, dataset=dataset, generator=maker)
    chains: Chains = CHAINS.make(recipe.chains, start=start, walk=_walk(recipe, streams), streams=streams)
    trainer = Trainer(
        Batches(dataset, size=recipe.batch, seed=recipe.seed, flip=recipe.flip, workers=recipe.workers),
        chains,
        learned=tempered(net, recipe.temperature),
        energy=_energy(net, recipe),
        ebm=ebm,
        generator=generator,
        data_noise=recipe.data_noise,
        noise=normal(streams["data noise"]),
        explosion=recipe.explosion,
        device=device,
    )
    averaged = generator.ema.eval() if generator else maker
    model = _model(recipe, ebm.ema, averaged, dataset.shape, device, lambda: dataset)
    return Training(trainer, streams, model, frozen_generator=None if generator else maker)


def _walk(recipe: EBMRecipe, streams: Streams) -> Walk:
    how = recipe.langevin
    return Walk(steps=how.steps, step_size=how.step_size, noise=normal(streams["langevin"]), clip=how.clip)


def networks(recipe: EBMRecipe, shape: tuple[int, ...], device: torch.device) -> tuple[nn.Module, nn.Module | None]:
    """The energy and the generator, in eval mode, with the weights that the recipe's seed or another run gives them."""
    if recipe.generator is None:
        (net,) = make_networks((NETS, recipe.net), seed=recipe.seed, shape=shape, device=device)
        return net, None
    chosen = (NETS, recipe.net), (GENERATORS, recipe.generator.net)
    net, maker = make_networks(*chosen, seed=recipe.seed, shape=shape, device=device)
    if recipe.generator.run is not None:
        fit_weights(maker, other_generator(recipe.generator.run), f"the generator of {recipe.generator.run}")
    return net, maker


def other_generator(origin: str) -> dict[str, Tensor]:
    """The weights of another run's generator, or those in a file."""
    from ebmlife.build import load  # of the package around: a run may name another

    if origin.endswith(".safetensors"):
        try:
            weights: dict[str, Tensor] = load_file(Path(origin).expanduser())
            return weights
        except (OSError, SafetensorError) as error:
            raise BadInput(f"generator.run {origin}: cannot be read as safetensors ({error})") from error
    if not Path(origin).is_dir():
        raise BadInput(
            f"generator.run {origin}: no run is there; make one (ebmlife train NAME-gan --out {origin}), name another, "
            "or begin with data: --start.kind data --generator none"
        )
    other = load(origin).generator
    if other is None:
        raise BadInput(f"generator.run {origin} has no generator; name a run that has one")
    return other.state_dict()


def model(
    recipe: EBMRecipe, state: dict[str, Any], *, averaged: bool, shape: tuple[int, ...], device: torch.device
) -> Model:
    net, maker = networks(_self_contained(recipe), shape, device)
    weights = "ema" if averaged else "net"
    fit_weights(net, state["trainer"]["ebm"][weights], "the checkpoint")
    if maker is not None:
        fit_weights(maker, frozen_or_learned(state, weights), "the checkpoint")
    return _model(recipe, net, maker, shape, device, lambda: DATA.make(recipe.data))


def _self_contained(recipe: EBMRecipe) -> EBMRecipe:
    """For weights from a checkpoint: the run that the generator once came from need not be there any more."""
    if recipe.generator is None:
        return recipe
    return recipe.model_copy(update={"generator": recipe.generator.model_copy(update={"run": None})})


def _model(
    recipe: EBMRecipe,
    net: nn.Module,
    maker: nn.Module | None,
    shape: tuple[int, ...],
    device: torch.device,
    dataset: Callable[[], Dataset],
) -> Model:
    start = deferred(STARTS, recipe.start, dataset, shape=shape, generator=maker)
    return Model(net, _energy(net, recipe), maker, start, recipe, shape, device)


def _energy(net: nn.Module, recipe: EBMRecipe) -> Energy:
    """What chains walk on: net(x) / temperature [+ |x|^2 / (2 tau^2)]."""
    learned = prepare(net, temperature=recipe.temperature, precision=recipe.langevin.precision)
    return learned if recipe.tau is None else total(learned, gaussian(recipe.tau))
