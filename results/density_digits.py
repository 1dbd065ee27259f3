"""Measures the digits of docs/results/density.md: `make results-density-digits`.

Runs are kept in runs/results/density, the prior in runs/digits-prior, where the longrun recipe looks for it. Call it
again to continue; finished trainings and exams are not changed. Arguments choose some of the recipes, or `million`; the
page shows all that are finished.
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
from tables import RESULTS, interval, line, replace, rows, table
from training import chosen, minutes, trained

from ebmlife.cli import main as ebmlife
from ebmlife.errors import Diverged
from ebmlife.exam import LifeCycle, record
from ebmlife.exam.digits import digits_classifier
from ebmlife.exam.plots import draw_cycles
from ebmlife.exam.verdict import LATE, MIDRUN, late_average
from ebmlife.plots import charts, pictures
from ebmlife.plots.pictures import Panel
from ebmlife.runs import build

RUNS, PAGE, PRIOR = Path("runs/results/density"), RESULTS / "density.md", Path("runs/digits-prior")
STEPS, CHAINS, FEW = 100_000, 512, 32  # few chains for models without a compiled program
MORE = ("--basins", "--outliers")  # options that need an energy


@dataclass(frozen=True)
class Sitting:
    """One exam."""

    recipe: str
    chains: int = CHAINS
    more: tuple[str, ...] = MORE
    name: str = "exam"
    seed: int = 0  # of both the training and the exam

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
    "score model": Sitting("digits-score", FEW, more=()),  # a gradient without an energy
    "score model, more chains": Sitting("digits-score", 128, more=(), name="exam-128"),
    "recovery likelihood": Sitting("digits-recovery", FEW),
    "the same, given noisier images": Sitting("digits-recovery", FEW, more=("--conditional",), name="exam-conditional"),
}
LENGTHS = ("shortrun", "midrun", "longrun")
TRAININGS = ("longrun", "longrun, seed 1", "longrun, seed 2")  # of one recipe
MAIN = ("longrun", "longrun, seed 1", "longrun, seed 2", "shortrun", "midrun")
OTHERS = (
    *("Glow", "score model", "score model, more chains", "recovery likelihood", "the same, given noisier images"),
)
ABLATIONS = tuple(name for name in SITTINGS if name not in (*MAIN, *OTHERS))
MILLION = Sitting("digits-longrun", 16, more=(), name="exam-million")  # a second, longer exam of the longrun model
LONG_STEPS = 1_000_000


def examined(sitting: Sitting, *, steps: int = STEPS) -> None:
    """Examines a run with chains from data, unless that exam is finished."""
    if not sitting.over:
        size = ("--steps", steps, "--chains", sitting.chains, "--seed", sitting.seed)
        ebmlife_exam(sitting.run, sitting.out, *size, *sitting.more)


def ebmlife_exam(run: Path | str, out: Path, *options: object) -> None:
    code = ebmlife(["exam", str(run), "--out", str(out), "--start", "data", *map(str, options)])
    if code or not (out / "life-cycle.json").exists():
        raise SystemExit(code or "stopped and saved; run the same command to continue")


def at(cycle: LifeCycle, name: str, step: int) -> float:
    """The metric at that step; NaN if the chains had diverged before."""
    value = cycle.metrics[name][cycle.steps.index(step)] if step in cycle.steps else None
    return math.nan if value is None else value


def late_distance(cycle: LifeCycle) -> float:
    """The mean distance over the evaluations in the last part of the chain."""
    mean = late_average(cycle.steps, cycle.metrics["distance"]) if cycle.steps[-1] == STEPS else None
    return math.nan if mean is None else mean


def classes(cycle: LifeCycle) -> list[str]:
    """How many of the last states are a 0, a 1, ... by the classifier whose features the distance is computed in."""
    if cycle.steps[-1] < STEPS:
        return ["diverged"] * 10
    return [str(n) for n in digits_classifier()(cycle.states).argmax(1).bincount(minlength=10).tolist()]


def distances(name: str, cycle: LifeCycle) -> str:
    cells = [
        name,
        f"{cycle.settings['chains']}",
        cycle.verdict,
        f"{cycle.stable_until:,}",
        f"{at(cycle, 'distance', MIDRUN):.1f}",
        f"{late_distance(cycle):.1f}",
        "{:.0f} to {:.0f}".format(*cycle.ranges["distance"]),
    ]
    return line(cells)


def last_distance(name: str, cycle: LifeCycle) -> str:
    ratio = late_distance(cycle) / at(cycle, "distance", MIDRUN)
    return line([name, f"{at(cycle, 'distance', STEPS):.1f}", f"{ratio:.2f}"])


def pixels(name: str, cycle: LifeCycle) -> str:
    values = {metric: f"{at(cycle, metric, STEPS):.3f}" for metric in ("outside", "contrast")}
    return line([name, *(cell for metric, value in values.items() for cell in (value, within(cycle, metric)))])


def outliers(name: str, sitting: Sitting) -> dict[str, str]:
    file = sitting.out / "outliers.json"
    if not file.exists():
        return {}
    return {name: line([name, *(f"{value:.2f}" for value in json.loads(file.read_text())["auroc"].values())])}


def training(name: str, sitting: Sitting) -> str:
    recipe_hash = build.load(sitting.run).recipe.hash
    ended = divergence(sitting.run) or f"{minutes(sitting.run):.1f}"
    return line([name, f"`{sitting.recipe}`", ended, f"`{recipe_hash}`"])


def within(cycle: LifeCycle, metric: str) -> str:
    low, high = cycle.ranges[metric]
    return f"{low:.3f} to {high:.3f}"


DISTANCES = ("model", "chains", "verdict", "stable until", f"at {MIDRUN:,}", "late average", "data")
CAPTION = (
    f"Digits: `fd_digits_N` of N chains that start from data, {STEPS:,} Langevin steps, seed 0 unless stated: at "
    f"{MIDRUN:,} steps, and the mean over the four evaluations from {LATE * STEPS:,.0f}\nsteps on (late average). "
    '"Data" is the range over fifty draws of as many data. Command: `make results-density-digits`.'
)


def write_tables(known: dict[str, Sitting], cycles: dict[str, LifeCycle]) -> None:
    """Writes the rows of all finished exams; rows of other models stay as they are on the page."""
    of_models = {name: distances(name, cycle) for name, cycle in cycles.items()}
    found_outliers: dict[str, str] = {}
    for name, sitting in known.items():
        found_outliers |= outliers(name, sitting)
    counted = {name: line([name, *classes(cycle)]) for name, cycle in cycles.items()}
    blocks = {  # block: head, rows by model, text below
        "digits table": (DISTANCES, {name: of_models[name] for name in MAIN if name in cycles}, f"\n\n{CAPTION}"),
        "digits ablations": (DISTANCES, {name: of_models[name] for name in ABLATIONS if name in cycles}, ""),
        "digits others": (DISTANCES, {name: of_models[name] for name in OTHERS if name in cycles}, ""),
        "digits distances": (
            ("model", f"distance at {STEPS:,}", f"late average relative to {MIDRUN:,} steps"),
            {name: last_distance(name, cycle) for name, cycle in cycles.items()},
            "",
        ),
        "digits pixels": (
            ("model", "outside", "outside, of data", "contrast", "contrast, of data"),
            {name: pixels(name, cycle) for name, cycle in cycles.items()},
            "",
        ),
        "digits classes": (("model", *map(str, range(10))), counted, ""),
        "digits outliers": (("model", "noise", "constant", "shuffled", "blended"), found_outliers, ""),
        "digits runs": (
            ("model", "recipe", "minutes", "recipe hash"),
            {name: training(name, sitting) for name, sitting in known.items()},
            "",
        ),
    }
    for block, (head, new, after) in blocks.items():
        lines = rows(PAGE, block) | new
        replace(PAGE, block, table(head, [lines[name] for name in SITTINGS if name in lines]) + after)


def draw(cycles: dict[str, LifeCycle]) -> None:
    """Draws the curves of all EBMs, the chains of the three lengths, and those of the other models."""
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
    for metric in ("distance", "outside", "contrast"):
        lines = {name: [*cycle.metrics[metric], *[None] * len(steps)][: len(steps)] for name, cycle in cycles.items()}
        shown.append(Panel(metric, lines, longest.ranges[metric], metric == "distance"))
    return charts.panels(steps, shown, title="chains from data")


def repeated(cycles: list[LifeCycle]) -> str:
    """Distances over several trainings of one recipe; each exam starts from other data."""
    early, late_averages = [at(cycle, "distance", MIDRUN) for cycle in cycles], [late_distance(c) for c in cycles]
    ratio = interval([b / a for a, b in zip(early, late_averages, strict=True)], digits=2)
    return (
        f"Over {len(cycles)} trainings of `digits-longrun`, mean and 95 % interval (Student's t): "
        f"{interval(early, digits=1)} at {MIDRUN:,} steps,\nlate average {interval(late_averages, digits=1)}, ratio "
        f"{ratio}; the ratio of the means is {sum(late_averages) / sum(early):.2f}."
    )


def further(cycle: LifeCycle) -> str:
    steps = (MIDRUN, STEPS, LONG_STEPS)
    values = ", ".join(f"{at(cycle, 'distance', step):.1f} at {step:,} steps" for step in steps)
    low, high = cycle.ranges["distance"]
    return (
        f"The longrun model with {MILLION.chains} chains for {LONG_STEPS:,} steps: `{cycle.settings['distance']}` is "
        f"{values}\n(data: {low:.0f} to {high:.0f}). Verdict {cycle.verdict}, stable until {cycle.stable_until:,}."
    )


def divergence(folder: Path) -> str:
    """Why the training diverged; the empty string if it did not."""
    reason = folder / "diverged.txt"
    return reason.read_text().strip() if reason.exists() else ""


def make(sitting: Sitting, console: Console) -> None:
    """Trains and examines a run; a divergence is recorded as a result."""
    if not divergence(sitting.run):
        try:
            trained(sitting.run, chosen(sitting.recipe, {"seed": str(sitting.seed)}), console)
            examined(sitting)
        except Diverged as reason:
            console.print(str(reason), markup=False, highlight=False)
            (sitting.run / "diverged.txt").write_text(f"{reason}\n")


def write() -> None:
    """Writes all finished exams to the page."""
    known = {name: sitting for name, sitting in SITTINGS.items() if sitting.over or divergence(sitting.run)}
    cycles = {name: record.load(sitting.out) for name, sitting in known.items() if sitting.over}
    if cycles:
        draw(cycles)
        write_tables(known, cycles)
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
