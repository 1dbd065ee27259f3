"""`ebmlife exam`."""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import Progress as Bar
from torch import Tensor

from ebmlife import checkpoint, pictures, places
from ebmlife.cli.parsing import Command
from ebmlife.distributed import Ranks
from ebmlife.energy import Energy
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam import LifeCycle, life_cycle, record, tree
from ebmlife.exam.basins import MOST, basins
from ebmlife.exam.life_cycle import check
from ebmlife.exam.outliers import detect
from ebmlife.exam.reference import some_of
from ebmlife.files import whole
from ebmlife.longwalk import Progress
from ebmlife.randomness import generator
from ebmlife.stopping import signals
from ebmlife.subjects import STARTS, Subject, given, is_function, trained

_ROWS = 12  # of the printed table
_CHAINS = 64
_OF_RUNS = {  # what a function decides itself, and what stands for "not asked"
    "chains": None,
    "start": None,
    "update": None,
    "raw": False,
    "device": "auto",
    "evaluation_temperature": 1.0,
}
OUTLIERS = 1000  # data, and as many of each kind that is none


def register(command: Command) -> None:
    about = "let a model's chains grow old, and say for how long they stay like the data"
    exam = command("exam", _exam, about, shared=True)
    exam.add_argument(
        "target",
        help="a run's folder, zoo:NAME, hf:user/model, or package.module:function that returns an energy and its start",
    )
    exam.add_argument("--steps", type=int, default=100_000, help="Langevin steps (default: %(default)s)")
    exam.add_argument("--chains", type=int, help=f"of a run (default: {_CHAINS})")
    exam.add_argument("--step-size", type=float, help="default: the recipe's, or 0.01")
    exam.add_argument("--start", choices=STARTS, help="of a run; default: the generator where it has one, else data")
    exam.add_argument("--out", type=Path, help="default: exam in the run's folder; called again, it goes on there")
    exam.add_argument("--seed", type=int, default=0)
    exam.add_argument("--batch", type=int, default=256, help="chains that walk together (default: %(default)s)")
    exam.add_argument(
        "--evaluation-temperature",
        type=float,
        default=1.0,
        help="divides learned and prior energy before the Gaussian term is added; the paper's authors take 1.005",
    )
    exam.add_argument("--update", type=int, help="the checkpoint; default: the newest")
    exam.add_argument("--raw", action="store_true", help="the raw weights instead of their moving average")
    exam.add_argument("--device", default="auto")
    exam.add_argument(
        "--basins",
        action="store_true",
        help="then map the energy's basins, down from where the chains ended; see --basin-depth",
    )
    exam.add_argument("--basin-depth", type=float, default=1.0, help="less deep is no basin (default: %(default)s)")
    exam.add_argument(
        "--outliers", action="store_true", help="then try how well energies tell data from noise and other images"
    )


def _exam(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.together(), ranks.leading():
        out, subject = _folder(options), _subject(options)
        _check_more(subject, options)
        step_size = subject.step_size if options.step_size is None else options.step_size
        check(subject.energy, subject.x0, subject.data, steps=options.steps, batch=options.batch)
        if not step_size > 0:
            raise BadInput(f"an exam needs a step_size above 0, got {step_size}")
        finished = _finished(out, _asked(options, subject, step_size))
    if not ranks.any(not finished):
        cycle = record.load(out)
    else:
        _say_who_rests(len(subject.x0), options.batch, ranks)
        with signals() as stop, bar(quiet=not ranks.first) as progress:
            cycle = life_cycle(
                subject.energy,
                subject.x0,
                steps=options.steps,
                step_size=step_size,
                data=subject.data,
                data_noise=subject.data_noise,
                features=subject.features,
                traced=subject.traced,
                classifier=subject.classifier,
                clip=subject.clip,
                seed=options.seed,
                batch=options.batch,
                folder=out,
                progress=progress,
                stopping=lambda: stop.wanted,
                ranks=ranks,
            )
        if not cycle.complete:
            if ranks.first:
                print(f"stopped and saved at step {checkpoint.choose(out, None)}; the same command goes on")
            return 0
        if ranks.first:
            record.save(cycle, out)
    if ranks.first:
        _show(cycle, out)
        for wanted, more in ((options.basins, _map_basins), (options.outliers, _detect)):
            if wanted:
                more(subject, cycle, out, options)
    return 0


def _asked(options: argparse.Namespace, subject: Subject, step_size: float) -> dict[str, Any]:
    asked = {"steps": options.steps, "chains": len(subject.x0), "step_size": step_size, "start": options.start}
    asked |= {"seed": options.seed, "batch": options.batch, "raw": options.raw, **subject.identity}
    return asked | {"evaluation_temperature": options.evaluation_temperature}


def _say_who_rests(chains: int, batch: int, ranks: Ranks) -> None:
    batches = -(-chains // batch)
    if ranks.first and batches < ranks.count:
        said = f"{chains} chains in batches of {batch} are work for {batches} of {ranks.count} ranks"
        print(f"note: {said}; --batch {-(-chains // ranks.count)} gives some to all", flush=True)


def _folder(options: argparse.Namespace) -> Path:
    if options.out is None and is_function(options.target):
        raise BadInput(f"--out is needed: {options.target} has no folder of its own")
    return places.own(options.target) / "exam" if options.out is None else options.out


def _subject(options: argparse.Namespace) -> Subject:
    if is_function(options.target):
        for name, kept in _OF_RUNS.items():
            if getattr(options, name) != kept:
                option = f"--{name.replace('_', '-')}"
                raise BadInput(f"{option} is of runs; {options.target} says itself what walks, and from where")
        return given(options.target, seed=options.seed)
    return trained(
        Path(options.target),
        chains=_CHAINS if options.chains is None else options.chains,
        start=options.start,
        seed=options.seed,
        update=options.update,
        averaged=not options.raw,
        evaluation_temperature=options.evaluation_temperature,
        device=options.device,
    )


def _finished(out: Path, asked: dict[str, Any]) -> bool:
    """Whether this very exam is finished in the folder; another one that is there is not touched."""
    file = out / "exam.json"
    if not file.exists():
        with whole(file) as unfinished:
            unfinished.write_text(json.dumps(asked, indent=1))
        return False
    there = json.loads(file.read_text())
    for name, value in asked.items():
        if there.get(name) != value:
            raise BadInput(f"{out} holds an exam with {name} {there.get(name)}, not {value}; choose another --out")
    return (out / "life-cycle.json").exists()


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A bar with the time left on a terminal, a line every half minute elsewhere."""
    console, spoke = Console(stderr=True, quiet=quiet), time.monotonic()
    with Bar(*Bar.get_default_columns(), console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task("Langevin steps", total=None)

        def show(progress: Progress) -> None:
            nonlocal spoke
            shown.update(task, completed=progress.step, total=progress.steps)
            if not (quiet or console.is_terminal) and time.monotonic() - spoke > 30:
                spoke = time.monotonic()
                print(f"step {progress.step}/{progress.steps}  {progress.seconds_left:.0f} s left", flush=True)

        yield show


def _check_more(subject: Subject, options: argparse.Namespace) -> None:
    """Before hours are spent."""
    if (options.basins or options.outliers) and not callable(subject.energy):
        raise BadInput("--basins and --outliers need an energy, and the target is a score alone")
    if options.outliers:
        if subject.x0.ndim != 4:
            raise BadInput(f"--outliers is for images, and these are states of shape {tuple(subject.x0.shape[1:])}")
        subject.unseen()  # whether they are there
    if not options.basin_depth > 0:
        raise BadInput(f"--basin-depth must be above 0, got {options.basin_depth}")


def _map_basins(subject: Subject, cycle: LifeCycle, out: Path, options: argparse.Namespace) -> None:
    """The basins in which the exam's chains ended."""
    if not len(cycle.states):
        print("the chains diverged: there is nothing left whose basins could be mapped")
        return
    step_size, x = cycle.settings["step_size"], cycle.states[:MOST].to(subject.x0.device)
    energy = cast(Energy, subject.energy)
    try:
        found = basins(energy, x, step_size=step_size, depth=options.basin_depth, clip=subject.clip)
    except Diverged as error:  # the exam stands
        print(f"no basins could be mapped: {error}")
        return
    pictures.save(out / "basins.png", tree.draw(found))
    with whole(out / "basins.json") as unfinished:
        plain = {"depth": options.basin_depth, "energies": found.energies.tolist(), "sizes": found.sizes}
        plain |= {"basin": found.basin.tolist(), "merges": [asdict(merge) for merge in found.merges]}
        unfinished.write_text(json.dumps(plain, indent=1))
    chains = f"{len(x)} chains" if len(x) == len(cycle.states) else f"{len(x)} of {len(cycle.states)} chains"
    print(f"{chains} lie in {len(found.minima)} basins; the largest hold {sorted(found.sizes)[:-6:-1]}")
    print(f"their tree: {out / 'basins.png'}")


def _detect(subject: Subject, cycle: LifeCycle, out: Path, options: argparse.Namespace) -> None:
    """Energies of data beside those of what is none."""
    unseen = subject.unseen()
    data = next(data for data in (unseen, subject.data, subject.x0) if data is not None)
    data = (data if isinstance(data, Tensor) else some_of(data, OUTLIERS)).to(subject.x0.device)
    rng = generator(options.seed, "outliers")
    found = detect(cast(Energy, subject.energy), data, data_noise=subject.data_noise, rng=rng)
    with whole(out / "outliers.json") as unfinished:
        plain = {"data": len(data), "unseen": unseen is not None, "auroc": found}
        unfinished.write_text(json.dumps(plain, indent=1))
    print("AUROC of the energy: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))


def _show(cycle: LifeCycle, out: Path) -> None:
    names = [name for name in cycle.figures if not name.startswith(("rhat", "ess", "energy_"))]
    print(f"{cycle.settings['chains']} chains; the distance is {cycle.settings['distance']}")
    print("".join(f"{name:>11}" for name in ("steps", *names)))
    last = len(cycle.steps) - 1
    for i in sorted({round(k * last / (_ROWS - 1)) for k in range(_ROWS)}):
        values = (cycle.figures[name][i] for name in names)
        cells = (f"{cycle.steps[i]:,}", *("-" if value is None else f"{value:.4g}" for value in values))
        print("".join(f"{cell:>11}" for cell in cells))
    print(f"verdict: {cycle.verdict}, stable until step {cycle.stable_until}")
    for reason in cycle.reasons:
        print(f"- {reason}")
    print(f"the same chains growing old: {out / 'strip.png'}")
    print(f"curves: {out / 'life-cycle.png'}\nall figures: {out / 'life-cycle.json'}")
