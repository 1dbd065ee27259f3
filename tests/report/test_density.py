from pathlib import Path

import numpy as np
import pytest
from conftest import small_digits
from rich.console import Console
from safetensors.torch import load_file

from ebmlife.report import density, life
from ebmlife.runs import logging
from ebmlife.runs import run as runs
from ebmlife.runs.folder import read_recipe
from ebmlife.storage import checkpoint

BURN_IN = 30


@pytest.fixture(scope="module")
def maturing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("density") / "maturing"
    fields = {"chains__kind": "maturing", "chains__size": "20", "chains__mature": "3", "chains__burn_in_size": "30"}
    runs.begin(small_digits(**fields, updates="10", start__kind="data"), folder, console=Console(quiet=True))
    return folder


def test_every_metric_of_the_walk_has_its_chart(made: Path) -> None:
    found = life.read(made)
    assert found is not None
    charts = {chart.title: chart for chart in density.charts(found)}
    for title, figure in (("Saturation", "outside"), ("Energy", "energy"), ("Gradient", "gradient")):
        assert charts[title].lines[0].values == found.cycle.metrics[figure]
        assert list(charts[title].x) == found.cycle.steps
    assert charts["Saturation"].data == found.cycle.ranges["outside"]
    assert charts["Saturation"].log_x


def test_the_burn_in_histogram_counts_every_state(maturing: Path) -> None:
    histogram, arrivals = density.burn_in(maturing, read_recipe(maturing), logging.read_log(maturing / "log.jsonl"))
    ages = load_file(checkpoint.path(maturing, 10) / "tensors.safetensors")["trainer/chains/burn_in/age"].numpy()
    assert len(ages) == BURN_IN
    assert list(histogram.lines[0].values) == np.bincount(ages.astype(int), minlength=4).tolist()
    assert histogram.bars
    assert "30 states at update 10; burn-in takes 3" in histogram.caption
    assert arrivals.title == "Arrivals"


def test_arrivals_are_states_an_update() -> None:
    lines = [{"update": i + 1, "arrived": 7 * (i + 1)} for i in range(40)]
    (chart,) = density._arrivals(lines)
    assert chart.lines[0].values == pytest.approx([7.0] * 19)
    assert density._arrivals(lines[:3]) == []


def test_chains_without_a_burn_in_bank_show_none(made: Path) -> None:
    assert density.burn_in(made, read_recipe(made), []) == []
