"""Measures the digits of docs/results/shortrun.md: `make results-shortrun`. Call it again to continue.

Runs are kept in runs/results/shortrun. A run that is finished and scored is not changed.
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from tables import RESULTS, interval, replace, table
from training import chosen, minutes, trained

from ebmlife.data import digits
from ebmlife.exam import diversity, fd_digits
from ebmlife.plots import pictures
from ebmlife.runs import build
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write

RUNS, PAGE = Path(__file__).parent.parent / "runs" / "results" / "shortrun", RESULTS / "shortrun.md"
VARIANTS = {
    "hybrid": "digits-shortrun",
    "cooperative": "digits-shortrun-coop",
    "persistent, noise": "digits-shortrun-persistent",
    "data": "digits-shortrun-data",
    "noise": "digits-shortrun-noise",
}
SEEDS, SAMPLES = (0, 1, 2), 2000


@dataclass(frozen=True)
class Scores:
    samples: float  # fd_digits after the recipe's sampling steps from its start
    start: float  # of the initial states, before any Langevin step
    bank: float | None  # of the bank's states
    diversity: float  # mean pairwise distance of samples relative to that of data
    minutes: float
    updates: int
    recipe_hash: str


def scored(name: str, seed: int, console: Console) -> Scores:
    """Trains a run, unless it is finished already, and scores it."""
    folder = trained(RUNS / f"{name}-seed{seed}", chosen(name, {"seed": str(seed)}), console)
    if not (folder / "scores.json").exists():
        with atomic_write(folder / "scores.json") as unfinished:
            unfinished.write_text(json.dumps(_score(folder)))
    return Scores(**json.loads((folder / "scores.json").read_text()))


def _score(folder: Path) -> dict[str, object]:
    model = build.load(folder)
    at = checkpoint.choose(folder, None)
    assert at is not None
    state, _ = checkpoint.load(checkpoint.path(folder, at))
    bank = state["trainer"]["chains"].get("x")
    samples = model.sample(SAMPLES, seed=1)
    data = digits()
    return {
        "samples": fd_digits([samples]),
        "start": fd_digits([model.sample(SAMPLES, steps=0, seed=1)]),
        "bank": None if bank is None else fd_digits([bank[:SAMPLES]]),
        "diversity": diversity(samples) / diversity(data.take(torch.arange(len(data)))),
        "minutes": minutes(folder),
        "updates": at,
        "recipe_hash": model.recipe.hash,
    }


def tables(scores: dict[str, list[Scores]]) -> dict[str, str]:
    """The blocks of the page, by name."""
    distances, details = [], []
    for title, entries in scores.items():
        banks = [entry.bank for entry in entries if entry.bank is not None]
        distances.append(
            [
                title,
                interval([entry.samples for entry in entries], digits=1),
                interval([entry.start for entry in entries], digits=1),
                interval(banks, digits=1) if banks else "no bank",
            ]
        )
        details.append(
            [
                title,
                f"`{VARIANTS[title]}`",
                ", ".join(f"{entry.samples:.1f}" for entry in entries),
                f"{statistics.mean(entry.diversity for entry in entries):.2f}",
                f"{statistics.mean(entry.minutes for entry in entries):.1f}",
                ", ".join(f"`{entry.recipe_hash}`" for entry in entries),
            ]
        )
    updates = next(iter(scores.values()))[0].updates
    command = (
        f"Digits, `fd_digits` of {SAMPLES} samples against all 1,797 digits (lower is better): mean and 95 % interval "
        f"over seeds {', '.join(map(str, SEEDS))} (Student's t,\n2 degrees of freedom), {updates} updates each. "
        "Command: `make results-shortrun`."
    )
    head = ("chains", "samples", "start", "bank")
    head_of_details = ("chains", "recipe", "samples, each seed", "diversity", "minutes", "recipe hashes")
    return {"digits table": f"{table(head, distances)}\n\n{command}", "digits runs": table(head_of_details, details)}


def strips(scores: dict[str, list[Scores]]) -> Image.Image:
    """Twenty samples per variant, seed 0, one row each; data in the last row."""
    rows = [build.load(RUNS / f"{VARIANTS[title]}-seed0").sample(20, seed=1) for title in scores]
    return pictures.grid(torch.cat([*rows, digits().take(torch.arange(20))]), columns=20)


def main() -> None:
    console = Console()
    scores = {title: [scored(name, seed, console) for seed in SEEDS] for title, name in VARIANTS.items()}
    pictures.save(PAGE.with_name("shortrun-digits.png"), strips(scores))
    for name, text in tables(scores).items():
        replace(PAGE, name, text)
        console.print(text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
