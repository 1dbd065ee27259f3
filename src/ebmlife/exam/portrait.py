"""Several models' lives in one picture, as in Figure 1 of the paper: their curves, and below them their chains."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ebmlife.exam.cycle import LifeCycle
from ebmlife.plots import canvas, pictures


def draw_cycles(cycles: Mapping[str, LifeCycle], *, chains: int = 3) -> Image.Image:
    """The distance to the data over the steps, a line for each model; then a strip of the first chains of each, at the
    start, at the powers of ten and at the end. Distances must be of one kind: all share an axis."""
    first = next(iter(cycles.values()))
    columns = sorted({step for cycle in cycles.values() for step in landmarks(cycle)})
    figure = canvas.blank(max(7.0, 0.9 * len(columns)), 3.2 + len(cycles) * (0.9 * chains + 0.3))
    axes = figure.subplots(1 + len(cycles), 1, height_ratios=[3.2, *[0.9 * chains + 0.3] * len(cycles)])
    for name, cycle in cycles.items():
        label = f"{name}, like the data to step {cycle.stable_until:,}"
        axes[0].plot(cycle.steps, [math.nan if d is None else d for d in cycle.figures["distance"]], label=label)
    axes[0].axhspan(*first.ranges["distance"], color="grey", alpha=0.3, label="data")
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
    """The start, the powers of ten and the last step that were looked at."""
    return [step for step in cycle.steps if step in (0, cycle.steps[-1]) or math.log10(step).is_integer()]


def _frames(cycle: LifeCycle, columns: list[int], chains: int) -> Tensor:
    """(chains * columns, C, H, W), row by row; white where a walk was not looked at."""
    rows = []
    for chain in range(min(chains, cycle.strip.shape[1])):
        for step in columns:
            seen = step in cycle.steps
            rows.append(cycle.strip[cycle.steps.index(step), chain] if seen else torch.ones_like(cycle.strip[0, chain]))
    return torch.stack(rows)
