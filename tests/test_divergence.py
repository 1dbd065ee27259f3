"""Divergence is judged by what is normal for the run."""

from collections.abc import Iterable
from math import cos, exp

import pytest
from conftest import small_digits

from ebmlife import recipes
from ebmlife.errors import Diverged
from ebmlife.recipes.schema import override, validate
from ebmlife.runs import build
from ebmlife.training.divergence import FAR, PATIENCE, WINDOW, Divergence


def judged(
    differences: Iterable[float], *, gradient: float = 1.0, divergence: Divergence | None = None, first: int = 0
) -> Divergence:
    divergence = divergence or Divergence()
    for update, difference in enumerate(differences, first):
        divergence.check(of_data=0.0, of_samples=0.0, difference=difference, gradient=gradient, update=update)
    return divergence


def swinging(scale: float, updates: int) -> list[float]:
    return [scale * cos(1.7 * t) for t in range(updates)]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_no_scale_is_a_divergence_by_itself(scale: float) -> None:
    judged(swinging(scale, 500))


def test_wild_first_updates_are_no_divergence() -> None:
    judged([exp(0.25 * t) for t in range(WINDOW)] + swinging(exp(0.25 * WINDOW), 200))


def test_excursions_that_come_back_are_no_divergence() -> None:
    excursion = [10 * FAR] * (PATIENCE - 1)
    judged(([1.0] * WINDOW + excursion) * 5)


def test_an_excursion_that_does_not_come_back_is_one() -> None:
    calm = [1.0, -2.0, 3.0] * 40
    message = (
        r"^the energy difference is -1\.1e\+04 at update 144 and has been beyond 1000 times its normal size "
        r"since update 120; normal for this run is 2$"
    )
    with pytest.raises(Diverged, match=message) as stopped:
        judged([*calm, *[-1.1e4] * 1000])
    assert stopped.value.since == 120


@pytest.mark.parametrize(("far", "since"), [(0, None), (7, 120)])
def test_an_excursion_that_ends_in_infinity_is_dated_from_its_beginning(far: int, since: int | None) -> None:
    with pytest.raises(Diverged, match="energy of the data is inf") as stopped:
        judged([1.0] * 120 + [1e4] * far).check(
            of_data=float("inf"), of_samples=0.0, difference=1.0, gradient=1.0, update=120 + far
        )
    assert stopped.value.since == since


@pytest.mark.parametrize("rate", [0.005, 0.02, 0.1, 0.3])
def test_exponential_growth_is_one_however_slow(rate: float) -> None:
    with pytest.raises(Diverged) as stopped:
        judged([1.0] * 200 + [exp(min(rate * t, 700)) for t in range(5000)])
    grown = int(str(stopped.value).partition("since update ")[2].partition(";")[0]) - 200
    assert exp(rate * grown) == pytest.approx(FAR, rel=0.5)  # seen as soon as it is that far


def test_growth_is_none_while_noise_outweighs_the_gradient() -> None:
    """An energy has to grow before its chains feel it; then it stands."""
    growing = [1e-3] * 100 + [1e3] * 300
    judged(growing, gradient=9.0, divergence=Divergence(balance=1.0))
    with pytest.raises(Diverged):
        judged(growing, gradient=11.0, divergence=Divergence(balance=1.0))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_one_at_once(value: float) -> None:
    with pytest.raises(Diverged, match=r"energy of the data is (nan|inf|-inf) at update 0"):
        Divergence().check(of_data=value, of_samples=0.0, difference=value, gradient=0.0, update=0)


def test_divergence_detection_resumes_from_its_saved_state() -> None:
    values = [1.0, 0.3, -0.7] * 40 + [5e3] * 100
    with pytest.raises(Diverged) as whole:
        judged(values)
    for cut in (7, WINDOW - 1, WINDOW, 119, 130):
        other = Divergence()
        other.load_state_dict(judged(values[:cut]).state_dict())
        with pytest.raises(Diverged) as resumed:
            judged(values[cut:], divergence=other, first=cut)
        assert str(resumed.value) == str(whole.value)


def test_balance_is_the_gradient_whose_drift_is_as_long_as_the_noise() -> None:
    recipe = small_digits(langevin__step_size="0.05")
    balance = build.training(recipe).trainer.divergence.balance
    assert 0.05**2 / 2 * balance == pytest.approx(0.05 * 64**0.5)


def test_checkpoints_hold_the_detector_and_older_ones_start_it() -> None:
    trainer = build.training(small_digits()).trainer
    trainer.fit(3)
    state = trainer.state_dict()
    assert state["divergence"]["seen"] == 3
    again = build.training(small_digits()).trainer
    again.load_state_dict(state)
    assert again.state_dict()["divergence"]["recent"].tolist() == state["divergence"]["recent"].tolist()
    older = build.training(small_digits()).trainer
    older.load_state_dict({key: value for key, value in state.items() if key != "divergence"})
    assert older.update == 3
    assert older.state_dict()["divergence"]["seen"] == 0


def test_a_temperature_of_the_paper_is_no_divergence() -> None:
    """With U/T limited to a million, imagenet128-shortrun stopped at its second update."""
    trainer = build.training(small_digits(temperature="1e-7", langevin__step_size="0.003")).trainer
    trainer.fit(4)
    assert max(trainer.state_dict()["divergence"]["recent"]) > 1e6


def test_the_former_limit_stands_for_none_and_hashes_do_not_change() -> None:
    recipe = recipes.get("digits-shortrun")
    assert recipe.explosion is None
    values = recipe.model_dump(mode="json")
    old = validate(values | {"explosion": 1e6})
    assert old == recipe
    assert old.hash == recipe.hash
    assert override(recipe, {"explosion": "1e6"}) == recipe
    limited = override(recipe, {"explosion": "2e5"})
    assert limited.explosion == 2e5
    assert limited.hash != recipe.hash
    assert override(limited, {"explosion": "none"}) == recipe
