"""Recipe -> live objects: the only place where names become classes. A new kind of part is one line in a table here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife import checkpoint, places, recipes
from ebmlife.chains import Chains, Fresh, Maturing, Persistent
from ebmlife.data import (
    Batches,
    Dataset,
    InMemory,
    cifar10,
    digits,
    download,
    folder,
    huggingface,
    torchvision,
    toy,
    webdataset,
)
from ebmlife.distributed import ALONE, Ranks
from ebmlife.energy import Energy, gaussian, tempered, total
from ebmlife.errors import BadInput, at_least
from ebmlife.kinds import Kinds
from ebmlife.langevin import Walk
from ebmlife.learner import Learner
from ebmlife.model import Model
from ebmlife.nets import (
    BigGANEnergy,
    BigGANGenerator,
    FlatEnergy,
    PerceptronEnergy,
    PerceptronGenerator,
    SNGANEnergy,
    SNGANGenerator,
)
from ebmlife.nets.batch_norm import share_batch_norm
from ebmlife.prepare import prepare
from ebmlife.prior import FixedPrior, restored
from ebmlife.randomness import Streams, generator, normal
from ebmlife.recipe import Optimizer, Part, Recipe, part, validate
from ebmlife.starts import Augmented, Born, Coarse, FromData, FromGenerator, Shrunk, Start, Uniform, Walked
from ebmlife.trainer import Trainer


def _cifar10(
    *, folder: str = "~/.cache/ebmlife/cifar-10-batches-bin", train: bool = True, download: bool = False
) -> InMemory:
    return cifar10(_fetched("cifar10", folder, download), train=train)


def _folder(
    *, folder: str, size: int, channels: int = 3, source: str | None = None, crop: float | None = None
) -> Dataset:
    return _images(_fetched(source or "", folder, source is not None), size=size, channels=channels, crop=crop)


def _fetched(name: str, place: str, wanted: bool) -> Path:
    path = Path(place).expanduser()
    return download(name, path) if wanted and not path.exists() else path


def _coarse(dataset: Dataset, shape: tuple[int, ...], *, size: int = 4, run: str | None = None) -> Coarse:
    """From data averaged to `size`, or from the samples of a model that was trained at a lower resolution."""
    at_least(1, "start", size=size)
    if run is None:
        return Coarse(Shrunk(FromData(dataset), size=size), shape)
    model = load(run)
    steps, step_size = model.recipe.sampling_steps, model.recipe.langevin.step_size
    return Coarse(Walked(model.start, model.energy, steps=steps, step_size=step_size), shape)


_images = folder  # `folder` is also the name of an option
DATA = Kinds(
    "data",
    {
        "digits": digits,
        "toy": toy,
        "cifar10": _cifar10,
        "folder": _folder,
        "torchvision": torchvision,
        "huggingface": huggingface,
        "webdataset": webdataset,
    },
)
_OF_IMAGE = frozenset({"shape", "size", "channels"})
NETS = Kinds(
    "net",
    {
        "sngan": SNGANEnergy,
        "biggan": BigGANEnergy,
        "perceptron": PerceptronEnergy,
        "flat": FlatEnergy,
    },
    _OF_IMAGE,
)
GENERATORS = Kinds(
    "generator.net",
    {
        "sngan": SNGANGenerator,
        "biggan": BigGANGenerator,
        "perceptron": PerceptronGenerator,
    },
    _OF_IMAGE,
)
STARTS = Kinds(
    "start",
    {
        "uniform": Uniform,
        "data": FromData,
        "generator": FromGenerator,
        "augmented": Augmented,
        "coarse": _coarse,
    },
    frozenset({"shape", "dataset", "generator"}),
)
CHAINS = Kinds(
    "chains",
    {
        "fresh": Fresh,
        "persistent": Persistent,
        "maturing": Maturing,
    },
    frozenset({"start", "walk", "streams"}),
)
_OPTIMIZERS: dict[str, Callable[[Any, Optimizer], torch.optim.Optimizer]] = {
    "adam": lambda parameters, o: torch.optim.Adam(parameters, betas=(o.momentum, o.beta_2)),
    "sgd": lambda parameters, o: torch.optim.SGD(parameters, momentum=o.momentum),
}


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with every part's options checked and complete: what is shown, saved and hashed."""
    parts: dict[str, Any] = {
        kinds.field: kinds.resolve(getattr(recipe, kinds.field)) for kinds in (DATA, NETS, STARTS, CHAINS)
    }
    if recipe.generator is not None:
        net = GENERATORS.resolve(recipe.generator.net)
        parts["generator"] = recipe.generator.model_copy(update={"net": net})
    elif recipe.start.kind == "generator":
        raise BadInput("start.kind 'generator' needs the section 'generator'; choose a recipe that has one")
    return recipe.model_copy(update=parts)


@dataclass(frozen=True)
class Training:
    """A trainer and what else a run is."""

    trainer: Trainer
    streams: Streams
    model: Model  # of the averaged weights

    def state_dict(self) -> dict[str, Any]:
        maker = self.model.generator
        return {
            "trainer": self.trainer.state_dict(),
            "streams": self.streams.state_dict(),
            "torch": torch.get_rng_state(),
            "recipe": self.model.recipe.model_dump(mode="json"),
            "shape": self.model.shape,
            "frozen_generator": None if self.trainer.generator or not maker else maker.state_dict(),
            "prior": self.model.prior.state_dict() if self.model.prior else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.trainer.load_state_dict(_to(state["trainer"], self.model.device))
        if self.trainer.generator is None and self.model.generator is not None:
            self.model.generator.load_state_dict(_generator_weights(state, "ema"))
        self.streams.load_state_dict(state["streams"])
        torch.set_rng_state(state["torch"])


def training(recipe: Recipe, *, resumed: dict[str, Any] | None = None, ranks: Ranks = ALONE) -> Training:
    """All that a run needs, or a rank's share of it; `resumed`: the checkpoint that weights will come from, instead of
    from other runs."""
    _check_sizes(recipe, ranks)
    device = find_device(recipe.device)
    with ranks.leading():
        dataset: Dataset = DATA.make(recipe.data)
    prior = _prior(recipe, dataset.shape, device, resumed)
    streams = Streams(recipe.seed, device=device, scope=scope(ranks))
    net, maker = networks(recipe if resumed is None else self_contained(recipe), dataset.shape, device)
    ebm = _learner(net, recipe.optimizer, ranks)
    options = recipe.generator.optimizer if recipe.generator else None
    if maker and options and ranks.count > 1:
        share_batch_norm(maker, ranks)
    generator = _learner(maker.train(), options, ranks) if maker and options else None
    start: Start = STARTS.make(recipe.start, shape=dataset.shape, dataset=dataset, generator=maker)
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
        explosion=recipe.explosion,
        device=device,
        average=ranks.average,
    )
    averaged = generator.ema.eval() if generator else maker
    energy = energy_of(ebm.ema, recipe, prior)
    return Training(trainer, streams, _model(recipe, ebm.ema, energy, averaged, prior, dataset.shape, device, dataset))


def scope(ranks: Ranks) -> str:
    """Of the random streams: one process alone draws under their plain names."""
    return f"rank {ranks.rank} of {ranks.count}/" if ranks.count > 1 else ""


_BANKS = ("size", "burn_in_size")  # options of chains that count states


def _check_sizes(recipe: Recipe, ranks: Ranks) -> None:
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


def _walk(recipe: Recipe, streams: Streams) -> Walk:
    how = recipe.langevin
    return Walk(steps=how.steps, step_size=how.step_size, noise=normal(streams["langevin"]), clip=how.clip)


def networks(recipe: Recipe, shape: tuple[int, ...], device: torch.device) -> tuple[nn.Module, nn.Module | None]:
    """The energy and the generator, in eval mode, with the weights that the recipe's seed or another run gives them."""
    of_image = _of_image(shape)
    for kinds, chosen in ((NETS, recipe.net), *([(GENERATORS, recipe.generator.net)] if recipe.generator else [])):
        if kinds.wants(chosen, "channels") and len(shape) != 3:
            raise BadInput(f"{kinds.field} {chosen.kind!r} needs images, got states of shape {shape}; use 'perceptron'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(recipe.seed, "weights").initial_seed())
        net: nn.Module = NETS.make(recipe.net, **of_image).to(device).eval()
        if recipe.generator is None:
            return net, None
        maker: nn.Module = GENERATORS.make(recipe.generator.net, **of_image).to(device).eval()
    if recipe.generator.run is not None:
        other = _other("generator.run", recipe.generator.run).generator
        if other is None:
            raise BadInput(f"generator.run {recipe.generator.run} has no generator; name a run that has one")
        fit_weights(maker, other.state_dict(), f"the generator of {recipe.generator.run}")
    return net, maker


def _of_image(shape: tuple[int, ...]) -> dict[str, Any]:
    if len(shape) != 3:
        return {"shape": shape}
    if shape[1] != shape[2]:
        raise BadInput(f"images must be square, got {shape[1]}x{shape[2]}; use data.kind 'folder' to crop them")
    return {"shape": shape, "channels": shape[0], "size": shape[1]}


def load(
    run: str | Path,
    *,
    update: int | None = None,
    averaged: bool = True,
    device: str = "auto",
    evaluation_temperature: float = 1.0,
) -> Model:
    """The model of a run, at its newest checkpoint or the one of an update; `averaged=False`: the raw weights.

    `run` is its folder, 'zoo:NAME' for one that comes with the package, or 'hf:user/model' for one on the hub.
    `evaluation_temperature` divides the learned energy and its prior, but not the Gaussian term: 1.005 is what the
    paper's authors sample their longrun models at.
    """
    folder = places.find(run)
    at = checkpoint.choose(folder, update)
    if at is None:
        raise BadInput(f"{folder} holds no checkpoint; expected the folder of a run, as `ebmlife train --out` makes it")
    if not evaluation_temperature > 0:
        raise BadInput(f"the evaluation temperature must be above 0, got {evaluation_temperature}")
    state, _ = checkpoint.load(checkpoint.path(folder, at))
    recipe, shape, place = resolve(validate(state["recipe"])), tuple(state["shape"]), find_device(device)
    net, maker = networks(self_contained(recipe), shape, place)
    weights = "ema" if averaged else "net"
    if weights not in state["trainer"]["ebm"]:
        raise BadInput(f"{folder} holds averaged weights only; raw ones are in the folder of the training")
    fit_weights(net, state["trainer"]["ebm"][weights], str(folder))
    if maker is not None:
        fit_weights(maker, _generator_weights(state, weights), str(folder))
    prior = _restored(state, shape, place)
    energy = energy_of(net, recipe, prior, evaluation_temperature)
    return _model(recipe, net, energy, maker, prior, shape, place, None)


def _other(field: str, run: str) -> Model:
    """The model of another run that this one builds on."""
    if checkpoint.choose(places.find(run), None) is None:
        name = Path(run).name
        known = name in recipes.names()
        how = f"ebmlife train {name if known else 'RECIPE'} --out {run}"
        raise BadInput(f"{field} {run} holds no checkpoint; make it first: {how}")
    return load(run)


def _prior(
    recipe: Recipe, shape: tuple[int, ...], device: torch.device, saved: dict[str, Any] | None
) -> FixedPrior | None:
    """The averaged energy of the run that the recipe names as its prior, or what a checkpoint saved of it."""
    if recipe.prior is None:
        return None
    if saved is not None and saved["recipe"].get("prior") == recipe.prior.model_dump(mode="json"):
        return _restored(saved, shape, device)
    model = _other("prior.run", recipe.prior.run)
    if model.prior is not None:
        raise BadInput(f"prior.run {recipe.prior.run} has a prior of its own; name a run without one")
    if model.shape != shape:
        raise BadInput(f"prior.run {recipe.prior.run} is of states {model.shape}, and the data are {shape}")
    temperature = recipe.prior.temperature or model.recipe.temperature
    return FixedPrior(model.net.to(device), model.recipe.net, temperature)


def _restored(state: dict[str, Any], shape: tuple[int, ...], device: torch.device) -> FixedPrior | None:
    def make(chosen: Part) -> nn.Module:
        net: nn.Module = NETS.make(chosen, **_of_image(shape)).to(device)
        return net

    return restored(state.get("prior"), make)  # older checkpoints know of none


def self_contained(recipe: Recipe) -> Recipe:
    """For weights from a checkpoint: the run that the generator once came from need not be there any more."""
    if recipe.generator is None:
        return recipe
    return recipe.model_copy(update={"generator": recipe.generator.model_copy(update={"run": None})})


def _generator_weights(state: dict[str, Any], kind: str) -> dict[str, Tensor]:
    learned = state["trainer"]["generator"]
    weights: dict[str, Tensor] = state["frozen_generator"] if learned is None else learned[kind]
    return weights


class _Deferred:
    """A start that is made when it is first used: only then is its data needed."""

    def __init__(self, make: Callable[[], Start]) -> None:
        self._make = make
        self._start: Start | None = None

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> Born:
        self._start = self._start or self._make()
        return self._start(n, rng=rng, old=old)


def _model(
    recipe: Recipe,
    net: nn.Module,
    energy: Energy,
    maker: nn.Module | None,
    prior: FixedPrior | None,
    shape: tuple[int, ...],
    device: torch.device,
    dataset: Dataset | None,  # None: read when a start first needs it
) -> Model:
    def start() -> Start:
        data = dataset
        if data is None and STARTS.wants(recipe.start, "dataset"):
            data = DATA.make(recipe.data)
        made: Start = STARTS.make(recipe.start, shape=shape, dataset=data, generator=maker)
        return made

    return Model(net, energy, maker, _Deferred(start), recipe, shape, device, prior)


def energy_of(
    net: nn.Module, recipe: Recipe, prior: FixedPrior | None = None, evaluation_temperature: float = 1.0
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


def _learner(net: nn.Module, options: Optimizer, ranks: Ranks) -> Learner:
    return Learner(
        net,
        _OPTIMIZERS[options.kind](net.parameters(), options),
        learning_rate=options.learning_rate,
        clip=options.clip,
        ema=options.ema,
        average=ranks.average,
    )


def fit_weights(net: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"the weights of {origin} do not fit {type(net).__name__} of this recipe") from error


def find_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.ones(1, device=name).cpu()  # 'meta' exists, but computes nothing
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(f"device {name!r} is not there; use --device cpu or --device auto") from error


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return {key: _to(item, device) for key, item in value.items()} if isinstance(value, dict) else value
