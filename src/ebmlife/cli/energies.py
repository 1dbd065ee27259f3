"""Options of `ebmlife exam` that examine the energy itself: its basins, and whether it detects outliers."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from ebmlife import data
from ebmlife.errors import BadInput, Diverged, shown
from ebmlife.exam import Exam, LifeCycle
from ebmlife.exam.basins import MOST, basins
from ebmlife.exam.outliers import detect
from ebmlife.exam.plots import draw_basins
from ebmlife.exam.reference import random_subset
from ebmlife.plots import pictures
from ebmlife.sampling.rng import generator
from ebmlife.storage.atomic import atomic_write

OUTLIERS = 1000  # data, and as many outliers of each kind


def declare(exam: argparse.ArgumentParser) -> None:
    exam.add_argument(
        "--basins",
        action="store_true",
        help="Map the basins of the energy in which the chains end, after the exam; see --basin-depth.",
    )
    exam.add_argument(
        "--basin-depth",
        type=float,
        default=1.0,
        help="Least depth of a basin, in units of energy (default: %(default)s).",
    )
    exam.add_argument(
        "--outliers",
        action="store_true",
        help="Measure how well the energy separates data from noise and other images, after the exam.",
    )
    exam.add_argument(
        "--others",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="Folders of other images to use as outliers, with --outliers.",
    )


def check(exam: Exam, options: argparse.Namespace) -> None:
    """Raises BadInput if the options do not fit the exam."""
    subject = exam.subject
    if options.others and not options.outliers:
        raise BadInput("--others names outliers; add --outliers")
    if not (options.basins or options.outliers):
        return
    if not subject.has_energy:
        raise BadInput("--basins and --outliers need an energy, but the target has only a score")
    if options.conditional:
        raise BadInput("--basins and --outliers need an unconditional energy; omit --conditional")
    if options.outliers:
        if subject.x0.ndim != 4:
            raise BadInput(f"--outliers needs images, but the states have shape {tuple(subject.x0.shape[1:])}")
        exam.unseen()  # raises if the data cannot be found
        _load_others(options.others, subject.x0)
    if not options.basin_depth > 0:
        raise BadInput(f"--basin-depth must be above 0, got {options.basin_depth}")


def run(exam: Exam, cycle: LifeCycle, out: Path, options: argparse.Namespace) -> None:
    if options.basins:
        _map_basins(exam, cycle, out, options.basin_depth)
    if options.outliers:
        _detect_outliers(exam, out, options)


def _map_basins(exam: Exam, cycle: LifeCycle, out: Path, depth: float) -> None:
    """Maps the basins in which the chains ended."""
    if not len(cycle.states):
        print("no basins were mapped: the chains diverged")
        return
    subject = exam.subject
    step_size, x = cycle.settings["step_size"], cycle.states[:MOST].to(subject.x0.device)
    try:
        found = basins(subject.sampled_energy, x, step_size=step_size, depth=depth, clip=subject.clip)
    except Diverged as error:  # the exam itself is complete
        print(f"no basins were mapped: {error}")
        return
    pictures.save(out / "basins.png", draw_basins(found))
    with atomic_write(out / "basins.json") as unfinished:
        plain = {"depth": depth, "energies": found.energies.tolist(), "sizes": found.sizes}
        plain |= {"basin": found.basin.tolist(), "merges": [asdict(merge) for merge in found.merges]}
        unfinished.write_text(json.dumps(plain, indent=1))
    chains = f"{len(x)} chains" if len(x) == len(cycle.states) else f"{len(x)} of {len(cycle.states)} chains"
    print(f"{chains} lie in {len(found.minima)} basins; the largest hold {sorted(found.sizes)[:-6:-1]}")
    print(f"tree of basins: {shown(out / 'basins.png')}")


def _load_others(folders: list[Path], x: Tensor) -> dict[str, data.Dataset]:
    """Returns the images of other folders, at the size of the states x, by folder name."""
    channels, size, _ = x.shape[1:]
    found = {folder.name: data.folder(folder, size=size, channels=channels) for folder in folders}
    if len(found) < len(folders):
        raise BadInput(f"--others needs folders with different names, got {', '.join(map(str, folders))}; rename one")
    return found


def _detect_outliers(exam: Exam, out: Path, options: argparse.Namespace) -> None:
    """Compares the energies of data with those of outliers."""
    subject, unseen, device = exam.subject, exam.unseen(), exam.subject.x0.device
    known = next(states for states in (unseen, subject.data, subject.x0) if states is not None)
    inside = (known if isinstance(known, Tensor) else random_subset(known, OUTLIERS)).to(device)
    others = _load_others(options.others, subject.x0)
    found = detect(
        subject.sampled_energy,
        inside,
        data_noise=subject.data_noise,
        rng=generator(options.seed, "outliers"),
        others={name: random_subset(images, OUTLIERS).to(device) for name, images in others.items()},
    )
    with atomic_write(out / "outliers.json") as unfinished:
        plain = {"data": len(inside), "unseen": unseen is not None, "auroc": found}
        unfinished.write_text(json.dumps(plain, indent=1))
    print("AUROC of the energy: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
