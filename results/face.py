"""Draws the README's picture, the life cycle of the models that come with the package: `make face`.

Runs long chains of every digits model of the zoo. Above, the distance of the chains to the data; below, the chains
themselves. Other models can be named: `python results/face.py RUN [RUN ...]`. Call it again to continue.
"""

import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from ebmlife.exam.verdict import LONGRUN, MIDRUN
from ebmlife.plots import pictures
from ebmlife.report import life
from ebmlife.report.life import Life
from ebmlife.runs import locate, zoo

ROOT = Path(__file__).parent.parent
WORK, PICTURE = ROOT / "runs" / "results" / "face", ROOT / "docs" / "life-cycle.png"
STEPS, CHAINS = 100_000, 64
SHOWN, AGES = 4, 12  # chains and ages of each model's strip
LENGTHS = {"short: new images": (0, MIDRUN), "middle: defense": (MIDRUN, LONGRUN), "long: density": (LONGRUN, 3e5)}
COLORS = ("#0f6e67", "#b45309", "#5b4bb5")


def walked(name: str) -> Life:
    life.walk(name, steps=STEPS, chains=CHAINS, progress=lambda done: print(f"{name}: step {done.step}", flush=True))
    found = life.read(locate.own(name))
    assert found is not None
    return found


def curves(axes, lives: dict[str, Life]) -> None:  # type: ignore[no-untyped-def]
    for i, (text, (begin, end)) in enumerate(LENGTHS.items()):
        axes.axvspan(begin, end, color=COLORS[0], alpha=0.04 + 0.05 * i, linewidth=0)
        center = ((1 + begin) * (1 + end)) ** 0.5
        axes.text(center, 0.93, text, transform=axes.get_xaxis_transform(), ha="center", color="#62646b")
    for color, (name, found) in zip(COLORS, lives.items(), strict=False):
        cycle = found.cycle
        axes.plot(cycle.steps, cycle.figures["distance"], marker=".", color=color, label=name, linewidth=2)
    first = next(iter(lives.values()))
    axes.axhspan(*first.cycle.ranges["distance"], color="grey", alpha=0.25, linewidth=0, label="data")
    axes.set_xscale("symlog", linthresh=1, linscale=0.3)
    axes.set(yscale="log", xlim=(0, 3e5), xlabel="Langevin steps", ylabel="distance to the data")
    axes.set_ylim(top=10 * axes.get_ylim()[1])  # room for the names of the lengths
    axes.legend(loc="center right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def strip(figure, grid, row: int, name: str, found: Life) -> None:  # type: ignore[no-untyped-def]
    cycle = found.cycle
    last = len(cycle.steps) - 1
    for column, age in enumerate(sorted({round(i * last / (AGES - 1)) for i in range(AGES)})):
        axes = figure.add_subplot(grid[row, column])
        axes.imshow(pictures.grid(cycle.strip[age, :SHOWN], columns=1), cmap="gray", vmin=0, vmax=255)
        axes.set_xlabel(f"{cycle.steps[age]:,}", fontsize=9)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        if column == 0:
            axes.set_ylabel(name)


def drawn(lives: dict[str, Life]) -> Image.Image:
    figure = Figure(figsize=(11, 3.4 + 3.6 * len(lives)), dpi=110, layout="constrained")
    grid = figure.add_gridspec(1 + len(lives), AGES, height_ratios=[1] + [1.05] * len(lives))
    curves(figure.add_subplot(grid[0, :]), lives)
    for row, (name, found) in enumerate(lives.items(), start=1):
        strip(figure, grid, row, name, found)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def main(names: list[str]) -> None:
    names = names or [f"{zoo.PREFIX}digits-{length}" for length in ("shortrun", "midrun", "longrun")]
    WORK.mkdir(parents=True, exist_ok=True)
    os.chdir(WORK)  # results of the zoo's models are saved here
    lives = {name: walked(name) for name in names}
    pictures.save(PICTURE, drawn(lives))
    for name, found in lives.items():
        print(f"{name}: {found.cycle.verdict}, like the data to {found.cycle.stable_until:,} steps")


if __name__ == "__main__":
    main(sys.argv[1:])
