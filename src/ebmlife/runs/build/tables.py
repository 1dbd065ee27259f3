"""The tables that map the kinds of a recipe's parts to classes. A new kind is one line here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.data import (
    Dataset,
    Description,
    InMemory,
    cifar10,
    described,
    description_of,
    digits,
    download,
    folder,
    huggingface,
    mnist,
    torchvision,
    toy,
    webdataset,
)
from ebmlife.data.cifar import CIFAR10
from ebmlife.data.mnist import MNIST
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
from ebmlife.runs.build.context import Load
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.storage.atomic import located
from ebmlife.training.chains import BurnIn, Declared, Fresh, Persistent
from ebmlife.training.starts import (
    AfterLangevin,
    Augmented,
    Coarse,
    Downsampled,
    FromData,
    FromGenerator,
    Uniform,
)


@described(CIFAR10)
def _cifar10(
    *, folder: str = "~/.cache/ebmlife/cifar-10-batches-bin", train: bool = True, download: bool = False
) -> InMemory:
    return cifar10(_fetched("cifar10", folder, download), train=train)


@described(MNIST)
def _mnist(*, folder: str = "~/.cache/ebmlife/mnist", train: bool = True, download: bool = False) -> InMemory:
    return mnist(_fetched("mnist", folder, download), train=train)


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


def _fetched(name: str, folder: str, download_it: bool) -> Path:
    path = located(folder)
    return download(name, path) if download_it and not path.exists() else path


def _coarse(
    dataset: Dataset, shape: tuple[int, ...], load: Load, trust: Trust, *, size: int = 4, run: str | None = None
) -> Coarse:
    """From data averaged to `size`, or from the samples of a model that was trained at a lower resolution."""
    at_least(1, "start", size=size)
    if run is None:
        return Coarse(Downsampled(FromData(dataset), size=size), shape)
    model = load(run, trust_code=trust)
    steps, step_size = model.recipe.sampling_steps, model.recipe.langevin.step_size
    return Coarse(AfterLangevin(model.start, model.energy, steps=steps, step_size=step_size), shape)


class _Called(nn.Module):
    """A generator that a user function returns, from latents (B, latent) to images."""

    def __init__(self, shape: tuple[int, ...], *, call: str, trust: Trust = NOTHING) -> None:
        super().__init__()
        self.maker = trust.find(call, "generator.net.call")()  # weights are saved under this name
        if not callable(self.maker) or not isinstance(getattr(self.maker, "latent", None), int):
            raise BadInput(f"{call} must return a generator: a callable with its number of latents as `latent`")
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
        "mnist": _mnist,
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
    frozenset({"shape", "dataset", "generator", "load", "trust"}),
)
CHAINS = Registry(
    "chains",
    {
        "fresh": Fresh,
        "persistent": Persistent,
        "maturing": BurnIn,
    },
    frozenset({"start", "walk", "streams", "shape"}),
)
OPTIMIZERS: dict[str, Callable[[Any, Optimizer], torch.optim.Optimizer]] = {
    "adam": lambda parameters, o: torch.optim.Adam(
        parameters, betas=(o.momentum, o.beta_2), weight_decay=o.weight_decay, fused=True
    ),
    "sgd": lambda parameters, o: torch.optim.SGD(
        parameters, momentum=o.momentum, nesterov=o.nesterov, weight_decay=o.weight_decay, fused=True
    ),
}


def describe(data: Part) -> Description:
    """Returns what is known about the data set of a recipe, without reading it."""
    return description_of(DATA.constructor(data))


def declared(chains: Part) -> Declared:
    """Returns the class of chains that a recipe chooses, with the declarations that ranks and estimates rely on.

    Raises:
        BadInput: A declaration is missing, or names an option that does not exist.
    """
    found: Any = CHAINS.constructor(chains)
    missing = [name for name in ("bank_sizes", "cost") if not hasattr(found, name)]
    if missing:
        raise BadInput(f"chains.kind {chains.kind!r} must declare {' and '.join(missing)}; CONTRIBUTING.md shows how")
    for name in found.bank_sizes:
        if not CHAINS.accepts(chains, name):
            raise BadInput(f"chains.kind {chains.kind!r} declares the bank size {name!r}, which is none of its options")
    chosen: Declared = found
    return chosen


def burn_in_walks(chains: Part) -> int | None:
    """Walks until a state is burned in, for chains that declare a burn-in bank."""
    option: str | None = getattr(CHAINS.constructor(chains), "burn_in_length", None)
    return None if option is None else int(CHAINS.options(chains)[option])


def bank_sizes(chains: Part) -> dict[str, int]:
    """Returns the number of states in each bank of the chains, by the name of its option."""
    options = CHAINS.options(chains)
    return {name: int(options[name]) for name in declared(chains).bank_sizes}
