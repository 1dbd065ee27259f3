"""From the folders of runs to one file: what the page still needs is computed and kept beside the run, then written."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.report import life, samples, surfaces
from ebmlife.report.contents import Contents, read_contents
from ebmlife.report.page import render
from ebmlife.report.safe_files import SafeFolder
from ebmlife.runs import locate
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.long_run import Progress
from ebmlife.storage.atomic import atomic_write


def prepare(
    run: str | Path,
    *,
    steps: int | None = None,
    chains: int | None = None,
    device: str = "auto",
    trust: Trust = NOTHING,
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Computes in RUN/report what a page shows and training did not leave; False: stopped, and goes on when called."""
    own = locate.own(run)
    SafeFolder(own).tree(own / "report")  # nothing is written or gone on with elsewhere
    asked = {"steps": steps, "chains": chains}
    if not life.walk(run, **asked, device=device, trust=trust, progress=progress, stopping=stopping):
        return False
    samples.draw(run, device=device, trust=trust)
    surfaces.draw(run, device=device, trust=trust)
    return True


def write(runs: Sequence[str | Path], file: Path) -> list[str]:
    """Writes the page of the runs, side by side, as one file, and returns notes of what had to be left out."""
    gathered = _told_apart([read_contents(run) for run in runs])
    page = render(gathered)
    with atomic_write(file) as unfinished:
        unfinished.write_bytes(page.encoded)
    return [f"{run.name}: {note}" if len(runs) > 1 else note for run in gathered for note in run.notes]


def _told_apart(runs: Sequence[Contents]) -> Sequence[Contents]:
    """Runs whose folders have the same name are called by their paths."""
    locate, names = [run.place for run in runs], [run.name for run in runs]
    for place in locate:
        if locate.count(place) > 1:
            raise BadInput(f"{place} is named twice; name each run once")
    return [replace(run, name=run.place) if names.count(run.name) > 1 else run for run in runs]
