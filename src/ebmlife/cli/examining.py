"""`ebmlife exam`."""

import argparse
from pathlib import Path
from typing import Any, cast

from ebmlife.cli import energies, images
from ebmlife.cli.parsing import Command, add_sampler_option, add_weights_options, raw_weights
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput, shown
from ebmlife.exam import Exam, ExamConfig, LifeCycle, of_function, of_run, record
from ebmlife.exam.config import DEFAULT_SAMPLER, STARTS
from ebmlife.exam.features import FEATURE_SETS
from ebmlife.exam.plots import shown_metrics
from ebmlife.exam.targets import CHAINS, STEP_SIZE, is_function
from ebmlife.runs.progress import ProgressDisplay
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import can_be_made
from ebmlife.storage.interrupt import signals
from ebmlife.storage.workspace import Layout, Workspace

_ROWS = 12  # of the printed table

_LAYOUT = Layout(
    "exam",
    file="exam.json",
    result="life-cycle.json",
    advice="choose another --out",
    described=("evaluated_on",),
    missing_agrees=True,
    defaults=(("sampler", DEFAULT_SAMPLER),),
)


def register(command: Command) -> None:
    about = "run long chains and report when samples degrade"
    exam = command("exam", _exam, about, fields="data", shared=True)
    exam.add_argument(
        "target",
        help="A run's folder, zoo:NAME, hf:user/model, or a function package.module:function that returns an energy.",
    )
    exam.add_argument(
        "--steps", type=int, default=ExamConfig.steps, help="Number of Langevin steps (default: %(default)s)."
    )
    exam.add_argument("--chains", type=int, help=f"Number of chains, for runs only (default: {CHAINS}).")
    exam.add_argument("--step-size", type=float, help=f"Langevin step size (default: the recipe's, or {STEP_SIZE}).")
    add_sampler_option(exam)
    exam.add_argument(
        "--start",
        choices=STARTS,
        help="Where chains start, for runs only (default: the generator if the run has one, else data).",
    )
    exam.add_argument(
        "--out",
        type=Path,
        help="Folder of the results (default: exam in the run's folder). The same command resumes a stopped exam.",
    )
    exam.add_argument(
        "--seed", type=int, default=ExamConfig.seed, help="Seed of all random streams (default: %(default)s)."
    )
    exam.add_argument(
        "--batch", type=int, default=ExamConfig.batch, help="Number of chains that run together (default: %(default)s)."
    )
    exam.add_argument(
        "--evaluation-temperature",
        type=float,
        default=ExamConfig.evaluation_temperature,
        help="Divisor of the learned and prior energy, not of the Gaussian term (the authors use 1.005 or 1.01).",
    )
    exam.add_argument("--update", type=int, help="Update of the checkpoint to examine (default: the newest).")
    add_weights_options(exam)
    exam.add_argument("--device", default="auto", help="Device of the model (default: %(default)s).")
    exam.add_argument(
        "--features",
        choices=tuple(FEATURE_SETS),
        help="Features that distances are measured in (default: digits, mnist or fid for runs, moments for functions).",
    )
    exam.add_argument(
        "--classifier",
        help="Classifier whose classes are followed, named as for `ebmlife attack`, or none "
        "(default: a small classifier of digits or MNIST for runs on them).",
    )
    exam.add_argument(
        "--conditional",
        action="store_true",
        help="Condition each chain on a noisier image of its start, as in training (recovery likelihood only).",
    )
    images.declare(exam, default="what the model was trained on")
    energies.declare(exam)


def _exam(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all(), ranks.rank0_first():
        exam = _prepare(options, changes)
        energies.check(exam, options)
        requested, out = exam.settings, cast(Path, exam.folder)
        can_be_made(out)
        work = Workspace(out, requested | exam.about, _LAYOUT)
        finished = _finished(work)
    if not ranks.any(not finished):
        cycle = record.load(out)
    else:
        _note_idle_ranks(len(exam.subject.x0), options.batch, ranks)
        with (
            signals() as stop,
            ProgressDisplay("Langevin steps", quiet=not ranks.first) as display,
            ranks.on_rank0(work.open()),
        ):
            cycle = exam.run(
                progress=lambda walked: display.advance(walked.step, walked.steps),
                stopping=lambda: stop.requested,
                ranks=ranks,
            )
        if not cycle.complete:
            if ranks.first:
                print(f"stopped and saved at step {checkpoint.choose(out, None)}; the same command resumes it")
            return 0
        if ranks.first:
            record.save(cycle, out)
    if ranks.first:
        _show(cycle, out)
        energies.run(exam, cycle, out, options)
    return 0


def _prepare(options: argparse.Namespace, changes: dict[str, str]) -> Exam:
    config = ExamConfig(
        steps=options.steps,
        chains=options.chains,
        step_size=options.step_size,
        start=options.start,
        seed=options.seed,
        batch=options.batch,
        raw=raw_weights(options),
        evaluation_temperature=options.evaluation_temperature,
        features=options.features,
        classifier=options.classifier,
        conditional=options.conditional,
        sampler=options.sampler,
    )
    if not is_function(options.target):
        return of_run(
            options.target,
            config,
            update=options.update,
            data=changes,
            split=options.split,
            folder=options.out,
            device=options.device,
            trust_code=options.trust,
        )
    if options.out is None:
        raise BadInput(f"--out is needed: {options.target} has no folder of its own")
    device = None if options.device == "auto" else options.device
    for name, value in {"update": options.update, "device": device, "split": options.split, **changes}.items():
        if value is not None:
            raise BadInput(f"--{name} is only for runs; {options.target} returns the energy and the data itself")
    return of_function(options.target, config, folder=options.out, trust_code=options.trust)


def _note_idle_ranks(chains: int, batch: int, ranks: Ranks) -> None:
    batches = -(-chains // batch)
    if ranks.first and batches < ranks.count:
        used = f"{chains} chains in batches of {batch} are work for {batches} of {ranks.count} ranks"
        print(f"note: {used}; use --batch {-(-chains // ranks.count)} to use all of them", flush=True)


def _finished(work: Workspace) -> bool:
    """Whether the folder holds the result of this exam. Raises BadInput if it holds something else."""
    if (work.folder / "recipe.json").exists():
        raise BadInput(f"{work.folder} is the folder of a run; choose another --out, such as {work.folder / 'exam'}")
    return work.finished()


def _sampler_line(sampler: dict[str, Any]) -> str:
    """Returns what the sampler measured, in one line."""
    numbers = {name.replace("_", " "): value for name, value in sampler.items() if name != "name"}
    lists = {name: value if isinstance(value, list) else [value] for name, value in numbers.items()}
    words = [f"{name} {', '.join(f'{value:.3g}' for value in values)}" for name, values in lists.items()]
    return f"sampler {sampler['name']}: {'; '.join(words)}"


def _show(cycle: LifeCycle, out: Path) -> None:
    names = shown_metrics(cycle)
    print(f"{cycle.settings['chains']} chains; the distance is {cycle.settings['distance']}")
    if "sampler" in cycle.settings:
        print(_sampler_line(cycle.settings["sampler"]))
    print("".join(f"{name:>11}" for name in ("steps", *names)))
    last = len(cycle.steps) - 1
    for i in sorted({round(k * last / (_ROWS - 1)) for k in range(_ROWS)}):
        values = (cycle.metrics[name][i] for name in names)
        cells = (f"{cycle.steps[i]:,}", *("-" if value is None else f"{value:.4g}" for value in values))
        print("".join(f"{cell:>11}" for cell in cells))
    print(f"verdict: {cycle.verdict}, stable until step {cycle.stable_until}")
    for reason in cycle.reasons:
        print(f"- {reason}")
    print(f"the same chains over the steps: {shown(out / 'strip.png')}")
    print(f"curves: {shown(out / 'life-cycle.png')}\nall metrics: {shown(out / 'life-cycle.json')}")
