"""`ebmlife exam`."""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import Progress as Bar

from ebmlife.cli import energies, images
from ebmlife.cli.parsing import Command, add_weights_options, raw_weights
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput, shown
from ebmlife.exam import LifeCycle, life_cycle, record
from ebmlife.exam.cycle import check
from ebmlife.exam.subject import FEATURES, STARTS, Subject, find_classifier, find_features, given, is_function, trained
from ebmlife.runs import locate
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.long_run import Progress
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import can_be_made
from ebmlife.storage.interrupt import signals
from ebmlife.storage.workspace import Layout, Workspace

_ROWS = 12  # of the printed table
_CHAINS = 64
_LAYOUT = Layout(
    "exam",
    file="exam.json",
    result="life-cycle.json",
    remedy="choose another --out",
    described=("evaluated_on",),
    missing_agrees=True,
)
_LARGEST_STEP = 1e6  # far beyond any use, and within float32
_OF_RUNS = {  # what a function decides itself, and what stands for "not asked"
    "chains": None,
    "start": None,
    "update": None,
    "raw": False,
    "as_authors": False,
    "device": "auto",
    "evaluation_temperature": 1.0,
    "conditional": False,
    "split": None,
}


def register(command: Command) -> None:
    about = "let a model's chains grow old, and say for how long they stay like the data"
    exam = command("exam", _exam, about, fields="data", shared=True)
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
        help="divides learned and prior energy, not the Gaussian term; the paper's authors take 1.005 or 1.01",
    )
    exam.add_argument("--update", type=int, help="the checkpoint; default: the newest")
    add_weights_options(exam)
    exam.add_argument("--device", default="auto")
    exam.add_argument(
        "--features",
        choices=FEATURES,
        help="what distances to the data are taken in; default: digits or fid of runs, moments of functions",
    )
    exam.add_argument(
        "--classifier",
        help="whose classes are followed, by any name that attack takes; default: that of digits, where they are",
    )
    exam.add_argument(
        "--conditional",
        action="store_true",
        help="of recovery likelihood: every chain is given a noisier image of its start, as in training",
    )
    images.declare(exam, default="what was trained on")
    energies.declare(exam)


def _exam(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all(), ranks.rank0_first():
        out = _folder(options)
        can_be_made(out)
        subject = _subject(options, changes)
        energies.check(subject, options)
        step_size = subject.step_size if options.step_size is None else options.step_size
        check(subject.energy, subject.x0, subject.data, steps=options.steps, batch=options.batch)
        if not 0 < step_size < _LARGEST_STEP:
            raise BadInput(f"an exam needs a step_size above 0 and below {_LARGEST_STEP:g}, got {step_size}")
        features, traced = find_features(subject.features, tuple(subject.x0.shape[1:]))
        asked = _asked(options, subject, step_size) | _said(subject.evaluated_on)
        work = Workspace(out, asked, _LAYOUT)
        finished = _finished(work)
    if not ranks.any(not finished):
        cycle = record.load(out)
    else:
        _say_who_rests(len(subject.x0), options.batch, ranks)
        with signals() as stop, bar(quiet=not ranks.first) as progress, ranks.on_rank0(work.open()):
            cycle = life_cycle(
                subject.energy,
                subject.x0,
                steps=options.steps,
                step_size=step_size,
                data=subject.data,
                data_noise=subject.data_noise,
                features=features,
                traced=traced,
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
            record.save(replace(cycle, settings=cycle.settings | _said(subject.evaluated_on)), out)
    if ranks.first:
        _show(cycle, out)
        energies.ask(subject, cycle, out, options)
    return 0


def _asked(options: argparse.Namespace, subject: Subject, step_size: float) -> dict[str, Any]:
    asked = {"steps": options.steps, "chains": len(subject.x0), "step_size": step_size, "start": options.start}
    asked |= {"seed": options.seed, "batch": options.batch, "raw": raw_weights(options), **subject.identity}
    if subject.evaluated_on is not None:  # a folder of data may have moved: they are known by what they are
        asked |= {name: subject.evaluated_on[name] for name in ("split", "fingerprint")}
    asked["slope"] = fingerprint.of_gradient(cast(Energy, subject.energy), subject.x0[: options.batch])
    said = {"features": options.features, "classifier": options.classifier, "conditional": options.conditional or None}
    return asked | {"evaluation_temperature": options.evaluation_temperature, **said}


def _said(evaluated_on: dict[str, Any] | None) -> dict[str, Any]:
    return {} if evaluated_on is None else {"evaluated_on": evaluated_on}


def _say_who_rests(chains: int, batch: int, ranks: Ranks) -> None:
    batches = -(-chains // batch)
    if ranks.first and batches < ranks.count:
        said = f"{chains} chains in batches of {batch} are work for {batches} of {ranks.count} ranks"
        print(f"note: {said}; --batch {-(-chains // ranks.count)} gives some to all", flush=True)


def _folder(options: argparse.Namespace) -> Path:
    if options.out is None and is_function(options.target):
        raise BadInput(f"--out is needed: {options.target} has no folder of its own")
    return locate.own(options.target) / "exam" if options.out is None else options.out


def _subject(options: argparse.Namespace, changes: dict[str, str]) -> Subject:
    subject = _whole_subject(options, changes)
    if options.features is not None:
        subject = replace(subject, features=options.features)
    if options.classifier is not None:
        subject = replace(subject, classifier=find_classifier(options.classifier, subject.x0, trust=options.trust))
    return subject


def _whole_subject(options: argparse.Namespace, changes: dict[str, str]) -> Subject:
    if is_function(options.target):
        if changes:
            raise BadInput(f"--{next(iter(changes))} is of runs; {options.target} returns the data itself")
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
        averaged=not raw_weights(options),
        evaluation_temperature=options.evaluation_temperature,
        conditional=options.conditional,
        device=options.device,
        data=changes,
        split=options.split,
        trust_code=options.trust,
    )


def _finished(work: Workspace) -> bool:
    """Whether the folder holds the result of this exam; BadInput if it holds something else."""
    if (work.folder / "recipe.json").exists():
        raise BadInput(f"{work.folder} is the folder of a run; choose another --out, such as {work.folder / 'exam'}")
    return work.finished()


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
    print(f"the same chains growing old: {shown(out / 'strip.png')}")
    print(f"curves: {shown(out / 'life-cycle.png')}\nall figures: {shown(out / 'life-cycle.json')}")
