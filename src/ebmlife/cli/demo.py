"""`ebmlife demo`: shortrun, midrun and longrun models of the embedded digits, in one picture and one report."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ebmlife import recipes
from ebmlife.cli import output
from ebmlife.data import digits
from ebmlife.errors import BadInput, shown
from ebmlife.exam import diversity
from ebmlife.exam.plots import draw_cycles
from ebmlife.plots import pictures
from ebmlife.recipes.schema import EBMRecipe, as_ebm
from ebmlife.report import prepare, write
from ebmlife.report.life import read as read_life
from ebmlife.runs import build, logging, run, zoo
from ebmlife.runs.run import Outcome
from ebmlife.storage import checkpoint

SAMPLES = 100
STEPS = 10_000  # Langevin steps of the long chains: seconds, and enough to see shortrun samples degrade
LOADED = "digits-longrun"  # from the zoo: its training would take longer than the rest of the demo


def demo(folder: Path, console: Console) -> Outcome:
    """Trains two models, loads a third, and compares their chains in `folder`."""
    shortrun, midrun = (as_ebm(build.resolve(recipes.get(name))) for name in ("digits-shortrun", "digits-midrun"))
    folder = _free(folder)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)  # paths are not markup
    say(
        "This demo takes about five minutes on two cores:\n"
        f"1. Train a shortrun model: an energy and a generator learn 1,797 real digits together\n   {_work(shortrun)}\n"
        f"2. Sample {SAMPLES} new digits from it.\n"
        f"3. Train a midrun model: an energy learns from chains that start at real digits\n   {_work(midrun)}\n"
        f"4. Load a longrun model and its prior, zoo:{LOADED}, which come with the package.\n"
        f"5. Run chains of {STEPS:,} Langevin steps on all three, and write one picture and one report.\n"
    )
    outcome = run.begin(shortrun, folder / "shortrun", console=console)
    if not outcome.finished:
        return outcome
    _show(outcome, console)
    middle = run.begin(midrun, folder / "midrun", console=console)
    if not middle.finished:
        return middle
    shutil.copytree(zoo.folder(LOADED), folder / "longrun")
    _compare({name: folder / name for name in ("shortrun", "midrun", "longrun")}, folder, say)
    say(f"More samples: ebmlife sample {outcome.folder} --n 400 --out more.png")
    say(f"Open the report in a browser: {(folder / 'report.html').absolute()}")
    return outcome


def _work(recipe: EBMRecipe) -> str:
    return (
        f"({recipe.updates} updates of {recipe.langevin.steps(0):.0f} Langevin steps on {recipe.batch} images each; "
        f"recipe {recipe.name}, {recipe.hash})."
    )


def _compare(runs: dict[str, Path], folder: Path, say: Callable[[str], None]) -> None:
    """Runs long chains on all models, draws their curves and strips in one picture, and writes the report."""
    try:
        for path in runs.values():
            prepare(path, steps=STEPS)
    except BadInput as error:  # the report does not need the packages of the exam
        say(f"The report has no long chains: {error}")
    else:
        lives = {name: life.cycle for name, path in runs.items() if (life := read_life(path)) is not None}
        pictures.save(folder / "life-cycles.png", draw_cycles(lives))
        for name, cycle in lives.items():
            say(f"{name}: stable until step {cycle.stable_until:,} of {STEPS:,}; {cycle.reasons[0]}")
        say(f"Distances and chains of the three models: {folder / 'life-cycles.png'}")
    write(list(runs.values()), folder / "report.html")


def _show(outcome: Outcome, console: Console) -> None:
    folder = outcome.folder
    model = build.load(folder)
    samples = model.sample(SAMPLES, seed=1)
    output.write(folder / "samples.png", [samples], n=SAMPLES, shape=model.shape)
    files = Table("file", "path", title="Files")
    for name, path in (
        ("grid of samples", folder / "samples.png"),
        ("diagnostics", logging.draw_diagnostics(folder)),
        ("checkpoint", checkpoint.path(folder, outcome.update)),
        ("log", folder / "log.jsonl"),
    ):
        files.add_row(name, Text(shown(path), overflow="fold"))  # Text: a path is not markup
    console.print(files, _metrics(folder, samples))


def _metrics(folder: Path, samples: Tensor) -> Table:
    data = digits()
    real = data.take(torch.arange(len(data)))
    last = logging.read_log(folder / "log.jsonl")[-100:]
    classes = nearest_classes(samples, real, data.labels)
    table = Table("metric", "samples", "data", title=f"Metrics of {len(samples)} samples")
    table.add_row("mean pixel", f"{samples.mean():+.3f}", f"{real.mean():+.3f}")
    table.add_row("contrast (standard deviation)", f"{samples.std():.3f}", f"{real.std():.3f}")
    table.add_row("diversity (mean pairwise distance)", f"{diversity(samples):.2f}", f"{diversity(real):.2f}")
    table.add_row("classes, by nearest neighbor", f"{len(set(classes))} of 10", "10")
    table.add_row("samples of classes 0 to 9", " ".join(str(classes.count(k)) for k in range(10)), "")
    difference = sum(line["energy_difference"] for line in last) / len(last)
    table.add_row("energy difference, last 100 updates", f"{difference:+.3f}", "")
    return table


def nearest_classes(samples: Tensor, real: Tensor, labels: Tensor | None) -> list[int]:
    """Returns the label of each sample's nearest real image."""
    assert labels is not None
    classes: list[int] = labels[torch.cdist(samples.flatten(1), real.flatten(1)).argmin(1)].tolist()
    return classes


def _free(folder: Path) -> Path:
    """Returns the folder, or the first of folder-2, folder-3, ... that does not exist."""
    folder = folder.absolute() if not folder.name else folder
    if not folder.name:
        raise BadInput(f"--out {folder} cannot be the folder of a run; name a new one, such as runs/demo")
    candidates = (folder.with_name(f"{folder.name}-{i}") for i in range(2, 1_000_000))
    return folder if not folder.exists() else next(path for path in candidates if not path.exists())
