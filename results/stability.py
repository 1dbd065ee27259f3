"""The instability figure of the paper (coop_stability, left), by real runs: `make results-stability`.

Cooperative and hybrid learning, the generator with and without batch norm: same data, updates and seed. Shown are
shortrun samples of the raw weights at the end, and how far apart samples are over the updates. Digits take minutes,
CIFAR-10 (the paper's own point) an hour: `python results/stability.py cifar10`. Stopped and called again, it goes on.
"""

import sys
from pathlib import Path

import torch
from rich.console import Console
from tables import RESULTS, replace
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
        "optimizer.ema": "0",  # the weights of the moment: what the paper shows
        "generator.optimizer.ema": "0",
        "checkpoint.every": str(EVERY),
        "checkpoint.keep_every": str(EVERY),
    }
    return chosen(RECIPES[data] + METHODS[method], changes)


def diversities(wanted: Recipe, folder: Path, console: Console) -> dict[int, float]:
    """How diverse samples are, relative to data, over the updates of a run that is made, or gone on with, or there.

    A divergence is what is looked for: it ends the run, and what came before is shown."""
    try:
        trained(folder, wanted, console)
    except Diverged as divergence:
        console.print(str(divergence), markup=False, highlight=False)
    data = build.DATA.make(wanted.data)
    of_data = diversity(data.take(torch.linspace(0, len(data) - 1, 2000).long()))
    steps = int(wanted.langevin.steps(0))
    models = {update: build.load(folder, update=update) for update in checkpoint.updates(folder)}
    return {at: diversity(model.sample(SAMPLES, steps=steps, seed=1)) / of_data for at, model in models.items()}


def main(data: str) -> None:
    console = Console()
    rows, lines, table = [], {}, []
    for method in METHODS:
        for batch_norm in (True, False):
            name = f"{method}, {'with' if batch_norm else 'without'} batch norm"
            wanted = recipe(data, method, batch_norm)
            folder = RUNS / f"{data}-{name.replace(', ', '-').replace(' ', '-')}"
            lines[name] = diversities(wanted, folder, console)
            rows.append(build.load(folder).sample(20, steps=int(wanted.langevin.steps(0)), seed=1))
            last, end = list(lines[name].values())[-5:], max(lines[name])
            ended = f"{end}" if end == UPDATES else f"diverged after {end}"
            numbers = [f"{sum(last) / len(last):.2f}", f"{min(lines[name].values()):.2f}", ended]
            table.append(f"| {name} | " + " | ".join(numbers) + f" | `{wanted.hash}` |")
            console.print(table[-1], markup=False, highlight=False)
    rows.append(build.DATA.make(wanted.data).take(torch.arange(20)))
    pictures.save(PAGE.with_name(f"stability-{data}.png"), pictures.grid(torch.cat(rows), columns=20))
    plot = charts.curves(lines, title=f"diversity of shortrun samples, {data}", x="update", y="relative to data")
    pictures.save(PAGE.with_name(f"stability-{data}-curves.png"), plot)
    replace(
        PAGE,
        f"stability of {data}",
        f"Command: `python results/stability.py {data}`. Seed {SEED}, {UPDATES} updates, {SAMPLES} samples every "
        f"{EVERY}.\n\n| chains, generator | diversity, mean of the last 5 | lowest | updates | recipe hash |\n"
        "|---|---|---|---|---|\n" + "\n".join(table),
    )


if __name__ == "__main__":
    main(*sys.argv[1:] or ["digits"])
