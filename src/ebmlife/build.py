"""Recipe -> live objects: the only place where names become classes. A new kind of part is one line in a table here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife import checkpoint
from ebmlife.chains import Chains, Fresh, Maturing, Persistent
from ebmlife.data import Batches, Dataset, InMemory, cifar10, digits, download, folder, toy
from ebmlife.energy import Energy, gaussian, tempered, total
from ebmlife.errors import BadInput, at_least
from ebmlife.kinds import Kinds
from ebmlife.langevin import Walk
from ebmlife.learner import Learner
from ebmlife.model import Model
from ebmlife.nets import PerceptronEnergy, PerceptronGenerator, SNGANEnergy, SNGANGenerator
from ebmlife.prepare import prepare
from ebmlife.randomness import Streams, generator, normal
from ebmlife.recipe import Optimizer, Recipe, validate
from ebmlife.starts import Augmented, Born, Coarse, FromData, FromGenerator, Shrunk, Start, Uniform, Walked
from ebmlife.trainer import Trainer


def _cifar10(
    *, folder: str = "~/.cache/ebmlife/cifar-10-batches-bin", train: bool = True, download: bool = False
) -> InMemory:
    return cifar10(_fetched("cifar10", folder, download), train=train)


def _folder(*, folder: str, size: int, channels: int = 3, source: str | None = None) -> Dataset:
    return _images(_fetched(source or "", folder, source is not None), size=size, channels=channels)


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
DATA = Kinds("data", {"digits": digits, "toy": toy, "cifar10": _cifar10, "folder": _folder})
_OF_IMAGE = frozenset({"shape", "size", "channels"})
NETS = Kinds("net", {"sngan": SNGANEnergy, "perceptron": PerceptronEnergy}, _OF_IMAGE)
GENERATORS = Kinds("generator.net", {"sngan": SNGANGenerator, "perceptron": PerceptronGenerator}, _OF_IMAGE)
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
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.trainer.load_state_dict(_to(state["trainer"], self.model.device))
        if self.trainer.generator is None and self.model.generator is not None:
            self.model.generator.load_state_dict(_generator_weights(state, "ema"))
        self.streams.load_state_dict(state["streams"])
        torch.set_rng_state(state["torch"])


def training(recipe: Recipe, *, resumed: bool = False) -> Training:
    """All that a run needs; `resumed`: the weights will come from its own checkpoint, not from another run."""
    for name in ("size", "burn_in_size"):
        if recipe.batch > recipe.chains.options.get(name, recipe.batch):
            raise BadInput(
                f"chains.{name} must be at least the batch of {recipe.batch}, got {recipe.chains.options[name]}"
            )
    device = find_device(recipe.device)
    dataset: Dataset = DATA.make(recipe.data)
    streams = Streams(recipe.seed, device=device)
    net, maker = networks(_self_contained(recipe) if resumed else recipe, dataset.shape, device)
    ebm = _learner(net, recipe.optimizer)
    options = recipe.generator.optimizer if recipe.generator else None
    generator = _learner(maker.train(), options) if maker and options else None
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
    return Training(trainer, streams, _model(recipe, ebm.ema, averaged, dataset.shape, device, lambda: dataset))


def _walk(recipe: Recipe, streams: Streams) -> Walk:
    how = recipe.langevin
    return Walk(steps=how.steps, step_size=how.step_size, noise=normal(streams["langevin"]), clip=how.clip)


def networks(recipe: Recipe, shape: tuple[int, ...], device: torch.device) -> tuple[nn.Module, nn.Module | None]:
    """The energy and the generator, in eval mode, with the weights that the recipe's seed or another run gives them."""
    of_image: dict[str, Any] = {"shape": shape}
    if len(shape) == 3:
        if shape[1] != shape[2]:
            raise BadInput(f"images must be square, got {shape[1]}x{shape[2]}; use data.kind 'folder' to crop them")
        of_image |= {"channels": shape[0], "size": shape[1]}
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
        other = load(recipe.generator.run).generator
        if other is None:
            raise BadInput(f"generator.run {recipe.generator.run} has no generator; name a run that has one")
        _fit_weights(maker, other.state_dict(), f"the generator of {recipe.generator.run}")
    return net, maker


def load(run: str | Path, *, update: int | None = None, averaged: bool = True, device: str = "auto") -> Model:
    """The model of a run, at its newest checkpoint or the one of an update; `averaged=False`: the raw weights."""
    folder = Path(run)
    at = checkpoint.choose(folder, update)
    if at is None:
        raise BadInput(f"{folder} holds no checkpoint; expected the folder of a run, as `ebmlife train --out` makes it")
    state, _ = checkpoint.load(checkpoint.path(folder, at))
    recipe, shape, place = resolve(validate(state["recipe"])), tuple(state["shape"]), find_device(device)
    net, maker = networks(_self_contained(recipe), shape, place)
    weights = "ema" if averaged else "net"
    _fit_weights(net, state["trainer"]["ebm"][weights], str(folder))
    if maker is not None:
        _fit_weights(maker, _generator_weights(state, weights), str(folder))
    return _model(recipe, net, maker, shape, place, lambda: DATA.make(recipe.data))


def _self_contained(recipe: Recipe) -> Recipe:
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
    maker: nn.Module | None,
    shape: tuple[int, ...],
    device: torch.device,
    dataset: Callable[[], Dataset],
) -> Model:
    def start() -> Start:
        data = dataset() if STARTS.wants(recipe.start, "dataset") else None
        made: Start = STARTS.make(recipe.start, shape=shape, dataset=data, generator=maker)
        return made

    return Model(net, _energy(net, recipe), maker, _Deferred(start), recipe, shape, device)


def _energy(net: nn.Module, recipe: Recipe) -> Energy:
    """What chains walk on: net(x) / temperature [+ |x|^2 / (2 tau^2)]."""
    learned = prepare(net, temperature=recipe.temperature, precision=recipe.langevin.precision)
    return learned if recipe.tau is None else total(learned, gaussian(recipe.tau))


def _learner(net: nn.Module, options: Optimizer) -> Learner:
    optimizer = _OPTIMIZERS[options.kind](net.parameters(), options)
    return Learner(net, optimizer, learning_rate=options.learning_rate, clip=options.clip, ema=options.ema)


def _fit_weights(net: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
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
