"""Recipes so small that an update takes milliseconds."""

import os
from pathlib import Path

import pytest
import torch

from ebmlife import build, recipes
from ebmlife.recipe import Recipe, override

SMALL = {"batch": "8", "net.width": "4", "langevin.steps": "3", "workers": "0", "watch.pictures": "4"}


def small_digits(**changes: str) -> Recipe:
    """digits-shortrun with tiny networks; field__name='value' changes field.name."""
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
    return build.resolve(override(build.resolve(recipes.get("digits-shortrun")), fields | given))


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
