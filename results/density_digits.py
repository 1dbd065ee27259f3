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
from training import chosen, minutes, trained

from ebmlife import build, pictures
from ebmlife.cli import main as ebmlife
from ebmlife.errors import Diverged
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
STEPS, CHAINS = 100_000, 256
LONG_STEPS, LONG_CHAINS = 1_000_000, 16  # of the longrun model once more


def examined(
    folder: Path, out: Path, *, steps: int = STEPS, chains: int = CHAINS, more: Sequence[str] = MORE
) -> LifeCycle:
    """The exam of a run, chains from data; one that is there is not asked for again."""
    if (out / "life-cycle.json").exists() and (not more or (out / "outliers.json").exists()):
        return record.load(out)
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
        f"{minutes(folder):.1f}",
        f"`{build.load(folder).recipe.hash}`",
    ]
    return "| " + " | ".join(cells) + " |"


def table(rows: list[str], cycles: dict[str, LifeCycle]) -> str:
    some = next(iter(cycles.values()))
    low, high = (f"{some.ranges[name][0]:.3f} to {some.ranges[name][1]:.3f}" for name in ("outside", "contrast"))
    chance = "{:.1f} to {:.1f}".format(*some.ranges["distance"])
    head = (
        f"| model | recipe | distance at {MIDRUN:,} | at {STEPS:,} | ratio | outside | contrast | verdict, stable to | "
        "AUROC noise / constant / shuffled / blended | minutes | recipe hash |\n"
    )
    return (
        f"Command: `make results-density-digits`. Seed 0; {CHAINS} chains from data, {STEPS:,} steps; the distance is "
        f"`{some.settings['distance']}`.\nRange of as many data, under the noise of the first model's: distance "
        f"{chance}, outside {low}, contrast {high}.\nEach model is judged by data under the noise that it was taught "
        "with.\n\n" + head + "|---" * head.count(" | ") + "|---|\n" + "\n".join(rows)
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


def look_further(folder: Path) -> None:
    """The longrun model once more, ten times as far."""
    cycle = examined(folder, folder / "exam-long", steps=LONG_STEPS, chains=LONG_CHAINS)
    steps = (MIDRUN, STEPS, LONG_STEPS)
    distances = ", ".join(f"{at(cycle, 'distance', step):.1f} at {step:,} steps" for step in steps)
    replace(
        PAGE,
        "digits million",
        f"The longrun model once more, {LONG_CHAINS} chains: `{cycle.settings['distance']}` is {distances}; verdict "
        f"{cycle.verdict}, stable to {cycle.stable_until:,}.",
    )


def main() -> None:
    console = Console()
    trained(PRIOR, chosen("digits-prior"), console)
    cycles: dict[str, LifeCycle] = {}
    rows = []
    for name, recipe in MODELS.items():
        folder = RUNS / recipe
        try:
            trained(folder, chosen(recipe), console)
        except Diverged as divergence:  # a result as any other
            console.print(str(divergence), markup=False, highlight=False)
            rows.append(f"| {name} | `{recipe}` | {divergence} |")
            continue
        cycles[name] = examined(folder, folder / "exam", more=() if recipe in SCORES else MORE)
        rows.append(row(name, recipe, folder, cycles[name]))
        draw(cycles)
        replace(PAGE, "digits table", table(rows, cycles))
        if name == "longrun":
            look_further(folder)


if __name__ == "__main__":
    main()
