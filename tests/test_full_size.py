"""Every experiment of the paper at its true size: 20 true updates, none of which is a divergence.

Networks, temperatures and numbers of Langevin steps are the paper's; batches and banks are small, and the precision is
what is faster here (the paper's TPUs multiplied in bfloat16). Frozen generators and priors have random weights. About
an hour on two cores with bfloat16: `make test-full ONLY=celeba` runs some of them.
"""

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from ebmlife import recipes
from ebmlife.plots import pictures
from ebmlife.recipes.schema import EBMRecipe, Recipe, override
from ebmlife.runs import build
from ebmlife.runs.export import write_weights

LIMIT = 24 * 2**20  # kilobytes
UPDATES = 20


class Case(NamedTuple):
    size: int  # of images
    batch: int  # from 8 on, the compiled program walks: of wide networks that is faster than 2 without it
    photographs: str  # the environment's name for a folder of them


USUAL = {
    "EBMLIFE_CIFAR10": "~/.cache/ebmlife/cifar-10-batches-bin",
    "EBMLIFE_CELEBA": "~/.cache/ebmlife/celeba",
    "EBMLIFE_IMAGENET": "~/.cache/ebmlife/imagenet",
}
PAPER = {
    "cifar10-shortrun": Case(32, 8, "EBMLIFE_CIFAR10"),
    "cifar10-midrun": Case(32, 8, "EBMLIFE_CIFAR10"),
    "cifar10-prior": Case(32, 8, "EBMLIFE_CIFAR10"),
    "cifar10-longrun": Case(32, 8, "EBMLIFE_CIFAR10"),
    "celeba-shortrun": Case(64, 8, "EBMLIFE_CELEBA"),
    "imagenet128-shortrun": Case(128, 8, "EBMLIFE_IMAGENET"),
    "imagenet224-midrun": Case(224, 2, "EBMLIFE_IMAGENET"),
    "celeba-prior": Case(64, 8, "EBMLIFE_CELEBA"),
    "imagenet64-prior": Case(64, 8, "EBMLIFE_IMAGENET"),
    "celeba-longrun": Case(64, 8, "EBMLIFE_CELEBA"),
    "imagenet64-longrun": Case(64, 8, "EBMLIFE_IMAGENET"),
}


def data_of(name: str, tmp_path: Path) -> dict[str, str]:
    """Photographs where they are, else smooth colors."""
    case = PAPER[name]
    place = Path(os.environ.get(case.photographs, USUAL[case.photographs])).expanduser()
    if place.exists():
        return {"data.folder": str(place)}
    print(f"{name}: {place} is not there ({case.photographs} can name a folder); smooth colors instead", flush=True)
    colors = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    for i, image in enumerate(F.interpolate(colors, size=256, mode="bicubic").clamp(-1, 1)):
        smooth: Image.Image = pictures.image(image)
        smooth.save(tmp_path / f"{i}.png")
    return {"data.kind": "folder", "data.folder": str(tmp_path), "data.size": str(case.size)}


def small_batches(name: str, tmp_path: Path) -> Recipe:
    """The paper's recipe with small batch and banks."""
    batch, size = PAPER[name].batch, PAPER[name].size
    fields = {"batch": str(batch), "chains.size": str(4 * batch), "device": "cpu", "workers": "0"}
    fields["langevin.precision"] = "auto"
    if name.endswith("-longrun"):
        place = tmp_path / "prior"
        fields |= {"chains.burn_in_size": str(2 * batch), "prior.run": str(place)}
        prior = build.resolve(recipes.get(name.replace("longrun", "prior")))
        net, maker = build.networks(build.self_contained(prior), (3, size, size), torch.device("cpu"))
        write_weights(place, prior, net, maker, shape=(3, size, size), origin="random")
    return build.resolve(override(build.resolve(recipes.get(name)), fields | data_of(name, tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_true_updates_at_full_size(name: str, tmp_path: Path) -> None:
    recipe, paper = small_batches(name, tmp_path), recipes.get(name)
    assert isinstance(recipe, EBMRecipe)
    assert isinstance(paper, EBMRecipe)
    assert recipe.temperature == paper.temperature
    assert recipe.langevin == paper.langevin.model_copy(update={"precision": "auto"})
    assert recipe.net.options["width"] == paper.net.options["width"]
    training = build.training(build.self_contained(recipe))
    trainer = training.trainer
    before = [p.detach().clone() for p in trainer.ebm.net.parameters()]
    for _ in range(UPDATES):
        began = time.monotonic()
        metrics = trainer.step()
        assert torch.isfinite(torch.tensor([metrics.energy_difference, metrics.gradient])).all()
        drift = metrics.gradient / trainer.divergence.balance
        print(
            f"{name} update {metrics.update}: energies {metrics.energy_data:.4g} and {metrics.energy_samples:.4g}, "
            f"difference {metrics.energy_difference:.3g}, drift / noise {drift:.2g}, {time.monotonic() - began:.1f} s",
            flush=True,
        )
    assert all(not torch.equal(a, b) for a, b in zip(before, trainer.ebm.net.parameters(), strict=True))
    assert training.model.shape == (3, PAPER[name].size, PAPER[name].size)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < LIMIT
