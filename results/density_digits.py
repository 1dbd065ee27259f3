"""The figures of digits in docs/results/density.md, by real runs: `make results-density-digits`.

Runs lie in runs/results/density, the prior in runs/digits-prior, where its recipe's readers look for it. Stopped and
called again, it goes on; what is trained and examined is not touched again. Recipes' names, or `million`, as arguments
make those alone; the page says all that is there.
"""

import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from rich.console import Console
from tables import RESULTS, interval, replace, rows
from training import chosen, minutes, trained

from ebmlife.cli import main as ebmlife
from ebmlife.errors import Diverged
from ebmlife.exam import LifeCycle, record
from ebmlife.exam.digits import digits_classifier
from ebmlife.exam.plots import draw_cycles
from ebmlife.exam.verdict import LATE, MIDRUN, late_average
from ebmlife.plots import pictures
from ebmlife.plots.pictures import Panel
from ebmlife.runs import build

RUNS, PAGE, PRIOR = Path("runs/results/density"), RESULTS / "density.md", Path("runs/digits-prior")
STEPS, CHAINS, FEW = 100_000, 512, 32  # few: of models without a compiled program
MORE = ("--basins", "--outliers")  # what can be asked of an energy


@dataclass(frozen=True)
class Sitting:
    """One exam."""

    recipe: str
    chains: int = CHAINS
    more: tuple[str, ...] = MORE
    name: str = "exam"
    seed: int = 0  # of the training, and of the exam

    @property
    def run(self) -> Path:
        return RUNS / (f"{self.recipe}-seed{self.seed}" if self.seed else self.recipe)

    @property
    def out(self) -> Path:
        return self.run / self.name

    @property
    def over(self) -> bool:
        last = "outliers.json" if "--outliers" in self.more else "life-cycle.json"
        return (self.out / last).exists()


SITTINGS = {
    "longrun": Sitting("digits-longrun"),
    "longrun, seed 1": Sitting("digits-longrun", more=(), seed=1),
    "longrun, seed 2": Sitting("digits-longrun", more=(), seed=2),
    "shortrun": Sitting("digits-shortrun"),
    "midrun": Sitting("digits-midrun"),
    "longrun, no annealing": Sitting("digits-longrun-no-anneal"),
    "longrun, raw weights": Sitting("digits-longrun", more=("--raw",), name="exam-raw"),
    "longrun, no annealing, raw weights": Sitting("digits-longrun-no-anneal", more=("--raw",), name="exam-raw"),
    "longrun, no prior": Sitting("digits-longrun-no-prior"),
    "longrun, one bank": Sitting("digits-longrun-one-bank"),
    "Glow": Sitting("digits-glow", FEW),
    "score model": Sitting("digits-score", FEW, more=()),  # a slope and no energy
    "score model, more chains": Sitting("digits-score", 128, more=(), name="exam-128"),
    "recovery likelihood": Sitting("digits-recovery", FEW),
    "the same, given noisier images": Sitting("digits-recovery", FEW, more=("--conditional",), name="exam-conditional"),
}
LENGTHS = ("shortrun", "midrun", "longrun")
TRAININGS = ("longrun", "longrun, seed 1", "longrun, seed 2")  # of one recipe
MILLION = Sitting("digits-longrun", 16, more=(), name="exam-million")  # the longrun model once more
LONG_STEPS = 1_000_000


def examined(sitting: Sitting, *, steps: int = STEPS) -> None:
    """The exam of a run, chains from data; one that is there is not asked for again."""
    if not sitting.over:
        size = ("--steps", steps, "--chains", sitting.chains, "--seed", sitting.seed)
        ebmlife_exam(sitting.run, sitting.out, *size, *sitting.more)


def ebmlife_exam(run: Path | str, out: Path, *options: object) -> None:
    code = ebmlife(["exam", str(run), "--out", str(out), "--start", "data", *map(str, options)])
    if code or not (out / "life-cycle.json").exists():
        raise SystemExit(code or "stopped and saved; the same command goes on")


def at(cycle: LifeCycle, name: str, step: int) -> float:
    """NaN where the chains had diverged before."""
    value = cycle.metrics[name][cycle.steps.index(step)] if step in cycle.steps else None
    return math.nan if value is None else value


def late_distance(cycle: LifeCycle) -> float:
    """The mean over the looks of the last part of the walk."""
    mean = late_average(cycle.steps, cycle.metrics["distance"]) if cycle.steps[-1] == STEPS else None
    return math.nan if mean is None else mean


def kinds(cycle: LifeCycle) -> str:
    """How many of the last states are a 0, a 1, ... by the classifier whose features the distance is of."""
    if cycle.steps[-1] < STEPS:
        return "diverged"
    return " ".join(map(str, digits_classifier()(cycle.states).argmax(1).bincount(minlength=10).tolist()))


def row(name: str, sitting: Sitting) -> str:
    if said := divergence(sitting.run):
        return f"| {name} | `{sitting.recipe}` | {said} |"
    cycle = record.load(sitting.out)
    early, lately = at(cycle, "distance", MIDRUN), late_distance(cycle)
    asked = sitting.out / "outliers.json"
    outliers = json.loads(asked.read_text())["auroc"] if asked.exists() else {}
    cells = [
        f"{name}",
        f"`{sitting.recipe}`",
        f"{cycle.settings['chains']}",
        f"{early:.1f}",
        f"{at(cycle, 'distance', STEPS):.1f}",
        f"{lately:.1f}",
        f"{lately / early:.2f}",
        "{:.0f} to {:.0f}".format(*cycle.ranges["distance"]),
        *(f"{at(cycle, figure, STEPS):.3f} ({within(cycle, figure)})" for figure in ("outside", "contrast")),
        kinds(cycle),
        f"{cycle.verdict}, {cycle.stable_until:,}",
        " / ".join(f"{value:.2f}" for value in outliers.values()) or "-",
        f"{minutes(sitting.run):.1f}",
        f"`{build.load(sitting.run).recipe.hash}`",
    ]
    return "| " + " | ".join(cells) + " |"


def within(cycle: LifeCycle, figure: str) -> str:
    low, high = cycle.ranges[figure]
    return f"{low:.3f} to {high:.3f}"


def table(lines: list[str]) -> str:
    head = (
        f"| model | recipe | chains | distance at {MIDRUN:,} | at {STEPS:,} | lately | ratio | of data | outside | "
        "contrast | of each kind, 0 to 9 | verdict, stable to | AUROC noise / constant / shuffled / blended | "
        "minutes | recipe hash |\n"
    )
    return (
        f"Command: `make results-density-digits`. Seed 0 unless said; chains from data, {STEPS:,} steps. The distance "
        f'is `fd_digits_N` of N chains. "Lately"\nis its mean over the four looks from {LATE * STEPS:,.0f} steps on, '
        f'the ratio of that to the one at {MIDRUN:,} steps, "of data" its range over\nfifty draws of as many data; so '
        "are the ranges of the pixels' figures at the end, of data under the noise that a model was taught with.\n\n"
        + head
        + "|---" * head.count(" | ")
        + "|---|\n"
        + "\n".join(lines)
    )


def draw(cycles: dict[str, LifeCycle]) -> None:
    """Distances of as many chains side by side: curves of all EBMs, lives of the three lengths, lives of the others."""
    alike = {name: cycle for name, cycle in cycles.items() if cycle.settings["chains"] == CHAINS}
    if alike:
        pictures.save(PAGE.with_name("density-digits-curves.png"), curves(alike))
    lengths = {name: alike[name] for name in LENGTHS if name in alike}
    others = {name: cycle for name, cycle in cycles.items() if cycle.settings["chains"] == FEW}
    for file, lives in (("density-digits.png", lengths), ("density-digits-others.png", others)):
        if lives:
            pictures.save(PAGE.with_name(file), draw_cycles(lives))


def curves(cycles: dict[str, LifeCycle]) -> Image.Image:
    longest = max(cycles.values(), key=lambda cycle: len(cycle.steps))  # those that diverged have fewer
    steps, shown = longest.steps, []
    for figure in ("distance", "outside", "contrast"):
        lines = {name: [*cycle.metrics[figure], *[None] * len(steps)][: len(steps)] for name, cycle in cycles.items()}
        shown.append(Panel(figure, lines, longest.ranges[figure], figure == "distance"))
    return pictures.panels(steps, shown, title="chains from data")


def repeated(cycles: list[LifeCycle]) -> str:
    """The goal, over trainings of one recipe: the chains of an exam begin at other data in each."""
    early, lately = [at(cycle, "distance", MIDRUN) for cycle in cycles], [late_distance(cycle) for cycle in cycles]
    ratio = interval([b / a for a, b in zip(early, lately, strict=True)], digits=2)
    return (
        f"Over {len(cycles)} trainings of `digits-longrun`, mean and 95 % interval (Student's t): "
        f"{interval(early, digits=1)} at {MIDRUN:,} steps,\n{interval(lately, digits=1)} lately, ratio {ratio}; the "
        f"ratio of the means is {sum(lately) / sum(early):.2f}."
    )


def further(cycle: LifeCycle) -> str:
    steps = (MIDRUN, STEPS, LONG_STEPS)
    distances = ", ".join(f"{at(cycle, 'distance', step):.1f} at {step:,} steps" for step in steps)
    low, high = cycle.ranges["distance"]
    return (
        f"The longrun model once more, {MILLION.chains} chains: `{cycle.settings['distance']}` is {distances}\n"
        f"(of data: {low:.0f} to {high:.0f}); verdict {cycle.verdict}, stable to {cycle.stable_until:,}."
    )


def divergence(folder: Path) -> str:
    """What ended the training before its time, if anything did."""
    said = folder / "diverged.txt"
    return said.read_text().strip() if said.exists() else ""


def make(sitting: Sitting, console: Console) -> None:
    """Trained and examined; a training that diverges is a result as any other."""
    if not divergence(sitting.run):
        try:
            trained(sitting.run, chosen(sitting.recipe, {"seed": str(sitting.seed)}), console)
            examined(sitting)
        except Diverged as reason:
            console.print(str(reason), markup=False, highlight=False)
            (sitting.run / "diverged.txt").write_text(f"{reason}\n")


def write() -> None:
    """Down what is there."""
    known = {name: sitting for name, sitting in SITTINGS.items() if sitting.over or divergence(sitting.run)}
    cycles = {name: record.load(sitting.out) for name, sitting in known.items() if sitting.over}
    if cycles:
        draw(cycles)
        lines = rows(PAGE, "digits table") | {name: row(name, sitting) for name, sitting in known.items()}
        replace(PAGE, "digits table", table([lines[name] for name in SITTINGS if name in lines]))
    if (tree := SITTINGS["longrun"].out / "basins.png").exists():
        shutil.copyfile(tree, PAGE.with_name("density-digits-basins.png"))
    trainings = [record.load(SITTINGS[name].out) for name in TRAININGS if SITTINGS[name].over]
    if len(trainings) == len(TRAININGS):
        replace(PAGE, "digits trainings", repeated(trainings))
    if MILLION.over:
        replace(PAGE, "digits million", further(record.load(MILLION.out)))


def main(names: Sequence[str]) -> None:
    console = Console()
    trained(PRIOR, chosen("digits-prior"), console)
    for sitting in SITTINGS.values():
        if sitting.recipe in names or not names:
            make(sitting, console)
            write()
    if "million" in names or not names:
        examined(MILLION, steps=LONG_STEPS)
        write()


if __name__ == "__main__":
    main(sys.argv[1:])
