from typing import Any

import numpy as np
import pytest
from conftest import small_digits

from ebmlife.report import summary, training


def log(n: int, **columns: Any) -> list[dict[str, Any]]:
    values = {"energy_difference": np.sin, "gradient": np.cos} | columns
    return [{"update": i + 1, **{name: float(of(i)) for name, of in values.items()}} for i in range(n)]


def test_a_point_is_the_mean_of_its_updates_and_the_band_their_extremes() -> None:
    lines = log(3 * training.POINTS, energy_difference=lambda i: i)
    line = training.curves(lines)[0].lines[0]
    assert len(line.values) == training.POINTS
    assert (line.values[0], line.low[0], line.high[0]) == (1, 0, 2)  # type: ignore[index]
    assert training.curves(lines)[0].x[-1] == 3 * training.POINTS
    assert "mean of 3 updates" in training.curves(lines)[0].caption


def test_short_logs_are_drawn_as_they_are() -> None:
    charts = training.curves(log(5, energy_difference=lambda i: i * i))
    assert [chart.title for chart in charts] == ["Energy difference", "Langevin gradient"]
    assert charts[0].lines[0].values == [0, 1, 4, 9, 16]
    assert training.curves(log(1)) == []
    assert training.diagnostics(log(1)) == []


def test_the_auto_correlation_of_lag_0_is_1() -> None:
    auto, cross = training.diagnostics(log(50))
    assert [line.values[0] for line in auto.lines] == pytest.approx([1, 1])
    assert (list(auto.x), list(cross.x)) == (list(range(16)), list(range(-15, 16)))


def test_image_steps_are_the_batch_times_the_steps_of_every_update() -> None:
    recipe = small_digits(langevin__steps="3, 5 @ 4", batch="8")
    assert summary.image_steps(recipe, 6) == 8 * (4 * 3 + 2 * 5)
    fields = {"chains__kind": "maturing", "chains__size": "20", "chains__burn_in_size": "20"}
    assert summary.image_steps(small_digits(**fields), 6) == 2 * 8 * 6 * 3  # the burn-in bank walks as well
    assert summary.image_steps(small_digits(**fields, chains__burn_in_steps="1"), 6) == 8 * 6 * (3 + 1)


def test_time_is_the_sum_over_updates() -> None:
    assert summary.seconds([{"updates_per_second": 2.0}, {"updates_per_second": 4.0}, {}]) == 0.75


@pytest.mark.parametrize(
    ("seconds", "said"), [(5.4, "5 s"), (89, "89 s"), (91, "2 min"), (5000, "83 min"), (5400, "1.5 h")]
)
def test_durations(seconds: float, said: str) -> None:
    assert summary.duration(seconds) == said


def test_a_recipe_in_rows_has_schedules_in_words() -> None:
    rows = dict(summary.rows(small_digits(langevin__steps="3, 5 @ 4")))
    assert rows["langevin.steps"] == "3 from update 0, 5 from update 4"
    assert rows["tau"] == "none"
    assert rows["chains.size"] == "20"
