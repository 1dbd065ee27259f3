"""Measures CIFAR-10 in docs/results/density.md: `make results-density-cifar10`. Hours on two cores.

Trains a narrow prior and longrun energy; the shortrun energy of the zoo is examined for comparison. Call it again to
continue. Arguments choose some of the models; the page shows all that are finished.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from density_digits import RUNS, at, ebmlife_exam
from rich.console import Console
from tables import RESULTS, line, replace, rows, table
from training import chosen, minutes, trained

from ebmlife.exam import LifeCycle, record
from ebmlife.exam.plots import draw_cycles
from ebmlife.exam.verdict import MIDRUN
from ebmlife.plots import pictures
from ebmlife.runs import build

PAGE = RESULTS / "density.md"
MODELS = {
    "prior": "runs/cifar10-prior-small",  # where the longrun recipe looks for its prior
    "longrun": f"{RUNS}/cifar10-longrun-small",
    "shortrun": "zoo:cifar10-shortrun-small",
}
LOADED = "zoo:"
STEPS, CHAINS = 20_000, 64
MARKS = (100, MIDRUN, 10_000, STEPS)
PIXELS = ("outside", "contrast", "variation", "diversity")


def place(name: str) -> Path:
    return RUNS / f"cifar10-{name}-exam"


def distances(name: str, cycle: LifeCycle) -> str:
    cells = [name, f"{cycle.stable_until:,}", *(f"{at(cycle, 'distance', step):.0f}" for step in MARKS)]
    return line(cells)


def pixels(name: str, cycle: LifeCycle) -> str:
    return line([name, *(f"{at(cycle, metric, STEPS):.3f}" for metric in PIXELS)])


def training(name: str) -> str:
    run = MODELS[name]
    recipe = build.load(run).recipe
    trained_for = "from the zoo" if run.startswith(LOADED) else f"{minutes(Path(run)):.0f}"
    return line([name, f"`{recipe.name}`", trained_for, f"`{recipe.hash}`"])


def make(name: str, console: Console) -> None:
    run = MODELS[name]
    if not run.startswith(LOADED):
        trained(Path(run), chosen(Path(run).name), console)
    ebmlife_exam(run, place(name), "--steps", STEPS, "--chains", CHAINS)


def write() -> None:
    """Writes the rows of all finished exams; rows of other models stay as they are on the page."""
    cycles = {name: record.load(place(name)) for name in MODELS if (place(name) / "life-cycle.json").exists()}
    if not cycles:
        return
    some = next(iter(cycles.values()))
    ranges = {metric: f"{low:.3g} to {high:.3g}" for metric, (low, high) in some.ranges.items()}
    caption = (
        f"CIFAR-10, `{some.settings['distance']}` over the Langevin steps; {CHAINS} chains from data, {STEPS:,} steps, "
        f"seed 0. As many data are at {ranges['distance']}. Command: `make results-density-cifar10`."
    )
    blocks = {
        "cifar10 table": (
            ["model", "stable until", *(f"at {step:,}" for step in MARKS)],
            {name: distances(name, cycle) for name, cycle in cycles.items()},
            f"\n\n{caption}",
        ),
        "cifar10 pixels": (
            ["model", *PIXELS],
            {name: pixels(name, cycle) for name, cycle in cycles.items()},
            "\n" + line(["range of as many data", *(ranges[metric] for metric in PIXELS)]),
        ),
        "cifar10 runs": (["model", "recipe", "minutes", "recipe hash"], {name: training(name) for name in cycles}, ""),
    }
    for block, (head, new, after) in blocks.items():
        lines = rows(PAGE, block) | new
        replace(PAGE, block, table(head, [lines[name] for name in MODELS if name in lines]) + after)
    some_only = "" if len(cycles) == len(MODELS) else f"-{'-'.join(cycles)}"  # beside the picture of others
    pictures.save(PAGE.with_name(f"density-cifar10{some_only}.png"), draw_cycles(cycles))


def main(names: Sequence[str]) -> None:
    console = Console()
    for name in names or MODELS:
        make(name, console)
        write()


if __name__ == "__main__":
    main(sys.argv[1:])
