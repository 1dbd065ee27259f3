"""Measures the instability of cooperative learning (the paper's figure coop_stability, left): `make results-stability`.

Cooperative and hybrid learning, the generator with and without batch norm: same data, updates and seed. The page shows
shortrun samples of the raw weights at the end, and the diversity of samples over the updates. Digits take minutes,
CIFAR-10, which the paper uses, an hour: `python results/stability.py cifar10`. Call it again to continue.
"""

import sys
from pathlib import Path

import torch
from rich.console import Console
from tables import RESULTS, replace, table
from training import chosen, trained

from ebmlife.errors import Diverged
from ebmlife.exam import diversity
from ebmlife.plots import charts, pictures
from ebmlife.recipes.schema import Recipe
from ebmlife.runs import build
from ebmlife.storage import checkpoint

RUNS, PAGE = Path(__file__).parent.parent / "runs" / "results" / "stability", RESULTS / "shortrun.md"
UPDATES, EVERY, SAMPLES, SEED = 500, 25, 100, 0
RECIPES = {"digits": "digits-shortrun", "cifar10": "cifar10-shortrun-small"}
METHODS = {"hybrid": "", "cooperative": "-coop"}


def recipe(data: str, method: str, batch_norm: bool) -> Recipe:
    changes = {
        "seed": str(SEED),
        "updates": str(UPDATES),
        "generator.net.batch_norm": str(batch_norm).lower(),
        "optimizer.ema": "0",  # raw weights, as in the paper's figure
        "generator.optimizer.ema": "0",
        "checkpoint.every": str(EVERY),
        "checkpoint.keep_every": str(EVERY),
    }
    return chosen(RECIPES[data] + METHODS[method], changes)


def diversities(recipe: Recipe, folder: Path, console: Console) -> dict[int, float]:
    """Diversity of samples relative to data over the updates of a run, which is trained unless it is finished.

    A divergence is a result here: it ends the run, and the checkpoints before it are evaluated."""
    try:
        trained(folder, recipe, console)
    except Diverged as divergence:
        console.print(str(divergence), markup=False, highlight=False)
    data = build.DATA.make(recipe.data)
    of_data = diversity(data.take(torch.linspace(0, len(data) - 1, 2000).long()))
    steps = int(recipe.langevin.steps(0))
    models = {update: build.load(folder, update=update) for update in checkpoint.updates(folder)}
    return {at: diversity(model.sample(SAMPLES, steps=steps, seed=1)) / of_data for at, model in models.items()}


def main(data: str) -> None:
    console = Console()
    samples, lines, rows, diverged = [], {}, [], []
    for method in METHODS:
        for batch_norm in (True, False):
            name = f"{method}, {'with' if batch_norm else 'without'} batch norm"
            wanted = recipe(data, method, batch_norm)
            folder = RUNS / f"{data}-{name.replace(', ', '-').replace(' ', '-')}"
            lines[name] = diversities(wanted, folder, console)
            samples.append(build.load(folder).sample(20, steps=int(wanted.langevin.steps(0)), seed=1))
            last, end = list(lines[name].values())[-5:], max(lines[name])
            if end < UPDATES:
                diverged.append(f" {name.capitalize()}, the run diverged after {end} updates.")
            rows.append([name, f"{sum(last) / len(last):.2f}", f"{min(lines[name].values()):.2f}", f"`{wanted.hash}`"])
            console.print(*rows[-1], markup=False, highlight=False)
    samples.append(build.DATA.make(wanted.data).take(torch.arange(20)))
    pictures.save(PAGE.with_name(f"stability-{data}.png"), pictures.grid(torch.cat(samples), columns=20))
    plot = charts.curves(lines, title=f"diversity of shortrun samples, {data}", x="update", y="relative to data")
    pictures.save(PAGE.with_name(f"stability-{data}-curves.png"), plot)
    replace(
        PAGE,
        f"stability of {data}",
        table(("chains, generator", "diversity, mean of the last 5", "lowest diversity", "recipe hash"), rows)
        + f"\n\nSeed {SEED}, {UPDATES} updates, {SAMPLES} samples every {EVERY} updates.{''.join(diverged)} Command: "
        "`make results-stability`.",
    )


if __name__ == "__main__":
    main(*sys.argv[1:] or ["digits"])
