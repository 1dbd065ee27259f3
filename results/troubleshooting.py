"""Runs short healthy and failing trainings for docs/troubleshooting.md: `make results-troubleshooting`.

Writes the pictures and the table of the page. It takes minutes on two cores. Call it again to continue.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from tables import replace
from training import chosen, trained

from ebmlife.errors import Diverged
from ebmlife.exam import diversity
from ebmlife.plots import charts, pictures
from ebmlife.plots.correlations import correlations
from ebmlife.recipes.schema import Recipe
from ebmlife.runs import build, logging
from ebmlife.storage import checkpoint

ROOT = Path(__file__).parent.parent
RUNS, PAGE = ROOT / "runs" / "results" / "troubleshooting", ROOT / "docs" / "troubleshooting.md"
UPDATES, LAST, SAMPLES = 300, 100, 40
FEW = 20  # updates that are too few for a picture


@dataclass(frozen=True)
class Case:
    recipe: str
    changes: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        fields = "".join(f' --{name} "{value}"' for name, value in self.changes.items())
        return f"ebmlife train {self.recipe} --updates {UPDATES}{fields}"

    def resolved(self) -> Recipe:
        common = {"updates": str(UPDATES), "checkpoint.every": "50", "workers": "0"}
        return chosen(self.recipe, common | self.changes)


CASES = {
    "healthy": Case("digits-shortrun"),
    "too fast": Case("digits-shortrun", {"optimizer.learning_rate": "1e-1"}),
    "chains that stand still": Case("digits-shortrun-noise", {"langevin.steps": "2", "langevin.step_size": "0.002"}),
    "too weak a walk": Case("digits-shortrun-noise", {"langevin.step_size": "0.005"}),
    "out of step": Case(
        "digits-shortrun-coop", {"generator.net.batch_norm": "false", "generator.optimizer.learning_rate": "1e-2"}
    ),
}


def outcome(case: Case, folder: Path, console: Console) -> str:
    """Trains the run, unless it is finished, and returns how it ended."""
    try:
        trained(folder, case.resolved(), console)
    except Diverged as error:
        return str(error).partition(";")[0]
    return "finished"


def row(name: str, case: Case, console: Console) -> str:
    folder = RUNS / name.replace(" ", "-")
    ended = outcome(case, folder, console)
    lines = logging.read_log(folder / "log.jsonl")
    difference, gradient = (np.array([line[key] for line in lines]) for key in ("energy_difference", "gradient"))
    own = PAGE.parent / "troubleshooting" / folder.name
    if len(lines) >= FEW:
        pictures.save(own.with_suffix(".png"), charts.diagnostics(difference, gradient))
    data = build.DATA.make(case.resolved().data)
    spread = ""
    if checkpoint.choose(folder, None) is not None:
        samples = build.load(folder).sample(SAMPLES, seed=1)
        pictures.save(own.with_name(f"{own.name}-samples.png"), pictures.grid(samples, columns=20))
        spread = f"{diversity(samples) / diversity(data.take(torch.arange(1000))):.2f}"
    lag = correlations(difference[-LAST:], gradient[-LAST:]).difference[1]
    numbers = f"{difference[-LAST:].mean():+.3g} | {lag:+.2f} | {gradient[-LAST:].mean():.3g} | {spread}"
    return f"| {name} | {numbers} | {ended} |"


def _commands() -> str:
    """The commands as a block of code, each with its case."""
    return "\n".join(f"    {case.command}  # {name}" for name, case in CASES.items())


def main() -> None:
    console = Console()
    table = [
        "| case | energy difference | its correlation at lag 1 | gradient | diversity | ended |",
        "|---|---|---|---|---|---|",
        *(row(name, case, console) for name, case in CASES.items()),
    ]
    text = (
        f"Command: `make results-troubleshooting`. Seed 0; means over the last {LAST} updates; diversity of {SAMPLES} "
        "samples relative to data.\n\n" + "\n".join(table) + "\n\n" + _commands()
    )
    replace(PAGE, "cases", text)
    console.print("\n".join(table), markup=False, highlight=False)


if __name__ == "__main__":
    main()
