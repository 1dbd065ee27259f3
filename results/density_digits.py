"""The figures of digits in docs/results/density.md, by real runs: `make results-density-digits`.

Runs lie in runs/results/density, the prior in runs/digits-prior, where its recipe's readers look for it. Stopped and
called again, it goes on; what is trained and examined is not touched again. Recipes' names, or `million`, as arguments
make those alone; the page says all that is there.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from tables import RESULTS, replace
from training import chosen, minutes, trained

from ebmlife import build, pictures
from ebmlife.cli import main as ebmlife
from ebmlife.errors import Diverged
from ebmlife.exam import LifeCycle, record
from ebmlife.exam.digits import digits_classifier
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
FEWER = {"digits-glow": 64, "digits-score": 64, "digits-recovery": 64}  # chains of those that step 3 to 12 times slower
MILLION, LONG_STEPS, LONG_CHAINS = "million", 1_000_000, 16  # the longrun model once more
FAR = RUNS / MODELS["longrun"] / "exam-million"


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


def kinds(cycle: LifeCycle) -> str:
    """How many of the last states are a 0, a 1, ... by the classifier whose features the distance is of."""
    if cycle.steps[-1] < STEPS:
        return "diverged"
    return " ".join(map(str, digits_classifier()(cycle.states).argmax(1).bincount(minlength=10).tolist()))


def row(name: str, recipe: str) -> str:
    folder = RUNS / recipe
    if said := divergence(folder):
        return f"| {name} | `{recipe}` | {said} |"
    cycle = record.load(folder / "exam")
    early, late = at(cycle, "distance", MIDRUN), at(cycle, "distance", STEPS)
    outliers = {} if recipe in SCORES else json.loads((folder / "exam" / "outliers.json").read_text())["auroc"]
    cells = [
        f"{name}",
        f"`{recipe}`",
        f"{cycle.settings['chains']}",
        f"{early:.1f}",
        f"{late:.1f}",
        f"{late / early:.2f}",
        "{:.0f} to {:.0f}".format(*cycle.ranges["distance"]),
        f"{at(cycle, 'outside', STEPS):.3f}",
        f"{at(cycle, 'contrast', STEPS):.3f}",
        kinds(cycle),
        f"{cycle.verdict}, {cycle.stable_until:,}",
        " / ".join(f"{value:.2f}" for value in outliers.values()) or "no energy",
        f"{minutes(folder):.1f}",
        f"`{build.load(folder).recipe.hash}`",
    ]
    return "| " + " | ".join(cells) + " |"


def table(rows: list[str], some: LifeCycle) -> str:
    low, high = (f"{some.ranges[name][0]:.3f} to {some.ranges[name][1]:.3f}" for name in ("outside", "contrast"))
    head = (
        f"| model | recipe | chains | distance at {MIDRUN:,} | at {STEPS:,} | ratio | of data | outside | contrast | "
        "of each kind, 0 to 9 | verdict, stable to | AUROC noise / constant / shuffled / blended | minutes | "
        "recipe hash |\n"
    )
    return (
        f"Command: `make results-density-digits`. Seed 0; chains from data, {STEPS:,} steps. The distance is "
        '`fd_digits_N` of N chains, "of data" its\nrange over draws of as many data. Pixels are compared with those '
        f"of data under the noise that a model was taught with: for the\nfirst, outside {low} and contrast {high}."
        "\n\n" + head + "|---" * head.count(" | ") + "|---|\n" + "\n".join(rows)
    )


def draw(cycles: dict[str, LifeCycle]) -> None:
    longest = max(cycles.values(), key=lambda cycle: len(cycle.steps))  # those that diverged have fewer
    steps, shown = longest.steps, []
    for figure in ("distance", "outside", "contrast"):
        lines = {name: [*cycle.figures[figure], *[None] * len(steps)][: len(steps)] for name, cycle in cycles.items()}
        shown.append(Panel(figure, lines, longest.ranges[figure], figure == "distance"))
    pictures.save(PAGE.with_name("density-digits-curves.png"), pictures.panels(steps, shown, title="chains from data"))
    if three := {name: cycles[name] for name in LENGTHS if name in cycles}:
        pictures.save(PAGE.with_name("density-digits.png"), together(three))


def further(cycle: LifeCycle) -> str:
    steps = (MIDRUN, STEPS, LONG_STEPS)
    distances = ", ".join(f"{at(cycle, 'distance', step):.1f} at {step:,} steps" for step in steps)
    return (
        f"The longrun model once more, {LONG_CHAINS} chains: `{cycle.settings['distance']}` is {distances}; verdict "
        f"{cycle.verdict}, stable to {cycle.stable_until:,}."
    )


def divergence(folder: Path) -> str:
    """What ended the training before its time, if anything did."""
    said = folder / "diverged.txt"
    return said.read_text().strip() if said.exists() else ""


def make(recipe: str, console: Console) -> None:
    """Trained and examined; a training that diverges is a result as any other."""
    folder = RUNS / recipe
    if not divergence(folder):
        try:
            trained(folder, chosen(recipe), console)
            chains = FEWER.get(recipe, CHAINS)
            examined(folder, folder / "exam", chains=chains, more=() if recipe in SCORES else MORE)
        except Diverged as reason:
            console.print(str(reason), markup=False, highlight=False)
            (folder / "diverged.txt").write_text(f"{reason}\n")


def write() -> None:
    """Down what is there."""
    known = {name: recipe for name, recipe in MODELS.items() if judged(recipe) or divergence(RUNS / recipe)}
    cycles = {name: record.load(RUNS / recipe / "exam") for name, recipe in known.items() if judged(recipe)}
    if cycles:
        draw(cycles)
        replace(PAGE, "digits table", table([row(*each) for each in known.items()], next(iter(cycles.values()))))
    if (FAR / "life-cycle.json").exists():
        replace(PAGE, "digits million", further(record.load(FAR)))


def judged(recipe: str) -> bool:
    return (RUNS / recipe / "exam" / ("life-cycle.json" if recipe in SCORES else "outliers.json")).exists()


def main(names: Sequence[str]) -> None:
    console = Console()
    trained(PRIOR, chosen("digits-prior"), console)
    for name in names or (*MODELS.values(), MILLION):
        if name == MILLION:
            examined(FAR.parent, FAR, steps=LONG_STEPS, chains=LONG_CHAINS)
        else:
            make(name, console)
        write()


if __name__ == "__main__":
    main(sys.argv[1:])
