"""The figures of CIFAR-10 in docs/results/density.md, by real runs: `make results-density-cifar10`. Hours on two cores.

A narrow prior and longrun energy are trained; the shortrun energy of the zoo is there for comparison. Stopped and
called again, it goes on. Names of models as arguments make those alone; the page says all that is there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from density_digits import RUNS, at, ebmlife_exam
from rich.console import Console
from tables import RESULTS, replace, rows
from training import chosen, minutes, trained

from ebmlife.exam import LifeCycle, record
from ebmlife.exam.plots import draw_cycles
from ebmlife.exam.verdict import MIDRUN
from ebmlife.plots import pictures
from ebmlife.runs import build

PAGE = RESULTS / "density.md"
MODELS = {
    "prior": "runs/cifar10-prior-small",  # where its recipe's readers look for it
    "longrun": f"{RUNS}/cifar10-longrun-small",
    "shortrun": "zoo:cifar10-shortrun-small",
}
LOADED = "zoo:"
STEPS, CHAINS = 20_000, 64
MARKS = (100, MIDRUN, 10_000, STEPS)


def place(name: str) -> Path:
    return RUNS / f"cifar10-{name}-exam"


def row(name: str, cycle: LifeCycle) -> str:
    run = MODELS[name]
    recipe = build.load(run).recipe
    cells = [name, f"`{recipe.name}`", *(f"{at(cycle, 'distance', step):.0f}" for step in MARKS)]
    cells += [f"{at(cycle, figure, STEPS):.3f}" for figure in ("outside", "contrast", "variation", "diversity")]
    trained_for = "of the zoo" if run.startswith(LOADED) else f"{minutes(Path(run)):.0f}"
    return "| " + " | ".join([*cells, f"{cycle.stable_until:,}", trained_for, f"`{recipe.hash}`"]) + " |"


def make(name: str, console: Console) -> None:
    run = MODELS[name]
    if not run.startswith(LOADED):
        trained(Path(run), chosen(Path(run).name), console)
    ebmlife_exam(run, place(name), "--steps", STEPS, "--chains", CHAINS)


def write() -> None:
    """Down what is there."""
    cycles = {name: record.load(place(name)) for name in MODELS if (place(name) / "life-cycle.json").exists()}
    if not cycles:
        return
    some = next(iter(cycles.values()))
    ranges = ", ".join(f"{key} {low:.3g} to {high:.3g}" for key, (low, high) in some.ranges.items())
    head = ["model", "recipe", *(f"at {step:,}" for step in MARKS), "outside", "contrast", "variation", "diversity"]
    head += ["stable to", "minutes", "recipe hash"]
    lines = rows(PAGE, "cifar10 table") | {name: row(name, cycle) for name, cycle in cycles.items()}
    replace(
        PAGE,
        "cifar10 table",
        f"Command: `make results-density-cifar10`. Seed 0; {CHAINS} chains from data, {STEPS:,} steps; the "
        f"distance is `{some.settings['distance']}`.\nRanges of as many data: {ranges}.\n\n"
        f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n" + "\n".join(lines[name] for name in MODELS if name in lines),
    )
    some_only = "" if len(cycles) == len(MODELS) else f"-{'-'.join(cycles)}"  # beside the picture of others
    pictures.save(PAGE.with_name(f"density-cifar10{some_only}.png"), draw_cycles(cycles))


def main(names: Sequence[str]) -> None:
    console = Console()
    for name in names or MODELS:
        make(name, console)
        write()


if __name__ == "__main__":
    main(sys.argv[1:])
