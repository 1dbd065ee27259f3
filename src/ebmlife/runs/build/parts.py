"""Parts by their kind: the tables in which names become classes. A new kind of part is one line here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.data import Dataset, InMemory, cifar10, digits, download, folder, huggingface, torchvision, toy, webdataset
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput, at_least
from ebmlife.nets import (
    BigGANEnergy,
    BigGANGenerator,
    CIFARResNet,
    FlatEnergy,
    Glow,
    PerceptronEnergy,
    PerceptronGenerator,
    ScoreNet,
    SNGANDiscriminator,
    SNGANEnergy,
    SNGANGenerator,
    WideResNet,
)
from ebmlife.recipes.options import Registry
from ebmlife.recipes.sections import Optimizer, Part
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.rng import generator
from ebmlife.sampling.schedule import LinearDecay
from ebmlife.storage.atomic import located
from ebmlife.storage.contents import mismatch, not_finite
from ebmlife.training.chains import BurnIn, Fresh, Persistent
from ebmlife.training.learner import Learner
from ebmlife.training.starts import (
    AfterLangevin,
    Augmented,
    Coarse,
    Downsampled,
    FromData,
    FromGenerator,
    InitialStates,
    Start,
    Uniform,
)


def _cifar10(
    *, folder: str = "~/.cache/ebmlife/cifar-10-batches-bin", train: bool = True, download: bool = False
) -> InMemory:
    return cifar10(_fetched("cifar10", folder, download), train=train)


def _folder(
    *,
    folder: str,
    size: int,
    channels: int = 3,
    source: str | None = None,
    crop: float | None = None,
    labels: str | None = None,
    held_out: float | None = None,
    train: bool | None = None,
) -> Dataset:
    return _images(
        _fetched(source or "", folder, source is not None),
        size=size,
        channels=channels,
        crop=crop,
        labels=labels,
        held_out=held_out,
        train=train,
    )


def _fetched(name: str, place: str, wanted: bool) -> Path:
    path = located(place)
    return download(name, path) if wanted and not path.exists() else path


def _coarse(
    dataset: Dataset, shape: tuple[int, ...], *, size: int = 4, run: str | None = None, trust: Trust = NOTHING
) -> Coarse:
    """From data averaged to `size`, or from the samples of a model that was trained at a lower resolution."""
    from ebmlife.runs.build import load  # of the package around: a run may name another

    at_least(1, "start", size=size)
    if run is None:
        return Coarse(Downsampled(FromData(dataset), size=size), shape)
    model = load(run, trust_code=trust)
    steps, step_size = model.recipe.sampling_steps, model.recipe.langevin.step_size
    return Coarse(AfterLangevin(model.start, model.energy, steps=steps, step_size=step_size), shape)


class _Called(nn.Module):
    """A generator of the user's own: what package.module:function returns, from latents (B, latent) to images."""

    def __init__(self, shape: tuple[int, ...], *, call: str, trust: Trust = NOTHING) -> None:
        super().__init__()
        self.maker = trust.find(call, "generator.net.call")()
        if not callable(self.maker) or not isinstance(getattr(self.maker, "latent", None), int):
            raise BadInput(f"{call} must return a generator: callable, with its number of inputs as `latent`")
        self.latent: int = self.maker.latent
        with torch.no_grad():
            made = self(torch.zeros(2, self.latent))
        if not isinstance(made, Tensor) or made.shape[1:] != shape:
            raise BadInput(f"{call} must make states of shape {shape}, not {tuple(made.shape[1:])}")

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.maker(z)
        return x


_images = folder  # `folder` is also the name of an option
DATA = Registry(
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
NETS = Registry(
    "net",
    {
        "sngan": SNGANEnergy,
        "biggan": BigGANEnergy,
        "perceptron": PerceptronEnergy,
        "flat": FlatEnergy,
    },
    _OF_IMAGE,
)
GENERATORS = Registry(
    "generator.net",
    {
        "sngan": SNGANGenerator,
        "biggan": BigGANGenerator,
        "perceptron": PerceptronGenerator,
        "python": _Called,
    },
    _OF_IMAGE | {"trust"},
)
DISCRIMINATORS = Registry("net", {"sngan": SNGANDiscriminator}, _OF_IMAGE)
CLASSIFIERS = Registry("net", {"wide-resnet": WideResNet, "resnet": CIFARResNet}, _OF_IMAGE)
SCORES = Registry("net", {"score": ScoreNet}, _OF_IMAGE)
FLOWS = Registry("net", {"glow": Glow}, _OF_IMAGE)
STARTS = Registry(
    "start",
    {
        "uniform": Uniform,
        "data": FromData,
        "generator": FromGenerator,
        "augmented": Augmented,
        "coarse": _coarse,
    },
    frozenset({"shape", "dataset", "generator", "trust"}),
)
CHAINS = Registry(
    "chains",
    {
        "fresh": Fresh,
        "persistent": Persistent,
        "maturing": BurnIn,
    },
    frozenset({"start", "walk", "streams"}),
)
_OPTIMIZERS: dict[str, Callable[[Any, Optimizer], torch.optim.Optimizer]] = {
    "adam": lambda parameters, o: torch.optim.Adam(
        parameters, betas=(o.momentum, o.beta_2), weight_decay=o.weight_decay
    ),
    "sgd": lambda parameters, o: torch.optim.SGD(
        parameters, momentum=o.momentum, nesterov=o.nesterov, weight_decay=o.weight_decay
    ),
}


def make_networks(
    *chosen: tuple[Registry, Part], seed: int, shape: tuple[int, ...], device: torch.device, trust: Trust = NOTHING
) -> list[nn.Module]:
    """Networks for states of that shape, in eval mode, with the weights that the seed gives them."""
    given = of_image(shape)
    for kinds, net in chosen:
        if kinds.wants(net, "channels") and len(shape) != 3:
            raise BadInput(f"{kinds.field} {net.kind!r} needs images, got states of shape {shape}; use 'perceptron'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "weights").initial_seed())
        try:
            return [kinds.make(net, trust=trust, **given).to(device).eval() for kinds, net in chosen]
        except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:  # sizes beyond all memory
            said = (str(error) or type(error).__name__).splitlines()[0]
            raise BadInput(f"the networks of this recipe cannot be made: {said}; choose smaller ones") from error


def of_image(shape: tuple[int, ...]) -> dict[str, Any]:
    """What networks are told of the states that they are for."""
    if len(shape) != 3:
        return {"shape": shape}
    if shape[1] != shape[2]:
        raise BadInput(f"images must be square, got {shape[1]}x{shape[2]}; use data.kind 'folder' to crop them")
    return {"shape": shape, "channels": shape[0], "size": shape[1]}


def learner(net: nn.Module, options: Optimizer, ranks: Ranks = SINGLE_PROCESS) -> Learner:
    rate = (
        options.learning_rate
        if options.decay_until is None
        else LinearDecay(options.learning_rate, options.decay_until)
    )
    return Learner(
        net,
        _OPTIMIZERS[options.kind](net.parameters(), options),
        learning_rate=rate,
        clip=options.clip,
        clip_by=options.clip_by,
        ema=options.ema,
        average=ranks.average,
    )


def fit_weights(net: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
    try:
        net.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise BadInput(f"the weights of {origin} do not fit {type(net).__name__} of this recipe") from error
    said = not_finite(weights)
    if said is not None:
        raise BadInput(f"the weights of {origin} cannot be used: {said}; choose an earlier checkpoint, or train again")


def restore_weights(net: nn.Module, weights: dict[str, Tensor]) -> None:
    """A checkpoint's weights, which must be exactly what the network has: in number, name, shape and dtype."""
    said = mismatch(weights, net.state_dict())
    if said is not None:
        raise BadInput(f"the weights of the checkpoint do not fit {type(net).__name__} of this recipe: {said}")
    fit_weights(net, weights, "the checkpoint")


class Deferred:
    """A start that is made when it is first used: only then is its data needed."""

    def __init__(self, make: Callable[[], Start]) -> None:
        self._make = make
        self._start: Start | None = None

    def __call__(self, n: int, *, rng: torch.Generator, old: Tensor | None = None) -> InitialStates:
        self._start = self._start or self._make()
        return self._start(n, rng=rng, old=old)


def deferred(kinds: Registry, chosen: Part, dataset: Callable[[], Dataset], **provided: Any) -> Start:
    """The start of a part; its data set is made only where this kind wants one."""

    def make() -> Start:
        data = dataset() if kinds.wants(chosen, "dataset") else None
        start: Start = kinds.make(chosen, dataset=data, **provided)
        return start

    return Deferred(make)


def find_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.ones(1, device=name).cpu()  # 'meta' exists, but computes nothing
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(f"device {name!r} is not there; use --device cpu or --device auto") from error
