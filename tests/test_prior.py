"""Longrun's energy: learned + fixed prior + Gaussian, in a run that needs no other once it has begun."""

from pathlib import Path

import pytest
import torch
from conftest import small_digits
from rich.console import Console
from torch import Tensor

from ebmlife import recipes
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, differences, override, validate
from ebmlife.runs import build, run
from ebmlife.sampling.schedule import GAMMA_ANNEAL
from ebmlife.storage import checkpoint

QUIET = Console(quiet=True)
PRIOR = {"start__kind": "uniform", "generator": "none", "temperature": "0.02", "tau": "0.3"}
LONGRUN = {
    "start__kind": "data",
    "generator": "none",
    "tau": "0.3",
    "net__width": "8",
    "chains__kind": "maturing",
    "chains__size": "20",
    "chains__burn_in_size": "20",
    "chains__mature": "3",
}


@pytest.fixture(scope="module")
def prior_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prior") / "prior"
    run.begin(_small(**PRIOR), folder, console=QUIET)
    return folder


def _small(**changes: str) -> Recipe:
    without = {name: value for name, value in changes.items() if name != "generator"}
    recipe = small_digits(**{"start__kind": "uniform", **without})
    return recipe.model_copy(update={"generator": None}) if "generator" in changes else recipe


def longrun(prior: Path, **changes: str) -> Recipe:
    fields = _small(**LONGRUN, **changes).model_dump(mode="json")
    return build.resolve(validate({**fields, "prior": {"run": str(prior)}}))


def images(n: int = 5) -> Tensor:
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_the_energy_is_the_sum_and_the_evaluation_temperature_spares_the_gaussian(
    prior_run: Path, tmp_path: Path
) -> None:
    run.begin(longrun(prior_run), tmp_path / "run", console=QUIET)
    x, prior = images(), build.load(prior_run)
    model, hot = build.load(tmp_path / "run"), build.load(tmp_path / "run", evaluation_temperature=1.005)
    joint = model.net(x) / 0.01 + prior.net(x) / 0.02
    gaussian = x.flatten(1).square().sum(1) / (2 * 0.3**2)
    torch.testing.assert_close(model.energy(x), joint + gaussian)
    torch.testing.assert_close(hot.energy(x), joint / 1.005 + gaussian)
    with pytest.raises(BadInput, match="above 0"):
        build.load(tmp_path / "run", evaluation_temperature=0)


def test_chains_walk_on_the_sum_and_the_loss_is_of_the_learned_term(prior_run: Path) -> None:
    training = build.training(longrun(prior_run))
    x, net = images(), training.trainer.ebm.net
    torch.testing.assert_close(training.trainer.energy.learned(x), net(x) / 0.01)
    gap = training.trainer.energy.full(x) - training.trainer.energy.learned(x)
    prior = build.load(prior_run).net
    torch.testing.assert_close(gap, prior(x) / 0.02 + x.flatten(1).square().sum(1) / (2 * 0.3**2))


def test_another_temperature_can_be_given(prior_run: Path) -> None:
    recipe = override(longrun(prior_run), {"prior.temperature": "0.5"})
    prior = build.training(recipe).model.prior
    assert prior is not None
    assert prior.temperature == 0.5


def test_the_prior_travels_with_the_run_and_does_not_learn(prior_run: Path, tmp_path: Path) -> None:
    source = tmp_path / "prior"
    run.begin(_small(**PRIOR), source, console=QUIET)
    weights = build.load(source).net.state_dict()
    for name, updates in (("whole", "6"), ("halves", "3")):
        run.begin(longrun(source, updates=updates), tmp_path / name, console=QUIET)
    source.rename(tmp_path / "gone")
    run.resume(tmp_path / "halves", change=lambda r: override(r, {"updates": "6"}), console=QUIET)
    a, b = (checkpoint.load(checkpoint.path(tmp_path / name, 6))[0] for name in ("whole", "halves"))
    for key in ("net", "ema"):
        assert all(
            torch.equal(a["trainer"]["ebm"][key][n], b["trainer"]["ebm"][key][n]) for n in a["trainer"]["ebm"][key]
        )
    assert all(torch.equal(a["prior"]["weights"][name], weights[name]) for name in weights)
    assert torch.equal(build.load(tmp_path / "whole").sample(3), build.load(tmp_path / "halves").sample(3))


def test_a_prior_may_be_taken_away_with_leave(prior_run: Path, tmp_path: Path) -> None:
    run.begin(longrun(prior_run, updates="3"), tmp_path / "run", console=QUIET)
    without = {"prior": "none", "updates": "4"}
    with pytest.raises(BadInput, match=r"prior\.run"):
        run.resume(tmp_path / "run", change=lambda r: override(r, without), console=QUIET)
    run.resume(tmp_path / "run", change=lambda r: override(r, without), allow_changes=True, console=QUIET)
    assert build.load(tmp_path / "run").prior is None


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("digits-longrun", r"prior\.run {runs}/digits-prior .*: ebmlife train digits-prior --out {runs}/digits-prior$"),
        ("digits-longrun-no-anneal", r"prior\.run .*: ebmlife train digits-prior --out"),
    ],
)
def test_a_missing_run_is_said_first_with_the_command_that_makes_it(tmp_path: Path, recipe: str, message: str) -> None:
    runs = tmp_path / "runs"
    chosen = override(build.resolve(recipes.get(recipe)), {"prior.run": str(runs / "digits-prior")})
    with pytest.raises(BadInput, match=message.format(runs=runs)):
        run.begin(chosen, tmp_path / "out", console=QUIET)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_generator_is_said_alike(tmp_path: Path) -> None:
    lost = small_digits(generator__run=str(tmp_path / "digits-shortrun"), generator__optimizer="none")
    with pytest.raises(BadInput, match=r"generator\.run .* holds no checkpoint.* ebmlife train digits-shortrun --out"):
        build.training(lost)
    imported = small_digits(generator__run=str(tmp_path / "biggan-deep-128"), generator__optimizer="none")
    with pytest.raises(BadInput, match=r"make it first: ebmlife import biggan-deep-128-pytorch_model\.bin --out"):
        build.training(imported)
    with pytest.raises(BadInput, match="ebmlife train RECIPE --out"):
        build.training(small_digits(generator__run=str(tmp_path / "mine"), generator__optimizer="none"))


def test_priors_that_do_not_fit_are_refused(prior_run: Path, tmp_path: Path) -> None:
    run.begin(longrun(prior_run), tmp_path / "longrun", console=QUIET)
    with pytest.raises(BadInput, match="has a prior of its own"):
        build.training(longrun(tmp_path / "longrun"))
    toy = build.resolve(recipes.get("toy-mixture"))
    with pytest.raises(BadInput, match=r"prior.run .*\(1, 8, 8\).*\(2,\)"):
        build.training(validate({**toy.model_dump(mode="json"), "prior": {"run": str(prior_run)}}))


LONGRUNS = ["cifar10-longrun", "cifar10-longrun-small", "digits-longrun", "toy-mixture-longrun", "toy-rings-longrun"]


def changed_fields(name: str, suffix: str) -> set[str]:
    """The fields in which a variant of a recipe is another one."""
    whole, variant = (build.resolve(recipes.get(each)) for each in (name, f"{name}-{suffix}"))
    return {line.split(":")[0] for line in differences(whole, variant)}


@pytest.mark.parametrize("name", LONGRUNS)
def test_ablations_take_away_one_thing(name: str) -> None:
    whole = build.resolve(recipes.get(name))
    assert changed_fields(name, "no-anneal") == {"optimizer.learning_rate"}
    assert {field.split(".")[0] for field in changed_fields(name, "one-bank")} == {"chains"}
    rate = build.resolve(recipes.get(f"{name}-no-anneal")).optimizer.learning_rate
    assert rate.values == whole.optimizer.learning_rate.values[:1]
    chains = build.resolve(recipes.get(f"{name}-one-bank")).chains
    assert chains.kind == "persistent"
    assert chains.options["rejuvenate"] == pytest.approx(1 / whole.chains.options["mature"])


@pytest.mark.parametrize("name", LONGRUNS)
def test_a_prior_can_be_taken_away_where_there_is_one_and_added_where_there_is_none(name: str) -> None:
    with_prior = recipes.get(name).prior is not None
    assert (f"{name}-no-prior" in recipes.names(), f"{name}-with-prior" in recipes.names()) == (
        with_prior,
        not with_prior,
    )
    suffix = "no-prior" if with_prior else "with-prior"
    assert (recipes.get(f"{name}-{suffix}").prior is None) == with_prior
    assert changed_fields(name, suffix) <= {"prior", "prior.run", "prior.temperature"}


def test_the_prior_of_a_toy_is_its_midrun_energy() -> None:
    with pytest.raises(BadInput, match=r"prior\.run .*: ebmlife train toy-rings-midrun --out runs/toy-rings-midrun$"):
        build.training(build.resolve(recipes.get("toy-rings-longrun-with-prior")))


def test_the_papers_tables_of_cifar10() -> None:
    prior, longrun = (build.resolve(recipes.get(f"cifar10-{name}")) for name in ("prior", "longrun"))
    for recipe, updates, steps in ((prior, 150_000, 50), (longrun, 250_000, 100)):
        assert (recipe.updates, recipe.data_noise, recipe.langevin.step_size) == (updates, 2e-2, 1e-2)
        assert (recipe.langevin.steps.values, recipe.temperature, recipe.tau) == ((steps,), 1e-4, 1.5e-1)
        assert (recipe.optimizer.kind, recipe.start.kind) == ("adam", "generator")
        assert recipe.generator is not None
        assert recipe.generator.optimizer is None
    assert prior.optimizer.learning_rate.values == (1e-4,)
    every = {"count_first_walk": True}
    assert prior.chains.options == {"size": 10_000, "rejuvenate": 0.2, "rounds": None} | every
    assert longrun.optimizer.learning_rate == GAMMA_ANNEAL
    banks = {"size": 10_000, "burn_in_size": 1000, "mature": 750, "burn_in_steps": 100}
    assert longrun.chains.options == banks | every
