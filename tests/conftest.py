"""Recipes so small that an update takes milliseconds."""

import os
from collections.abc import Collection
from pathlib import Path

import pytest
import torch

from ebmlife import recipes
from ebmlife.recipes.schema import Recipe, override
from ebmlife.runs import build

SMALL = {"batch": "8", "net.width": "4", "langevin.steps": "3", "workers": "0", "watch.pictures": "4"}


def small_digits(*, drop: Collection[str] = (), **changes: str) -> Recipe:
    """digits-shortrun with tiny networks, but for the fields to `drop`; field__name='value' changes field.name."""
    fields = {
        **SMALL,
        "generator.net.width": "4",
        "generator.net.latent": "3",
        "chains.size": "20",
        "sampling_steps": "2",
        "updates": "6",
    }
    given = {name.replace("__", "."): value for name, value in changes.items()}
    if "chains.kind" in given and "chains.size" not in given:
        fields.pop("chains.size")
    fields = {name: value for name, value in fields.items() if name not in drop}
    return build.resolve(override(build.resolve(recipes.get("digits-shortrun")), fields | given))


_TINY = {
    "digits-gan": {"net.width": "4", "generator.net.width": "4", "generator.net.latent": "3", "generator_batch": "9"},
    "digits-classifier": {"net.width": "4", "test_every": "3", "net.depth": "8"},
    "digits-score": {"net.width": "4", "noise.count": "3", "start.steps": "2"},
    "digits-glow": {"net.width": "4", "net.depth": "2"},
    "digits-recovery": {"net.width": "4", "levels": "3", "steps": "3", "start.steps": "2"},
    "digits-midrun": {"net.width": "4", "langevin.steps": "3", "chains.size": "20", "sampling_steps": "2"},
}
METHODS = tuple(_TINY)  # a recipe of every method, and the midrun one


def small(name: str, **changes: str) -> Recipe:
    """A recipe of `METHODS` with tiny networks; field__name='value' changes field.name."""
    common = {"batch": "8", "updates": "6", "workers": "0", "watch.pictures": "4"}
    given = {field.replace("__", "."): value for field, value in changes.items()}
    return build.resolve(override(build.resolve(recipes.get(name)), common | _TINY[name] | given))


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def official_cifar10() -> Path:
    """The folder of the official files, where they are."""
    default = Path("~/.cache/ebmlife/cifar-10-batches-bin").expanduser()
    place = Path(os.environ.get("EBMLIFE_CIFAR10", default))
    if not place.is_dir():
        pytest.skip(f"CIFAR-10 is not at {place}; EBMLIFE_CIFAR10 can name another folder")
    return place


@pytest.fixture
def official_mnist() -> Path:
    """The folder of the official files, where they are."""
    place = Path(os.environ.get("EBMLIFE_MNIST", "~/.cache/ebmlife/mnist")).expanduser()
    if not place.is_dir():
        pytest.skip(f"MNIST is not at {place}; EBMLIFE_MNIST can name another folder")
    return place
