"""Training curves and the diagnostic plot of a run, from its log."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebmlife.plots.charts import span
from ebmlife.plots.correlations import correlations
from ebmlife.report.charts import Chart, Line
from ebmlife.runs import logging

POINTS = 300  # of a curve: more than a screen can tell apart only weigh
_MOST = 24  # columns of a log that are drawn
_CURVES = {  # of Langevin's training; column of the log: title, what is on the axis, what to look for
    "energy_difference": (
        "Energy difference",
        "U(x+) - U(x-)",
        "Healthy: it swings about 0. A difference that stays on one side means that data and samples drift apart.",
    ),
    "gradient": (
        "Langevin gradient",
        "|grad E|",
        "Healthy: it settles. A gradient that grows without end comes before a divergence.",
    ),
    "generator_loss": ("Generator loss", "|g(z) - x-|^2", "How far the generator is behind the chains that it starts."),
    "age_mean": ("Age of the bank", "walks since birth", "The mean over the states that are kept between updates."),
}


def curves(lines: Sequence[dict[str, Any]]) -> list[Chart]:
    """A chart for each column that the log has, means over neighbouring updates with their extremes."""
    charts = []
    for name, (title, y_name, caption) in _columns(lines).items():
        there = [line for line in lines if line.get(name) is not None]
        if len(there) > 1:
            y = np.array([line[name] for line in there], dtype=np.float64)
            charts.append(_curve(title, y_name, caption, np.array([line["update"] for line in there]), y))
    return charts


def _columns(lines: Sequence[dict[str, Any]]) -> dict[str, tuple[str, str, str]]:
    if not lines or "gradient" in lines[0]:
        return _CURVES
    names = [name for name in lines[0] if name not in ("update", *logging.TIMES)][:_MOST]
    return {name: (name.replace("_", " ").capitalize(), name.replace("_", " "), "") for name in names}


def diagnostics(lines: Sequence[dict[str, Any]]) -> list[Chart]:
    """The lower half of the paper's diagnostic plot: how difference and gradient go together."""
    names = ("energy_difference", "gradient")
    lines = [line for line in lines if all(line.get(name) is not None for name in names)]
    if len(lines) < 2:
        return []
    difference, gradient = (np.array([line[name] for line in lines], dtype=np.float64) for name in names)
    with np.errstate(all="ignore"):  # figures that are not finite are said below the chart
        found = correlations(difference, gradient)
    n = min(len(lines), 5000)
    return [
        Chart(
            "Auto-correlations",
            list(found.difference),
            [
                Line("energy difference", list(found.difference.values())),
                Line("gradient", list(found.gradient.values())),
            ],
            "lag in updates",
            "correlation",
            f"Over the last {n:,} updates. Healthy: the difference's falls fast and turns negative.",
            bars=True,
        ),
        Chart(
            "Cross-correlation",
            list(found.cross),
            [Line("difference and gradient", list(found.cross.values()))],
            "lag in updates",
            "correlation",
            f"Of energy difference and gradient, over the last {n:,} updates.",
            bars=True,
        ),
    ]


def _curve(title: str, y_name: str, caption: str, x: NDArray[np.int64], y: NDArray[np.float64]) -> Chart:
    parts = np.array_split(np.arange(len(y)), min(POINTS, len(y)))
    with np.errstate(all="ignore"):  # figures that are not finite are said below the chart
        line = Line(
            title.lower(),
            [float(y[part].mean()) for part in parts],
            [float(y[part].min()) for part in parts],
            [float(y[part].max()) for part in parts],
        )
        scale = span(y) if len(y) > 100 and np.isfinite(y).all() else None
    if len(parts) < len(y):
        caption += f" Each point is the mean of {math.ceil(len(y) / len(parts))} updates, the band their extremes."
    return Chart(title, [float(x[part[-1]]) for part in parts], [line], "update", y_name, caption, scale=scale)
