"""What tells a density from a sampler: saturation and energy over steps, mixing, burn-in, surfaces of the plane."""

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

_FIGURES = {  # figure: title, what is on the axis, logarithmic, what it says
    "outside": ("Saturation", "share outside [-1, 1]", False, "Chains that run away leave the image cube."),
    "contrast": ("Contrast", "standard deviation of pixels", False, "Spoilt chains turn garish, or grey."),
    "variation": ("Roughness", "total variation of a pixel", False, "Grain makes it rise, blur makes it fall."),
    "diversity": ("Diversity", "mean distance of pairs", False, "Chains that meet in one state make it fall."),
    "energy": ("Energy", "mean E(x)", False, "In a steady state it is level."),
    "gradient": ("Gradient", "mean |grad E|", True, "In a steady state it is level."),
    "agreement": ("Class kept", "share of chains", False, "Chains that still show the class that they began with."),
}
_BINS = 25
_AGES = "trainer/chains/burn_in/age"


def charts(life: Life) -> list[Chart]:
    """Every figure over the steps, with the range in which data lie."""
    cycle = life.cycle
    found = [
        Chart(
            title,
            cycle.steps,
            [Line(title.lower(), cycle.figures[name])],
            "Langevin steps",
            y_name,
            f"{caption} Of {life.chains:,} chains.",
            log_x=True,
            log_y=logarithmic,
            data=cycle.ranges.get(name),
        )
        for name, (title, y_name, logarithmic, caption) in _FIGURES.items()
        if any(value is not None for value in cycle.figures.get(name, ()))
    ]
    return found + _mixing(life)


def _mixing(life: Life) -> list[Chart]:
    cycle = life.cycle
    lines = [
        Line(of, cycle.figures[name])
        for name, of in (("rhat_energy", "energy"), ("rhat_features", "features"))
        if any(cycle.figures.get(name, ()))
    ]
    caption = "R-hat of parallel chains: near 1, they have forgotten where they began."
    if not lines:
        return []
    return [Chart("Mixing", cycle.steps, lines, "Langevin steps", "R-hat", caption, log_x=True, log_y=True)]


def burn_in(run: Path, recipe: Recipe, lines: Sequence[dict[str, Any]]) -> list[Chart]:
    """The histogram of walks in the burn-in bank, and the arrivals, for chains with one. Healthy: both are flat."""
    length = build.burn_in_walks(recipe.chains) if isinstance(recipe, EBMRecipe) else None
    if length is None:
        return []
    newest, place = summary.newest(run)
    saved = None if place is None else checkpoint.tensor(place, _AGES)
    if saved is None:  # weights alone have no banks
        return []
    ages = saved.numpy()
    counts, edges = np.histogram(ages, bins=min(_BINS, length + 1), range=(0, length))
    histogram = Chart(
        "Burn-in",
        ((edges[:-1] + edges[1:]) / 2).tolist(),
        [Line("states", counts.tolist())],
        "walks since initialization",
        "states",
        f"{len(ages):,} states at update {newest:,}; they are burned in after {length:,} walks. Healthy: flat.",
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
    caption = "Burned-in states that enter the bank that is learned from. Healthy: level."
    line = Line("arrivals", rate.tolist())
    return [Chart("Arrivals", ends[1:, 0].tolist(), [line], "update", "states an update", caption)]
