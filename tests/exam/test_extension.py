"""A new metric is one entry of `METRICS`; the verdict changes only if `JUDGED` lists it."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ebmlife.exam import LifeCycle, life_cycle, record
from ebmlife.exam.features import FEATURE_SETS, PLAIN, FeatureSet, find_features
from ebmlife.exam.metrics import METRICS, Metric
from ebmlife.exam.verdict import JUDGED, within_margin
from ebmlife.sampling.energy import gaussian

STEPS = 1500


def mean(x: Tensor) -> float:
    return x.double().mean().item()


def shifted_gaussian(x: Tensor) -> Tensor:
    """N(0.3, 0.5^2 I)."""
    return gaussian(0.5)(x - 0.3)


def cycle() -> LifeCycle:
    x0 = 0.3 + 0.5 * torch.randn(32, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return life_cycle(shifted_gaussian, x0, steps=STEPS, step_size=0.2)


@pytest.fixture
def brightness(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric whose value in chains is never that of the data."""
    calls = iter(range(10**6))
    shifted = Metric(lambda seen: mean(seen.x) + (0 if next(calls) < 50 else 100), on_data=True)
    monkeypatch.setitem(METRICS, "brightness", shifted)


def test_every_judged_metric_exists_and_has_a_range_of_data() -> None:
    assert set(JUDGED) <= set(METRICS)
    assert all(METRICS[name].on_data for name in JUDGED if name != "distance")


def test_a_new_metric_is_recorded_and_changes_no_verdict(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = cycle()
    request.getfixturevalue("brightness")
    found = cycle()
    record.save(found, tmp_path)
    assert min(json.loads((tmp_path / "life-cycle.json").read_text())["figures"]["brightness"]) > 50
    assert record.load(tmp_path).metrics == found.metrics
    assert (found.verdict, found.stable_until, found.reasons) == (before.verdict, before.stable_until, before.reasons)
    assert {name: found.metrics[name] for name in before.metrics} == before.metrics
    assert before.verdict == "midrun"


@pytest.mark.usefixtures("brightness")
def test_a_new_metric_that_is_listed_changes_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JUDGED, "brightness", within_margin)
    found = cycle()
    assert (found.verdict, found.stable_until) == ("shortrun", 0)
    assert "brightness" in found.reasons[0]


def test_a_listed_metric_without_a_range_of_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JUDGED, "energy", within_margin)
    with pytest.raises(ValueError, match="'energy', which has no range of data"):
        cycle()


def test_a_metric_that_did_not_exist_when_an_exam_began_is_missing_there(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    x0 = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    stop = iter([False, False, True])
    assert not life_cycle(gaussian(1.0), x0, steps=500, folder=tmp_path, stopping=lambda: next(stop)).complete
    request.getfixturevalue("brightness")
    found = life_cycle(gaussian(1.0), x0, steps=500, folder=tmp_path)
    assert found.complete
    assert found.metrics["brightness"][0] is None
    assert found.metrics["brightness"][-1] is not None


def test_new_features_are_one_entry_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURE_SETS, "points", FeatureSet(lambda: PLAIN, lambda shape: shape == (2,), "points"))
    assert find_features("points", (2,)) == (PLAIN, PLAIN)
