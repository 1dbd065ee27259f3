"""Costs against what can be counted by hand."""

import pytest
import torch

from ebmlife import recipes
from ebmlife.bench.estimate import estimate
from ebmlife.cli import main
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, override
from ebmlife.runs import build
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams
from ebmlife.training.chains import Persistent
from ebmlife.training.starts import InitialStates, Uniform

LAYERS = [(2, 128), (128, 128), (128, 128), (128, 1)]  # of the toy below
TOY = {
    **{"net.fourier": "0", "net.width": "128", "net.depth": "3", "chains.size": "5000", "langevin.steps": "20"},
    **{"updates": "3000", "sampling_steps": "1000"},
}
FORWARD = sum(2 * a * b for a, b in LAYERS)
WEIGHTS = sum(a * b + b for a, b in LAYERS)


def toy(**changes: str) -> Recipe:
    given = {name.replace("__", "."): value for name, value in changes.items()}
    base = build.resolve(override(build.resolve(recipes.get("toy-mixture-midrun")), TOY))
    return build.resolve(override(base, given))


def test_operations_of_a_perceptron() -> None:
    """Each product has two in the backward pass, one to the inputs and one to the weights; data needs none."""
    found = estimate(toy(batch="100", langevin__steps="7"))
    assert found.walk == 100 * 7 * 2 * FORWARD
    assert found.learning == 2 * 100 * (3 * FORWARD - 2 * 2 * 128)
    assert found.initialization == 0
    assert found.sample == 1000 * 2 * FORWARD


def test_operations_of_a_convolution_are_those_of_its_pixels() -> None:
    """SNGAN at 8x8: three blocks of width w, the first one halving; its pool and 3x3 kernel are one 4x4 kernel."""
    w, found = 16, estimate(override(build.resolve(recipes.get("digits-shortrun")), {"net.width": "16", "batch": "1"}))
    stem = 64 * 9 * w + 16 * (16 * w * w) + 16 * w
    forward = 2 * (stem + 2 * 16 * 2 * 9 * w * w + w)
    assert found.walk == 30 * 2 * forward


def test_memory_and_traffic_are_shared_out() -> None:
    one, four = (estimate(toy(), devices=n) for n in (1, 4))
    assert one.weights == four.weights == 5 * 4 * WEIGHTS
    assert one.bank == 4 * four.bank == 5000 * 2 * 4
    assert one.activations == 4 * four.activations > 0
    assert one.traffic == 0
    assert four.traffic == 4 * WEIGHTS * 2 * 3 / 4
    assert one.seconds(1e9) == 4 * four.seconds(1e9) == one.update / 1e9
    assert four.seconds(1e9, link=1e6) == four.seconds(1e9) + four.traffic / 1e6
    assert one.hours(1e9, link=1e6) == 3000 * one.seconds(1e9) / 3600


def test_a_frozen_generator_costs_initialization_only() -> None:
    resolved = build.resolve(recipes.get("digits-shortrun"))
    learned, still = estimate(resolved), estimate(override(resolved, {"generator.optimizer": "none"}))
    assert learned.initialization == still.initialization > 0
    assert learned.learning > still.learning
    assert learned.traffic == still.traffic == 0
    assert learned.weights > still.weights


def test_longrun_walks_two_banks() -> None:
    one = estimate(toy())
    two = estimate(toy(chains__kind="maturing", chains__size="5000", chains__burn_in_size="1000"))
    assert two.walk == 2 * one.walk
    assert two.bank == 6 * one.bank / 5
    own = toy(chains__kind="maturing", chains__burn_in_steps="5")
    assert estimate(own).walk == one.walk * 25 / 20


def test_a_prior_is_walked_on_and_does_not_learn() -> None:
    longrun = build.resolve(recipes.get("cifar10-longrun"))
    alone = estimate(override(longrun, {"prior": "none"}))
    found = estimate(longrun)
    assert found.walk == 2 * alone.walk
    assert found.learning == alone.learning
    assert found.weights > alone.weights


class Counting(Uniform):
    made = 0

    def __call__(self, n: int, *, rng: torch.Generator, old: torch.Tensor | None = None) -> InitialStates:
        self.made += n
        return super().__call__(n, rng=rng, old=old)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("p", "rounds"), [(0.5, 2), (0.05, None), (0.0, 3), (1.0, None)])
def test_rejuvenations_are_as_many_as_declared(p: float, rounds: int | None, first: bool) -> None:
    start, options = Counting((1,)), {"rejuvenate": p, "rounds": rounds, "count_first_walk": first}
    chains = Persistent(start, Walk(steps=0, step_size=1.0), Streams(0), size=200, **options)
    for _ in range(50):  # until ages are as they stay
        chains.step(lambda x: x.sum(1), 100)
    start.made = 0
    for _ in range(400):
        chains.step(lambda x: x.sum(1), 100)
    expected = Persistent.cost(options, batch=100, steps=0).initialized
    assert start.made / 400 == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("name", ["celeba-shortrun", "imagenet64-longrun", "imagenet224-midrun", "toy-rings"])
def test_recipes_are_estimated_without_their_data_or_other_runs(name: str) -> None:
    one, two = (estimate(build.resolve(recipes.get(name)), devices=n) for n in (1, 2))
    assert one.update == two.update > 0
    assert 0 < two.memory < one.memory


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "cifar10-shortrun", "--devices", "1,8", "--rate", "h100", "--batch", "64"]) == 0
    page = capsys.readouterr().out
    for expected in ("1 device", "8 devices", "40% of the 495 TFLOPS", "64 images", "50,000 samples of 350 steps"):
        assert expected in " ".join(page.split())


def test_measuring_runs_real_updates(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--batch", "4", "--net.width", "4", "--langevin.steps", "2", "--chains.size", "8"]
    for rate in ("own", "matrix"):
        assert main(["estimate", "digits-shortrun", "--devices", "1", "--rate", rate, "--measure", *small]) == 0
        assert "measured / estimated: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "a1000"], "did you mean 'a100'"),
        (["--rate", "-3"], "TFLOPS above 0"),
        (["--rate", "nan"], "TFLOPS above 0"),
        (["--measure"], "add --rate matrix or --rate own"),
        (["--link", "0"], "GB/s above 0"),
        (["--devices", "0"], "devices must be from 1 to the batch of 64, got 0"),
        (["--devices", "65"], "got 65"),
        (["--devices", "many"], "whole numbers"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "digits-shortrun", *words]) == 2
    assert message in capsys.readouterr().err


def test_devices_are_counted() -> None:
    with pytest.raises(BadInput, match="devices"):
        estimate(toy(), devices=0)
