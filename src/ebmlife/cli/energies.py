"""What `ebmlife exam` asks of an energy beside its chains' lives: its basins, and whether it tells what is no data."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import cast

from torch import Tensor

from ebmlife import data
from ebmlife.errors import BadInput, Diverged, shown
from ebmlife.exam import LifeCycle, tree
from ebmlife.exam.basins import MOST, basins
from ebmlife.exam.outliers import detect
from ebmlife.exam.reference import some_of
from ebmlife.exam.subject import Subject
from ebmlife.plots import pictures
from ebmlife.sampling.energy import Energy, is_energy
from ebmlife.sampling.rng import generator
from ebmlife.storage.atomic import atomic_write

OUTLIERS = 1000  # data, and as many of each kind that is none


def declare(exam: argparse.ArgumentParser) -> None:
    exam.add_argument(
        "--basins",
        action="store_true",
        help="then map the energy's basins, down from where the chains ended; see --basin-depth",
    )
    exam.add_argument("--basin-depth", type=float, default=1.0, help="less deep is no basin (default: %(default)s)")
    exam.add_argument(
        "--outliers", action="store_true", help="then try how well energies tell data from noise and other images"
    )
    exam.add_argument(
        "--others",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="with --outliers: folders of images that are other data",
    )


def check(subject: Subject, options: argparse.Namespace) -> None:
    """Before hours are spent."""
    if options.others and not options.outliers:
        raise BadInput("--others are outliers; add --outliers")
    if not (options.basins or options.outliers):
        return
    if not is_energy(subject.energy):
        raise BadInput("--basins and --outliers need an energy, and the target is a score alone")
    if options.conditional:
        raise BadInput("--basins and --outliers need one energy for all states; leave --conditional out")
    if options.outliers:
        if subject.x0.ndim != 4:
            raise BadInput(f"--outliers is for images, and these are states of shape {tuple(subject.x0.shape[1:])}")
        subject.unseen()  # whether they are there
        _others(options.others, subject)
    if not options.basin_depth > 0:
        raise BadInput(f"--basin-depth must be above 0, got {options.basin_depth}")


def ask(subject: Subject, cycle: LifeCycle, out: Path, options: argparse.Namespace) -> None:
    if options.basins:
        _map_basins(subject, cycle, out, options.basin_depth)
    if options.outliers:
        _detect(subject, out, options)


def _map_basins(subject: Subject, cycle: LifeCycle, out: Path, depth: float) -> None:
    """The basins in which the exam's chains ended."""
    if not len(cycle.states):
        print("the chains diverged: there is nothing left whose basins could be mapped")
        return
    step_size, x = cycle.settings["step_size"], cycle.states[:MOST].to(subject.x0.device)
    energy = cast(Energy, subject.energy)
    try:
        found = basins(energy, x, step_size=step_size, depth=depth, clip=subject.clip)
    except Diverged as error:  # the exam stands
        print(f"no basins could be mapped: {error}")
        return
    pictures.save(out / "basins.png", tree.draw(found))
    with atomic_write(out / "basins.json") as unfinished:
        plain = {"depth": depth, "energies": found.energies.tolist(), "sizes": found.sizes}
        plain |= {"basin": found.basin.tolist(), "merges": [asdict(merge) for merge in found.merges]}
        unfinished.write_text(json.dumps(plain, indent=1))
    chains = f"{len(x)} chains" if len(x) == len(cycle.states) else f"{len(x)} of {len(cycle.states)} chains"
    print(f"{chains} lie in {len(found.minima)} basins; the largest hold {sorted(found.sizes)[:-6:-1]}")
    print(f"their tree: {shown(out / 'basins.png')}")


def _others(folders: list[Path], subject: Subject) -> dict[str, data.Dataset]:
    """Other people's images, at the size of the model's, by the names of their folders."""
    channels, size, _ = subject.x0.shape[1:]
    found = {folder.name: data.folder(folder, size=size, channels=channels) for folder in folders}
    if len(found) < len(folders):
        raise BadInput(f"--others are told by their names, and two have the same: {', '.join(map(str, folders))}")
    return found


def _detect(subject: Subject, out: Path, options: argparse.Namespace) -> None:
    """Energies of data beside those of what is none."""
    unseen, device = subject.unseen(), subject.x0.device
    inside = next(states for states in (unseen, subject.data, subject.x0) if states is not None)
    inside = (inside if isinstance(inside, Tensor) else some_of(inside, OUTLIERS)).to(device)
    others = {name: some_of(images, OUTLIERS).to(device) for name, images in _others(options.others, subject).items()}
    rng, noise = generator(options.seed, "outliers"), subject.data_noise
    found = detect(cast(Energy, subject.energy), inside, data_noise=noise, rng=rng, others=others)
    with atomic_write(out / "outliers.json") as unfinished:
        plain = {"data": len(inside), "unseen": unseen is not None, "auroc": found}
        unfinished.write_text(json.dumps(plain, indent=1))
    print("AUROC of the energy: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
