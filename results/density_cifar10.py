"""The figures of CIFAR-10 in docs/results/density.md, by real runs: `make results-density-cifar10`. Hours on two cores.

A narrow prior and longrun energy, and the shortrun one for comparison. Stopped and called again, it goes on. Names of
models as arguments make those alone; the page says all that is there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from density_digits import RUNS, at, ebmlife_exam
from rich.console import Console
from shortrun_cifar10 import RUNS as SHORTRUN
from tables import RESULTS, replace
from training import chosen, minutes, trained

from ebmlife import build, pictures
from ebmlife.exam import LifeCycle, record
from ebmlife.exam.portrait import together
from ebmlife.exam.verdict import MIDRUN

PAGE = RESULTS / "density.md"
PRIOR = Path("runs/cifar10-prior-small")  # where its recipe's readers look for it
MODELS = {"prior": "cifar10-prior-small", "longrun": "cifar10-longrun-small", "shortrun": "cifar10-shortrun-small"}
STEPS, CHAINS = 20_000, 64
MARKS = (100, MIDRUN, 10_000, STEPS)
PLACES = {"prior": PRIOR, "longrun": RUNS / MODELS["longrun"], "shortrun": SHORTRUN / MODELS["shortrun"]}


def row(name: str, folder: Path, cycle: LifeCycle) -> str:
    recipe = build.load(folder).recipe
    cells = [name, f"`{recipe.name}`", *(f"{at(cycle, 'distance', step):.0f}" for step in MARKS)]
    cells += [f"{at(cycle, figure, STEPS):.3f}" for figure in ("outside", "contrast", "variation")]
    return "| " + " | ".join([*cells, f"{cycle.stable_until:,}", f"{minutes(folder):.0f}", f"`{recipe.hash}`"]) + " |"


def make(name: str, console: Console) -> None:
    folder = trained(PLACES[name], chosen(MODELS[name]), console)
    ebmlife_exam(folder, folder / "exam", "--steps", STEPS, "--chains", CHAINS)


def write() -> None:
    """Down what is there."""
    done = {name: folder for name, folder in PLACES.items() if (folder / "exam" / "life-cycle.json").exists()}
    if not done:
        return
    cycles = {name: record.load(folder / "exam") for name, folder in done.items()}
    some = next(iter(cycles.values()))
    ranges = ", ".join(f"{key} {low:.3g} to {high:.3g}" for key, (low, high) in some.ranges.items())
    head = ["model", "recipe", *(f"at {step:,}" for step in MARKS), "outside", "contrast", "variation"]
    head += ["stable to", "minutes", "recipe hash"]
    rows = [row(name, folder, cycles[name]) for name, folder in done.items()]
    replace(
        PAGE,
        "cifar10 table",
        f"Command: `make results-density-cifar10`. Seed 0; {CHAINS} chains from data, {STEPS:,} steps; the "
        f"distance is `{some.settings['distance']}`.\nRanges of as many data: {ranges}.\n\n"
        f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n" + "\n".join(rows),
    )
    pictures.save(PAGE.with_name("density-cifar10.png"), together(cycles))


def main(names: Sequence[str]) -> None:
    console = Console()
    for name in names or MODELS:
        make(name, console)
        write()


if __name__ == "__main__":
    main(sys.argv[1:])
