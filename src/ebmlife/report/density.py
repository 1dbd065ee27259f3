"""Charts that distinguish a valid density from a sampler: metrics over the steps, mixing, and the burn-in bank."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ebmlife.recipes.schema import EBMRecipe, Recipe
from ebmlife.report import summary
from ebmlife.report.charts import Chart, Line
from ebmlife.report.life import Life
from ebmlife.runs import build
from ebmlife.storage import checkpoint

_METRICS = {  # metric: title, label of the axis, whether it is logarithmic, caption
    "outside": ("Saturation", "fraction outside [-1, 1]", False, "Diverging chains leave the image cube."),
    "contrast": ("Contrast", "standard deviation of pixels", False, "Degraded samples are garish, or gray."),
    "variation": ("Roughness", "total variation of a pixel", False, "It rises with grain and falls with blur."),
    "diversity": ("Diversity", "mean distance between pairs", False, "It falls if chains collapse to one state."),
    "energy": ("Energy", "mean E(x)", False, "In a steady state it is level."),
    "gradient": ("Gradient", "mean |grad E|", True, "In a steady state it is level."),
    "agreement": ("Class kept", "fraction of chains", False, "Chains that still have the class of their start."),
}
_BINS = 25
_AGES = "trainer/chains/burn_in/age"


def charts(life: Life) -> list[Chart]:
    """Returns a chart of every metric over the steps, with the range of data."""
    cycle = life.cycle
    found = [
        Chart(
            title,
            cycle.steps,
            [Line(title.lower(), cycle.metrics[name])],
            "Langevin steps",
            y_name,
            f"{caption} Of {life.chains:,} chains.",
            log_x=True,
            log_y=logarithmic,
            data=cycle.ranges.get(name),
        )
        for name, (title, y_name, logarithmic, caption) in _METRICS.items()
        if any(value is not None for value in cycle.metrics.get(name, ()))
    ]
    return found + _mixing(life)


def _mixing(life: Life) -> list[Chart]:
    cycle = life.cycle
    lines = [
        Line(of, cycle.metrics[name])
        for name, of in (("rhat_energy", "energy"), ("rhat_features", "features"))
        if any(cycle.metrics.get(name, ()))
    ]
    caption = "R-hat of parallel chains. Values near 1 mean that chains no longer depend on their start."
    if not lines:
        return []
    return [Chart("Mixing", cycle.steps, lines, "Langevin steps", "R-hat", caption, log_x=True, log_y=True)]


def burn_in(run: Path, recipe: Recipe, lines: Sequence[dict[str, Any]]) -> list[Chart]:
    """Returns a histogram of the ages in the burn-in bank, and the arrivals; both are flat in a healthy run."""
    length = build.burn_in_walks(recipe.chains) if isinstance(recipe, EBMRecipe) else None
    if length is None:
        return []
    newest, place = summary.newest(run)
    saved = None if place is None else checkpoint.tensor(place, _AGES)
    if saved is None:  # exported weights have no banks
        return []
    ages = saved.numpy()
    counts, edges = np.histogram(ages, bins=min(_BINS, length + 1), range=(0, length))
    histogram = Chart(
        "Burn-in",
        ((edges[:-1] + edges[1:]) / 2).tolist(),
        [Line("states", counts.tolist())],
        "Langevin runs since initialization",
        "states",
        f"{len(ages):,} states at update {newest:,}; burn-in takes {length:,} Langevin runs. A healthy run is flat.",
        bars=True,
    )
    return [histogram, *_arrivals(lines)]


def _arrivals(lines: Sequence[dict[str, Any]]) -> list[Chart]:
    seen = [(line["update"], line["arrived"]) for line in lines if line.get("arrived") is not None]
    if len(seen) < 4:
        return []
    parts = np.array_split(np.array(seen, dtype=np.float64), min(50, len(seen) // 2))
    ends = np.array([part[-1] for part in parts])
    rate = np.diff(ends[:, 1]) / np.diff(ends[:, 0])
    caption = "Burned-in states that enter the training bank. A healthy run is level."
    line = Line("arrivals", rate.tolist())
    return [Chart("Arrivals", ends[1:, 0].tolist(), [line], "update", "states per update", caption)]
