"""The figures of digits in docs/results/density.md, by real runs: `make results-density-digits`.

Runs lie in runs/results/density, the prior in runs/digits-prior, where its recipe's readers look for it. Stopped and
called again, it goes on; what is trained and examined is not touched again.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from tables import RESULTS, replace

from ebmlife import build, checkpoint, pictures, recipes, run, watch
from ebmlife.cli import main as ebmlife
from ebmlife.exam import LifeCycle, record
from ebmlife.exam.portrait import together
from ebmlife.exam.verdict import MIDRUN
from ebmlife.pictures import Panel

RUNS, PAGE, PRIOR = Path("runs/results/density"), RESULTS / "density.md", Path("runs/digits-prior")
MODELS = {
    "longrun": "digits-longrun",
    "shortrun": "digits-shortrun",
    "midrun": "digits-midrun",
    "longrun, no annealing": "digits-longrun-no-anneal",
    "longrun, no prior": "digits-longrun-no-prior",
    "longrun, one bank": "digits-longrun-one-bank",
    "Glow": "digits-glow",
    "score model": "digits-score",
    "recovery likelihood": "digits-recovery",
}
SCORES = ("digits-score",)  # a slope and no energy
MORE = ("--basins", "--outliers")  # what can be asked of an energy
LENGTHS = ("shortrun", "midrun", "longrun")
STEPS, CHAINS = 100_000, 128
LONG_STEPS, LONG_CHAINS = 1_000_000, 16  # of the longrun model once more


def trained(folder: Path, recipe: str, console: Console) -> Path:
    """The folder of a finished run."""
    wanted = build.resolve(recipes.get(recipe))
    if checkpoint.choose(folder, None) != wanted.updates:
        console.print(f"{folder.name}: {wanted.updates} updates", highlight=False)
        outcome = run.resume(folder, console=console) if folder.exists() else run.begin(wanted, folder, console=console)
        if not outcome.finished:
            raise SystemExit("stopped and saved; the same command goes on")
    return folder


def examined(
    folder: Path, out: Path, *, steps: int = STEPS, chains: int = CHAINS, more: Sequence[str] = MORE
) -> LifeCycle:
    """The exam of a run, chains from data."""
    size = ["--steps", str(steps), "--chains", str(chains), "--start", "data"]
    code = ebmlife(["exam", str(folder), "--out", str(out), *size, *more])
    if code or not (out / "life-cycle.json").exists():
        raise SystemExit(code or "stopped and saved; the same command goes on")
    return record.load(out)


def at(cycle: LifeCycle, name: str, step: int) -> float:
    """NaN where the chains had diverged before."""
    value = cycle.figures[name][cycle.steps.index(step)] if step in cycle.steps else None
    return math.nan if value is None else value


def row(name: str, recipe: str, folder: Path, cycle: LifeCycle) -> str:
    early, late = at(cycle, "distance", MIDRUN), at(cycle, "distance", STEPS)
    outliers = {} if recipe in SCORES else json.loads((folder / "exam" / "outliers.json").read_text())["auroc"]
    minutes = sum(1 / line["updates_per_second"] for line in watch.read_log(folder / "log.jsonl")) / 60
    cells = [
        f"{name}",
        f"`{recipe}`",
        f"{early:.1f}",
        f"{late:.1f}",
        f"{late / early:.2f}",
        f"{at(cycle, 'outside', STEPS):.3f}",
        f"{at(cycle, 'contrast', STEPS):.3f}",
        f"{cycle.verdict}, {cycle.stable_until:,}",
        " / ".join(f"{value:.2f}" for value in outliers.values()) or "no energy",
        f"{minutes:.1f}",
        f"`{build.load(folder).recipe.hash}`",
    ]
    return "| " + " | ".join(cells) + " |"


def table(folders: dict[str, Path], cycles: dict[str, LifeCycle]) -> str:
    rows = [row(name, MODELS[name], folders[name], cycles[name]) for name in cycles]
    some = next(iter(cycles.values()))
    low, high = (f"{some.ranges[name][0]:.3f} to {some.ranges[name][1]:.3f}" for name in ("outside", "contrast"))
    chance = "{:.1f} to {:.1f}".format(*some.ranges["distance"])
    head = (
        f"| model | recipe | distance at {MIDRUN:,} | at {STEPS:,} | ratio | outside | contrast | verdict, stable to | "
        "AUROC noise / constant / shuffled / blended | minutes | recipe hash |\n"
    )
    return (
        f"Command: `make results-density-digits`. Seed 0; {CHAINS} chains from data, {STEPS:,} steps; the distance is "
        f"`{some.settings['distance']}`.\nRange of as many data: distance {chance}, outside {low}, contrast {high}.\n\n"
        + head
        + "|---" * head.count(" | ")
        + "|---|\n"
        + "\n".join(rows)
    )


def draw(cycles: dict[str, LifeCycle]) -> None:
    longest = max(cycles.values(), key=lambda cycle: len(cycle.steps))  # those that diverged have fewer
    steps, shown = longest.steps, []
    for figure in ("distance", "outside", "contrast"):
        lines = {name: [*cycle.figures[figure], *[None] * len(steps)][: len(steps)] for name, cycle in cycles.items()}
        shown.append(Panel(figure, lines, longest.ranges[figure], figure == "distance"))
    pictures.save(PAGE.with_name("density-digits-curves.png"), pictures.panels(steps, shown, title="chains from data"))
    three = {name: cycles[name] for name in LENGTHS if name in cycles}
    pictures.save(PAGE.with_name("density-digits.png"), together(three))


def main() -> None:
    console = Console()
    trained(PRIOR, "digits-prior", console)
    folders: dict[str, Path] = {}
    cycles: dict[str, LifeCycle] = {}
    for name, recipe in MODELS.items():
        folders[name] = trained(RUNS / recipe, recipe, console)
        cycles[name] = examined(folders[name], folders[name] / "exam", more=() if recipe in SCORES else MORE)
        draw(cycles)
        replace(PAGE, "digits table", table(folders, cycles))
    cycle = examined(folders["longrun"], folders["longrun"] / "exam-long", steps=LONG_STEPS, chains=LONG_CHAINS)
    steps = (MIDRUN, STEPS, LONG_STEPS)
    distances = ", ".join(f"{at(cycle, 'distance', step):.1f} at {step:,} steps" for step in steps)
    replace(
        PAGE,
        "digits million",
        f"The longrun model once more, {LONG_CHAINS} chains: `{cycle.settings['distance']}` is {distances}; verdict "
        f"{cycle.verdict}, stable to {cycle.stable_until:,}.",
    )


if __name__ == "__main__":
    main()
