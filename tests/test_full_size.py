"""Every experiment of the paper at its true size: all objects are made, and one true update with K = 2 is run."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ebmlife import build, recipes
from ebmlife.recipe import override
from ebmlife.weights import write_weights

LIMIT = 24 * 2**20  # kilobytes
PAPER = {  # recipe -> size of its images
    "cifar10-shortrun": 32,
    "celeba-shortrun": 64,
    "imagenet128-shortrun": 128,
    "cifar10-midrun": 32,
    "imagenet224-midrun": 224,
    "cifar10-longrun": 32,
    "celeba-longrun": 64,
    "imagenet64-longrun": 64,
    "cifar10-prior": 32,
    "celeba-prior": 64,
    "imagenet64-prior": 64,
}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(noise.integers(256, size=(224, 224, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_one_update_at_full_size(name: str, images: Path) -> None:
    size = PAPER[name]
    fields = {"batch": "2", "chains.size": "2", "langevin.steps": "2", "device": "cpu", "workers": "0"}
    fields |= {"data.kind": "folder", "data.folder": str(images), "data.size": str(size)}
    if name.endswith("-longrun"):
        fields |= {"chains.burn_in_size": "2", "chains.burn_in_steps": "2", "prior.run": str(images / "prior")}
        prior = build.resolve(recipes.get(name.replace("longrun", "prior")))
        net, maker = build.networks(build.self_contained(prior), (3, size, size), torch.device("cpu"))
        write_weights(images / "prior", prior, net, maker, shape=(3, size, size), origin="random")
    recipe = build.resolve(override(build.resolve(recipes.get(name)), fields))
    training = build.training(build.self_contained(recipe))
    before = [p.detach().clone() for p in training.trainer.ebm.net.parameters()]
    figures = training.trainer.step()
    assert torch.isfinite(torch.tensor(figures.energy_difference))
    after = training.trainer.ebm.net.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert training.model.shape == (3, size, size)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < LIMIT
