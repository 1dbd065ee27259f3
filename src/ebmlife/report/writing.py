"""From the folders of runs to one file: what the page still needs is computed and kept beside the run, then written."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ebmlife.files import whole
from ebmlife.longwalk import Progress
from ebmlife.report import life, surfaces
from ebmlife.report.gather import gather
from ebmlife.report.page import render

STEPS = 10_000  # Langevin steps of the page's own walk: enough to see shortrun and midrun models age
CHAINS = 64


def prepare(
    run: str | Path,
    *,
    steps: int = STEPS,
    chains: int = CHAINS,
    device: str = "auto",
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Computes in RUN/report what a page shows and training did not leave; False: stopped, and goes on when called."""
    if not life.walk(run, steps=steps, chains=chains, device=device, progress=progress, stopping=stopping):
        return False
    surfaces.draw(run, device=device)
    return True


def write(runs: Sequence[str | Path], file: Path) -> None:
    """The page of the runs, side by side, as one file."""
    page = render([gather(run) for run in runs])
    with whole(file) as unfinished:
        unfinished.write_text(page.html)
