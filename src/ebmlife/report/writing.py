"""Writes reports: computes what the run's folder lacks, stores it there, and writes the HTML file."""

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
    """Computes what a report needs and the run's folder lacks, and stores it in RUN/report.

    Args:
        run: A run's folder, or any other name of a model, such as `zoo:digits-shortrun`.
        steps: Langevin steps of the report's own chains.
        chains: Number of those chains.
        device: Where to compute.
        trust: The functions that the model may call.
        progress: Called while the chains run.
        stopping: Whether to stop early; a later call continues.

    Returns:
        Whether it is finished.
    """
    own = locate.own(run)
    SafeFolder(own).tree(own / "report")  # nothing outside is written or continued
    requested = {"steps": steps, "chains": chains}
    if not life.walk(run, **requested, device=device, trust=trust, progress=progress, stopping=stopping):
        return False
    samples.draw(run, device=device, trust=trust)
    surfaces.draw(run, device=device, trust=trust)
    return True


def write(runs: Sequence[str | Path], file: Path) -> list[str]:
    """Writes the report on one or several runs as one HTML file.

    Args:
        runs: Folders or other names of models; `prepare` computes what their folders lack.
        file: The file to write.

    Returns:
        Notes on what had to be left out, and why.
    """
    gathered = _distinct_names([read_contents(run) for run in runs])
    page = render(gathered)
    with atomic_write(file) as unfinished:
        unfinished.write_bytes(page.encoded)
    return [f"{run.name}: {note}" if len(runs) > 1 else note for run in gathered for note in run.notes]


def _distinct_names(runs: Sequence[Contents]) -> Sequence[Contents]:
    """Uses paths as names where folders have the same name."""
    places, names = [run.place for run in runs], [run.name for run in runs]
    for place in places:
        if places.count(place) > 1:
            raise BadInput(f"{place} is given twice; give each run once")
    return [replace(run, name=run.place) if names.count(run.name) > 1 else run for run in runs]
