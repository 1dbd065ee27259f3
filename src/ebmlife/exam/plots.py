"""Images of exams: the curves of one, a comparison of several as in Figure 1 of the paper, and the tree of basins."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image
from torch import Tensor

from ebmlife.exam.basins import Landscape
from ebmlife.exam.cycle import LifeCycle
from ebmlife.plots import canvas, charts, pictures
from ebmlife.plots.charts import Panel

LEAVES = 24  # basins that are drawn, the deepest
_MINIMUM_WIDTH = 34  # points of a minimum's image
_FIRST = ("distance", "contrast", "variation", "outside", "diversity", "energy", "gradient", "agreement")
_LOGARITHMIC = ("distance", "gradient")


def shown_metrics(cycle: LifeCycle) -> list[str]:
    """Returns the metrics that are drawn and printed one by one: all but those of convergence and the energy spread."""
    return [name for name in cycle.metrics if not name.startswith(("rhat", "ess", "energy_"))]


def draw_curves(cycle: LifeCycle) -> Image.Image:
    """Draws every metric over the steps, with the range of the data.

    Args:
        cycle: The exam.
    """
    metrics, ranges, names = cycle.metrics, cycle.ranges, shown_metrics(cycle)
    names = [*(name for name in _FIRST if name in names), *(name for name in names if name not in _FIRST)]
    panels = [
        Panel(
            cycle.settings["distance"] if name == "distance" else name,
            {name: metrics[name]},
            ranges.get(name),
            name in _LOGARITHMIC,
        )
        for name in names
    ]
    rhats = {name: metrics[name] for name in ("rhat_energy", "rhat_features") if any(metrics[name])}
    if rhats:
        panels.append(Panel("R-hat of parallel chains", rhats, logarithmic=True))
    until = "" if cycle.verdict == "longrun" else f", stable to {cycle.stable_until:,} steps"
    return charts.panels(cycle.steps, panels, title=f"{cycle.verdict}{until}")


def draw_cycles(cycles: Mapping[str, LifeCycle], *, chains: int = 3) -> Image.Image:
    """Draws several exams together: the distance to the data over the steps, and strips of the first chains.

    The strips show the start, the powers of ten and the end.

    Args:
        cycles: Exams by name. Their distances must be of the same kind: they share an axis.
        chains: Number of chains in each strip.
    """
    first = next(iter(cycles.values()))
    columns = sorted({step for cycle in cycles.values() for step in landmarks(cycle)})
    figure = canvas.blank(max(7.0, 0.9 * len(columns)), 3.2 + len(cycles) * (0.9 * chains + 0.3))
    axes = figure.subplots(1 + len(cycles), 1, height_ratios=[3.2, *[0.9 * chains + 0.3] * len(cycles)])
    for name, cycle in cycles.items():
        label = f"{name}, like the data to step {cycle.stable_until:,}"
        axes[0].plot(cycle.steps, [math.nan if d is None else d for d in cycle.metrics["distance"]], label=label)
    axes[0].axhspan(*first.ranges["distance"], color="gray", alpha=0.3, label="data")
    axes[0].set_xscale("symlog", linthresh=1)
    axes[0].set(yscale="log", xlabel="Langevin steps", ylabel=first.settings["distance"])
    axes[0].legend(fontsize=8)
    for (name, cycle), strip in zip(cycles.items(), axes[1:], strict=True):
        picture = pictures.grid(_frames(cycle, columns, chains), columns=len(columns))
        strip.imshow(np.asarray(picture), cmap="gray", vmin=0, vmax=255)
        tile = (picture.width - 2) / len(columns)
        strip.set_xticks([1 + (i + 0.5) * tile for i in range(len(columns))], [f"{step:,}" for step in columns])
        strip.set(yticks=[], ylabel=name)
        strip.spines[:].set_visible(False)
        strip.tick_params(length=0, labelsize=8)
    return canvas.rendered(figure)


def landmarks(cycle: LifeCycle) -> list[int]:
    """Returns the evaluated steps that are shown: the start, the powers of ten and the last step."""
    return [step for step in cycle.steps if step in (0, cycle.steps[-1]) or math.log10(step).is_integer()]


def _frames(cycle: LifeCycle, columns: list[int], chains: int) -> Tensor:
    """Returns (chains * columns, C, H, W), row by row; white at steps that were not evaluated."""
    rows = []
    for chain in range(min(chains, cycle.strip.shape[1])):
        for step in columns:
            evaluated = step in cycle.steps
            white = torch.ones_like(cycle.strip[0, chain])
            rows.append(cycle.strip[cycle.steps.index(step), chain] if evaluated else white)
    return torch.stack(rows)


def draw_basins(landscape: Landscape) -> Image.Image:
    """Draws the tree of basins: each as a line from its minimum up to the energy at which it joins a lower one.

    Below each line are the minimum, if it is an image, and the number of states in the basin.

    Args:
        landscape: The basins.
    """
    order = leaves(landscape)
    images = landscape.minima.ndim == 4
    figure = canvas.blank(max(4.0, 0.6 * len(order) + 1), 4.5)
    axes = figure.add_subplot()
    base = landscape.energies[0].item()
    place = {basin: float(i) for i, basin in enumerate(order)}
    reached = {basin: landscape.energies[basin].item() - base for basin in order}  # height of each open line
    for basin in order:
        spot = (place[basin], reached[basin])
        axes.plot(*spot, "o", color="black", markersize=3)
        below = (0, -14 - (_MINIMUM_WIDTH + 8 if images else 0))
        size = str(landscape.sizes[basin])
        axes.annotate(size, spot, below, textcoords="offset points", ha="center", fontsize=8)
        if images:
            picture = np.asarray(pictures.image(landscape.minima[basin]))
            shown = OffsetImage(picture, zoom=_MINIMUM_WIDTH / picture.shape[1], cmap="gray", norm=None)
            axes.add_artist(AnnotationBbox(shown, spot, (0, -8 - _MINIMUM_WIDTH / 2), boxcoords="offset points", pad=0))
    for merge in landscape.merges:
        if merge.higher in place:
            height, sides = merge.height - base, (merge.lower, merge.higher)
            (a, b), (low, high) = (place[side] for side in sides), (reached[side] for side in sides)
            axes.plot([a, a, b, b], [low, height, height, high], color="black", linewidth=1)
            place[merge.lower], reached[merge.lower] = (a + b) / 2, height
    axes.margins(0.08, 0.25 if images else 0.12)
    left_out = len(landscape.minima) - len(order)
    title = f"{len(landscape.minima)} basins" + (f", the deepest {len(order)} shown" if left_out else "")
    axes.set(title=title, ylabel="energy above the lowest minimum", xticks=[])
    return canvas.rendered(figure)


def leaves(landscape: Landscape) -> list[int]:
    """Returns the deepest basins in an order in which no two branches cross."""
    depth = {merge.higher: merge.height - landscape.energies[merge.higher].item() for merge in landscape.merges}
    kept = {0, *sorted(depth, key=lambda basin: -depth[basin])[: LEAVES - 1]}
    under = {basin: [basin] for basin in kept}  # no basin is deeper than the one that it joins: both are drawn
    for merge in landscape.merges:
        if merge.higher in kept:
            under[merge.lower] += under.pop(merge.higher)
    return under[0]
