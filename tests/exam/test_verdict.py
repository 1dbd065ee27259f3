"""Verdicts on made-up metrics, one fault at a time."""

import pytest
import torch

from ebmlife.data import digits
from ebmlife.exam.features import DIGITS, PLAIN
from ebmlife.exam.frechet import Moments
from ebmlife.exam.reference import Reference, compute_reference
from ebmlife.exam.verdict import CHANCE, LATE_CHANCE, Judgment, judge, late_average
from ebmlife.sampling.long_run import log_spaced

STEPS = [0, 100, 1000, 5000, 20_000, 100_000]
RANGES = {"distance": (1.0, 2.0), "contrast": (0.5, 0.6), "outside": (0.0, 0.02)}
SPREAD_20 = Moments(torch.zeros(2), 10 * torch.eye(2), 9)
TRUTH = Reference(SPREAD_20, RANGES, torch.zeros(2), torch.eye(2), chance=(0.1725, 0.2066))
GOOD: dict[str, list[float | None]] = {
    "distance": [1.5, 3, 5, 5, 5, 5],
    "contrast": [0.55] * 6,
    "outside": [0.0] * 6,
    "energy": [0.0] * 6,
    "energy_spread": [1.0] * 6,
    "rhat_energy": [None] * 5 + [1.0],
}


def judged(*, steps: list[int] = STEPS, diverged: str | None = None, **columns: list[float | None]) -> Judgment:
    metrics = {name: column[: len(steps)] for name, column in (GOOD | columns).items()}
    return judge(steps, metrics, TRUTH, diverged=diverged)


def test_what_stays_like_the_data_is_longrun() -> None:
    result = judged()
    assert (result.verdict, result.stable_until) == ("longrun", 100_000)
    assert result.reasons[0].endswith("1.00 times its value at 1,000 steps")


def test_growth_is_judged_by_the_late_average() -> None:
    steps, distances = [1000, 30_000, 50_000, 70_000, 100_000], [2.0, 9.0, 2.0, 3.0, 4.0]
    assert late_average(steps, distances) == 3
    assert sum(step >= 0.4 * 100_000 for step in log_spaced(100_000)) == 4
    swinging = judged(steps=[0, *steps], distance=[1.5, 5, 5, 3, 5, 7])
    assert "late average distance 5, 1.00 times its value at 1,000 steps" in swinging.reasons[0]


EVALUATIONS = [0, 100, 1000, 5000, 50_000, 60_000, 80_000, 100_000]  # the last four are late ones
STEADY: dict[str, list[float | None]] = {name: [column[0]] * 8 for name, column in GOOD.items()}


@pytest.mark.parametrize(
    ("distances", "verdict", "until", "why"),
    [
        # Limits: 2.5 for one evaluation, 2 for the average of the last four, or 1.5 times the baseline if that is more.
        (
            [1.2, 1.2, 1.2, 1.2, 2.4, 1.5, 1.5, 2.4],
            "longrun",
            100_000,
            "may be chance",
        ),
        (
            [1.2, 1.2, 1.2, 1.2, 2.1, 2.1, 2.1, 2.1],
            "midrun",
            5000,
            "distance 2.1, the average of the evaluations from here on, is above 2 ",
        ),
        ([1.2, 1.2, 1.5, 1.5, 2.2, 2.2, 2.2, 2.2], "longrun", 100_000, "1.47 times its value"),
    ],
)
def test_late_evaluations_are_judged_by_their_average(
    distances: list[float | None], verdict: str, until: int, why: str
) -> None:
    result = judge(EVALUATIONS, STEADY | {"distance": distances}, TRUTH)
    assert (result.verdict, result.stable_until) == (verdict, until)
    assert why in result.reasons[0]


@pytest.mark.parametrize(
    ("columns", "verdict", "until", "why"),
    [
        ({"contrast": [0.55, 0.55, 0.55, 0.55, 0.8, 0.8]}, "midrun", 5000, "contrast 0.8 is above 0.75"),
        ({"contrast": [0.55, 0.55, 0.3, 0.3, 0.3, 0.3]}, "shortrun", 100, "contrast 0.3 is below 0.4"),
        ({"outside": [0, 0, 0, 0.2, 0.2, 0.2]}, "midrun", 1000, "outside 0.2 is above 0.12"),
        ({"distance": [1.5, 3, 5, 5, 5, 7.6]}, "midrun", 20_000, "distance 7.6 is above 7.5"),
        ({"distance": [1.5, 3, 13, 13, 13, 13]}, "shortrun", 100, "distance 13 is above 12"),
        ({"distance": [1.5, 1.5, 1.5, 1.5, 2.6, 2.6]}, "midrun", 5000, "distance 2.6 is above 2.5"),
        (
            {"distance": [1.5, 1.5, 1.5, 1.5, 2.4, 2.4]},
            "longrun",
            100_000,
            "may be chance",
        ),
    ],
)
def test_the_first_fault_ends_it(columns: dict[str, list[float | None]], verdict: str, until: int, why: str) -> None:
    result = judged(**columns)
    assert (result.verdict, result.stable_until) == (verdict, until)
    assert why in result.reasons[0]


def test_a_recovery_does_not_count() -> None:
    assert judged(contrast=[0.55, 0.55, 0.55, 0.9, 0.55, 0.55]).stable_until == 1000


def test_samples_may_become_good_after_some_steps() -> None:
    """From noise: the first steps are not samples yet."""
    result = judged(distance=[90, 5, 5, 5, 5, 5])
    assert (result.verdict, result.stable_until) == ("longrun", 100_000)


def test_what_distances_are_measured_by_is_named() -> None:
    late_start = judged(distance=[90, 90, 90, 90, 5, 6])
    assert "1.20 times its value at 20,000 steps" in late_start.reasons[0]
    early = judged(steps=STEPS[:2])
    assert "times its value at 100 steps" in early.reasons[0]


def test_samples_that_never_are_good() -> None:
    result = judged(contrast=[0.1] * 6)
    assert (result.verdict, result.stable_until) == ("shortrun", 0)
    assert "never like the data" in result.reasons[0]


def test_a_short_exam_cannot_tell_longrun() -> None:
    result = judged(steps=STEPS[:5])
    assert (result.verdict, result.stable_until) == ("midrun", 20_000)
    assert any("too short" in reason for reason in result.reasons)


def test_states_that_diverged_are_never_longrun() -> None:
    result = judged(diverged="states are not finite any more")
    assert result.verdict == "midrun"
    assert "not finite" in result.reasons[0]


@pytest.mark.parametrize("contrast", [[0.1] * 6, [1, 1, 0.1, 0.1, 0.1, 0.1]])
def test_divergence_is_a_reason_also_of_samples_that_degraded_before(contrast: list[float]) -> None:
    reasons = judged(contrast=contrast, diverged="states are not finite any more").reasons
    assert "states are not finite any more" in reasons
    assert "contrast" in reasons[0]


def test_what_the_verdict_does_not_rest_on_is_said_all_the_same() -> None:
    assert len(judged().reasons) == 1
    unmixed = judged(rhat_energy=[None] * 5 + [1.7])
    assert unmixed.verdict == "longrun"
    assert "not mixed (R-hat of energies 1.70)" in unmixed.reasons[1]
    falling = judged(energy=[0, 0, 0, 0, -1, -9])
    assert "still falls: by 8.0 standard deviations since step 20,000" in falling.reasons[1]


def test_chance_is_what_draws_of_data_hardly_exceed() -> None:
    assert TRUTH.by_chance(CHANCE) == pytest.approx(2.5, rel=1e-3)
    assert TRUTH.by_chance(LATE_CHANCE * CHANCE) == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("chains", [32, 64, 256])
def test_draws_of_data_are_hardly_ever_judged_degraded(chains: int) -> None:
    """Evaluations of new data each time, like chains of a perfect density that mix between evaluations; several
    references, each with its own estimate of chance."""
    rng, data, marks = torch.Generator().manual_seed(0), digits(), log_spaced(100_000)
    features = DIGITS.of(data.take(torch.arange(len(data))))
    truths = [compute_reference(features, chains=chains, features=PLAIN, noise=0.0, rng=rng) for _ in range(4)]
    rows = torch.randint(len(data), (1000, chains), generator=rng)
    draws = torch.tensor([truths[0].distance(features[chosen]) for chosen in rows])
    degraded = 0
    for i in range(400):
        distances = draws[torch.randint(len(draws), (len(marks),), generator=rng)].tolist()
        degraded += judge(marks, {"distance": distances}, truths[i % 4]).verdict != "longrun"
    assert degraded < 8
