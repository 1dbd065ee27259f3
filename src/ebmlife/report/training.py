"""Training curves and the diagnostic plot, from the log of a run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ebmlife.plots.charts import span
from ebmlife.plots.correlations import correlations
from ebmlife.report.charts import Chart, Line
from ebmlife.runs import logging

POINTS = 300  # of a curve: a screen cannot show more
_MOST = 24  # columns of a log that are drawn
_CURVES = {  # title, label of the axis and caption by column of the log, for training with Langevin chains
    "energy_difference": (
        "Energy difference",
        "U(x+) - U(x-)",
        "In a healthy training it oscillates around 0. If it stays on one side, data and samples drift apart.",
    ),
    "gradient": (
        "Langevin gradient",
        "|grad E|",
        "In a healthy training it settles. If it keeps growing, the training will diverge.",
    ),
    "generator_loss": (
        "Generator loss",
        "|g(z) - x-|^2",
        "Distance from generated images to the ends of their chains.",
    ),
    "age_mean": ("Age of the bank", "updates since initialization", "Mean over the states of the bank."),
}


def curves(lines: Sequence[dict[str, Any]]) -> list[Chart]:
    """Returns a chart for each column of the log: means over neighboring updates, with their extremes."""
    charts = []
    for name, (title, y_name, caption) in _columns(lines).items():
        logged = [line for line in lines if line.get(name) is not None]
        if len(logged) > 1:
            y = np.array([line[name] for line in logged], dtype=np.float64)
            charts.append(_curve(title, y_name, caption, np.array([line["update"] for line in logged]), y))
    return charts


def _columns(lines: Sequence[dict[str, Any]]) -> dict[str, tuple[str, str, str]]:
    if not lines or "gradient" in lines[0]:
        return _CURVES
    names = [name for name in lines[0] if name not in ("update", *logging.TIMES)][:_MOST]
    return {name: (name.replace("_", " ").capitalize(), name.replace("_", " "), "") for name in names}


def diagnostics(lines: Sequence[dict[str, Any]]) -> list[Chart]:
    """Returns the lower half of the paper's diagnostic plot: correlations of energy difference and gradient."""
    names = ("energy_difference", "gradient")
    lines = [line for line in lines if all(line.get(name) is not None for name in names)]
    if len(lines) < 2:
        return []
    difference, gradient = (np.array([line[name] for line in lines], dtype=np.float64) for name in names)
    with np.errstate(all="ignore"):  # the page counts values that are not finite
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
            f"Over the last {n:,} updates. In a healthy training that of the difference falls fast and turns negative.",
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
    with np.errstate(all="ignore"):  # the page counts values that are not finite
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
