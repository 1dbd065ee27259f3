"""Charts of trainings, chains and attacks, including the paper's diagnostic plot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ebmlife.plots.canvas import blank, rendered
from ebmlife.plots.correlations import correlations

_FEW = 4  # lines whose names leave room in a panel


def diagnostics(energy_difference: NDArray[np.float64], gradient: NDArray[np.float64]) -> Image.Image:
    """Draws the paper's diagnostic plot: energy difference, gradient magnitude, and their correlations.

    In a healthy training the difference oscillates around 0 and its auto-correlation falls fast and turns negative,
    while the gradient magnitude converges.

    Args:
        energy_difference: U(x+) - U(x-) of each update.
        gradient: Mean |grad E| along the chains of each update.
    """
    figure = blank(10, 7)
    top_left, top_right, bottom_left, bottom_right = figure.subplots(2, 2).flat
    updates = np.arange(1, len(energy_difference) + 1)
    _curve(top_left, updates, energy_difference, "energy difference  U(x+) - U(x-)")
    top_left.axhline(0, color="black", linestyle="--", linewidth=0.8)
    _curve(top_right, updates, gradient, "Langevin gradient magnitude  |grad E|")
    found = correlations(energy_difference, gradient)
    bottom_left.bar(list(found.cross), list(found.cross.values()))
    bottom_left.set(title="cross-correlation", xlabel="lag in updates")
    lags = np.arange(len(found.difference))
    bottom_right.bar(lags - 0.2, list(found.difference.values()), 0.4, label="difference")
    bottom_right.bar(lags + 0.2, list(found.gradient.values()), 0.4, label="gradient")
    bottom_right.set(title="auto-correlations", xlabel="lag in updates")
    bottom_right.legend()
    for axes in (bottom_left, bottom_right):
        axes.axhline(0, color="black", linewidth=0.8)
    return rendered(figure)


def progress(lines: dict[str, dict[int, float]]) -> Image.Image:
    """Draws one plot for each metric of a training, given its values by update."""
    figure = blank(10, 2.5 * math.ceil(len(lines) / 2))
    for i, (name, points) in enumerate(lines.items()):
        axes = figure.add_subplot(math.ceil(len(lines) / 2), 2, i + 1)
        _curve(axes, np.array(list(points)), np.array(list(points.values()), dtype=np.float64), name.replace("_", " "))
    return rendered(figure)


def bars(groups: dict[str, dict[str, float]], *, title: str) -> Image.Image:
    """Draws a group of bars for each case, with one color for each name."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    figure = blank(10, 1.2 + 0.8 * len(groups))
    axes = figure.add_subplot()
    height = 0.8 / len(names)
    for i, name in enumerate(names):
        rows = [j + i * height for j, values in enumerate(groups.values()) if name in values]
        drawn = axes.barh(rows, [values[name] for values in groups.values() if name in values], height, label=name)
        axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=8)
    axes.set_yticks([j + 0.4 - height / 2 for j in range(len(groups))], list(groups))
    axes.invert_yaxis()
    axes.set(title=title)
    axes.legend()
    return rendered(figure)


def curves(lines: dict[str, dict[int, float]], *, title: str, x: str, y: str) -> Image.Image:
    """Draws a line for each name, given its values at whole numbers."""
    figure = blank(8, 4.5)
    axes = figure.add_subplot()
    for name, points in lines.items():
        axes.plot(list(points), list(points.values()), marker=".", label=name)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.legend()
    return rendered(figure)


def burn_in(counts: NDArray[np.int64], arrived: dict[int, int], *, mature: int) -> Image.Image:
    """Draws the ages of burn-in states, and how many states per update leave the burn-in bank.

    Both are flat in a healthy training.

    Args:
        counts: How often each burn-in state has been updated since its initialization.
        arrived: Number of states that have left the burn-in bank, by update.
        mature: The number of updates after which a state leaves it.
    """
    figure = blank(10, 3.6)
    left, right = figure.subplots(1, 2)
    left.hist(counts, bins=min(mature + 1, 25), range=(0, mature))
    left.set(title="burn-in states", xlabel=f"updates since initialization (burned in at {mature})", ylabel="states")
    updates = np.array(list(arrived))
    window = max(1, len(updates) // 50)  # updates over which arrivals are averaged
    totals = np.array(list(arrived.values()), dtype=np.float64)
    rate = (totals[window:] - totals[:-window]) / np.maximum(updates[window:] - updates[:-window], 1)
    right.plot(updates[window:], rate)
    right.set(title="states that leave burn-in", xlabel="update", ylabel="per update")
    right.set_ylim(bottom=0)
    return rendered(figure)


@dataclass(frozen=True)
class Panel:
    """Curves over Langevin steps, and the range of the data where it is known."""

    title: str
    lines: Mapping[str, Sequence[float | None]]
    band: tuple[float, float] | None = None
    logarithmic: bool = False


def panels(steps: Sequence[int], shown: Sequence[Panel], *, title: str, columns: int = 3) -> Image.Image:
    """Draws panels side by side over a logarithmic axis of Langevin steps.

    Args:
        steps: The steps at which all curves have values.
        shown: The panels.
        title: Title of the picture.
        columns: Panels in a row.
    """
    rows = math.ceil(len(shown) / columns)
    many = max(len(panel.lines) for panel in shown) > _FEW
    figure = blank(4 * columns, 0.6 + 2.6 * rows + 0.6 * many)
    figure.suptitle(title)
    for i, panel in enumerate(shown):
        axes = figure.add_subplot(rows, columns, i + 1)
        for name, values in panel.lines.items():
            axes.plot(steps, [math.nan if value is None else value for value in values], marker=".", label=name)
        if panel.band is not None:
            axes.axhspan(*panel.band, color="gray", alpha=0.3, label="data")
        axes.set_xscale("symlog", linthresh=1)  # includes step 0
        positive = any((value or 0) > 0 for values in panel.lines.values() for value in values)
        axes.set_yscale("log" if panel.logarithmic and positive else "linear")
        axes.set(title=panel.title, xlabel="Langevin steps")
        if not many and (len(panel.lines) > 1 or panel.band is not None):
            axes.legend(fontsize=8)
    if many:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
    return rendered(figure)


def surfaces(densities: dict[str, Tensor], *, half: float) -> Image.Image:
    """Draws log densities side by side: above as densities, on the scale of the first, below as energies.

    Energies are shown up to 12 nats above their minimum.

    Args:
        densities: Log densities (N, N) on [-half, half]^2, by name.
        half: Half the side of the square.
    """
    figure = blank(2.6 * len(densities), 5.4)
    axes = figure.subplots(2, len(densities), squeeze=False)
    highest = next(iter(densities.values())).exp().max().item()
    box = (-half, half, -half, half)
    for (name, log_density), above, below in zip(densities.items(), *axes, strict=True):
        image = log_density.T.cpu().numpy()
        above.imshow(np.exp(image), origin="lower", extent=box, vmin=0, vmax=highest, cmap="magma")
        below.imshow(image.max() - image, origin="lower", extent=box, vmin=0, vmax=12, cmap="viridis")
        above.set(title=name, xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), xticks=[], yticks=[])
        below.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), xticks=[], yticks=[])
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel("energy")
    return rendered(figure)


def span(y: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the range of a curve to show.

    The first 2 % are ignored: early values are often larger by orders of magnitude and would flatten the rest.
    """
    low, high = np.quantile(y[len(y) // 50 :], [0.002, 0.998])
    return float(low - 0.1 * (high - low) - 1e-9), float(high + 0.1 * (high - low) + 1e-9)


def _curve(axes, x: NDArray[np.int64], y: NDArray[np.float64], title: str) -> None:  # type: ignore[no-untyped-def]
    axes.plot(x, y, linewidth=0.5, alpha=0.5)
    window = max(1, len(y) // 100)
    if window > 1:
        axes.plot(x[window - 1 :], np.convolve(y, np.ones(window) / window, "valid"), linewidth=1.5)
        axes.set_ylim(*span(y))
    axes.set(title=title, xlabel="update")
