"""The instability figure of the paper (coop_stability, left), by real runs: `make results-stability`.

Cooperative and hybrid learning, the generator with and without batch norm: same data, updates and seed. Shown are
shortrun samples of the raw weights at the end, and how far apart samples are over the updates.
"""

from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from ebmlife import build, pictures, recipes
from ebmlife.data import digits
from ebmlife.exam import diversity
from ebmlife.files import whole
from ebmlife.recipe import Recipe, override
from ebmlife.trainer import Figures

PAGE = Path(__file__).parent.parent / "docs" / "results" / "shortrun.md"
BEGIN, END = "<!-- stability table -->\n", "<!-- end of it -->"
UPDATES, EVERY, SAMPLES, SEED = 500, 25, 100, 0
METHODS = {"hybrid": "digits-shortrun", "cooperative": "digits-shortrun-coop"}


def recipe(method: str, batch_norm: bool) -> Recipe:
    changes = {
        "seed": str(SEED),
        "updates": str(UPDATES),
        "generator.net.batch_norm": str(batch_norm).lower(),
        "optimizer.ema": "0",  # the weights of the moment: what the paper shows
        "generator.optimizer.ema": "0",
    }
    return build.resolve(override(build.resolve(recipes.get(METHODS[method])), changes))


def trained(chosen: Recipe) -> tuple[Tensor, dict[int, float]]:
    """Samples at the end, and their diversity relative to data over the updates."""
    training = build.training(chosen)
    data = digits()
    of_data = diversity(data.take(torch.arange(len(data))))
    steps = int(chosen.langevin.steps(0))
    over: dict[int, float] = {}

    def look(figures: Figures) -> None:
        if figures.update % EVERY == 0:
            over[figures.update] = diversity(training.model.sample(SAMPLES, steps=steps, seed=1)) / of_data

    training.trainer.fit(UPDATES, after=[look])
    return training.model.sample(20, steps=steps, seed=1), over


def main() -> None:
    console = Console()
    rows, lines, table = [], {}, []
    for method in METHODS:
        for batch_norm in (True, False):
            name = f"{method}, {'with' if batch_norm else 'without'} batch norm"
            chosen = recipe(method, batch_norm)
            samples, lines[name] = trained(chosen)
            rows.append(samples)
            last = list(lines[name].values())[-5:]
            numbers = [f"{sum(last) / len(last):.2f}", f"{min(lines[name].values()):.2f}"]
            table.append(f"| {name} | " + " | ".join(numbers) + f" | `{chosen.hash}` |")
            console.print(table[-1], markup=False, highlight=False)
    rows.append(digits().take(torch.arange(20)))
    pictures.save(PAGE.with_name("stability-digits.png"), pictures.grid(torch.cat(rows), columns=20))
    plot = pictures.curves(lines, title="diversity of shortrun samples", x="update", y="relative to data")
    pictures.save(PAGE.with_name("stability-digits-curves.png"), plot)
    text = (
        f"Command: `make results-stability`. Seed {SEED}, {UPDATES} updates, {SAMPLES} samples every {EVERY}.\n\n"
        "| chains, generator | diversity, mean of the last 5 | lowest | recipe hash |\n|---|---|---|---|\n"
    )
    before, rest = PAGE.read_text().split(BEGIN)
    with whole(PAGE) as unfinished:
        unfinished.write_text(before + BEGIN + text + "\n".join(table) + "\n" + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
