"""The models that come with the package."""

from pathlib import Path

import pytest
import torch

import ebmlife
from ebmlife import seeded
from ebmlife.cli import main
from ebmlife.defense import Purifier
from ebmlife.errors import BadInput
from ebmlife.exam import contrast, diversity, fd_digits, outside
from ebmlife.runs import locate, zoo

CIFAR10_DIVERSITY = 37.8  # of 2,000 of its training images


def test_every_model_loads_and_walks_without_any_data_here() -> None:
    assert {"digits-shortrun", "digits-midrun", "digits-longrun", "cifar10-midrun-small"} <= set(zoo.names())
    for name in zoo.names():
        model = ebmlife.load(f"zoo:{name}")
        x = 2 * torch.rand(2, *model.shape) - 1
        assert Purifier(model.energy, steps=2)(x).isfinite().all()


def test_models_whose_chains_need_no_data_but_digits_can_sample() -> None:
    for name in zoo.names():
        model = ebmlife.load(f"zoo:{name}")
        if model.generator is not None or model.recipe.data.kind == "digits":
            assert model.sample(2, steps=2).isfinite().all()


def test_a_hundred_steps_of_the_shipped_defense_keep_a_photograph_recognizable(official_cifar10: Path) -> None:
    """A classifier must still know it, and the other images of the set must be further away."""
    model = ebmlife.load("zoo:cifar10-midrun-small")
    x = ebmlife.data.cifar10(official_cifar10, train=False).take(torch.arange(0, 10_000, 400))
    purified = Purifier(model.energy, steps=100, step_size=model.recipe.langevin.step_size, seed=0)(x)
    nearest = torch.cdist(purified.flatten(1), x.flatten(1)).argmin(1)
    assert torch.equal(nearest, torch.arange(len(x)))
    assert 0.9 < purified.std() / x.std() < 1.1


def test_the_shipped_longrun_energy_keeps_the_light_of_photographs(official_cifar10: Path) -> None:
    model = ebmlife.load("zoo:cifar10-longrun-small")
    assert model.prior is not None
    x = ebmlife.data.cifar10(official_cifar10, train=False).take(torch.arange(0, 10_000, 625))
    walked, _ = ebmlife.langevin(model.energy, x, steps=300, step_size=model.recipe.langevin.step_size, noise=seeded(0))
    assert outside(walked) < 0.05
    assert 0.85 < contrast(walked) / contrast(x) < 1.15


def test_shipped_digits_are_near_the_data_and_diverse() -> None:
    samples = ebmlife.load("zoo:digits-shortrun").sample(500)
    assert fd_digits([samples]) < 40  # noise is at 2,000, and 500 real digits at about 4
    data = ebmlife.data.digits().take(torch.arange(500))
    assert 0.9 < diversity(samples) / diversity(data) < 1.15


def test_shipped_photographs_are_diverse_and_without_a_frame() -> None:
    samples = ebmlife.load("zoo:cifar10-shortrun-small").sample(64)
    assert 0.9 < diversity(samples) / CIFAR10_DIVERSITY < 1.15
    for sides in (samples, samples.transpose(2, 3)):
        change = (sides[..., 1:] - sides[..., :-1]).abs().mean((0, 1, 2))  # from each column to the next
        inner = change[5:-5].mean()
        assert change[0] < 1.3 * inner  # of the data: 0.74 to 0.88
        assert change[-1] < 1.3 * inner


def test_the_shipped_density_has_its_prior_and_keeps_chains_near_the_data() -> None:
    model = ebmlife.load("zoo:digits-longrun")
    assert model.prior is not None
    assert fd_digits([model.sample(128, steps=300)]) < 150  # 128 real digits are at 20 to 91, noise at 2,000


def test_a_picture_after_installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "zoo:digits-shortrun", "--n", "4", "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").stat().st_size > 100


def test_what_is_measured_of_it_goes_to_a_folder_of_its_name() -> None:
    assert locate.own("zoo:digits-shortrun") == Path("digits-shortrun")
    assert locate.own("hf:somebody/thing") == Path("thing")
    assert locate.own("runs/a") == Path("runs/a")


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(BadInput, match="there is no zoo:digits-shortrum; did you mean 'digits-shortrun'"):
        ebmlife.load("zoo:digits-shortrum")
