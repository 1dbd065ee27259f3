"""`ebmlife demo`: the three lengths of chain on the embedded digits, on one picture and on a page."""

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
STEPS = 10_000  # Langevin steps of the chains that grow old: seconds, and enough to see shortrun ones spoil
LOADED = "digits-longrun"  # of the zoo: its own training takes longer than all of the demo


def demo(folder: Path, console: Console) -> Outcome:
    shortrun, midrun = (as_ebm(build.resolve(recipes.get(name))) for name in ("digits-shortrun", "digits-midrun"))
    folder = _free(folder)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)  # as it is: paths are no markup
    say(
        "What will happen, in about five minutes on two cores:\n"
        f"1. Shortrun, trained here: an energy and a generator learn 1,797 real digits together\n   {_work(shortrun)}\n"
        f"2. {SAMPLES} new digits are sampled from them.\n"
        f"3. Midrun, trained here: an energy learns from chains that begin at digits\n   {_work(midrun)}\n"
        f"4. Longrun, loaded: zoo:{LOADED} with its prior comes with the package.\n"
        f"5. The chains of all three grow old for {STEPS:,} steps, on one picture and on a page.\n"
    )
    outcome = run.begin(shortrun, folder / "shortrun", console=console)
    if not outcome.finished:
        return outcome
    _show(outcome, console)
    middle = run.begin(midrun, folder / "midrun", console=console)
    if not middle.finished:
        return middle
    shutil.copytree(zoo.folder(LOADED), folder / "longrun")
    _grow_old({name: folder / name for name in ("shortrun", "midrun", "longrun")}, folder, say)
    say(f"More samples: ebmlife sample {outcome.folder} --n 400 --out more.png")
    say(f"Open this page in a browser: {(folder / 'report.html').absolute()}")
    return outcome


def _work(recipe: EBMRecipe) -> str:
    return (
        f"({recipe.updates} updates of {recipe.langevin.steps(0):.0f} Langevin steps on {recipe.batch} images each; "
        f"recipe {recipe.name}, {recipe.hash})."
    )


def _grow_old(runs: dict[str, Path], folder: Path, say: Callable[[str], None]) -> None:
    """Three lives: a curve and a strip each on one picture, and all of it on the page."""
    try:
        for path in runs.values():
            prepare(path, steps=STEPS)
    except BadInput as error:  # without the packages of the exam there is still a page
        say(f"No chains grow old on the page: {error}")
    else:
        lives = {name: life.cycle for name, path in runs.items() if (life := read_life(path)) is not None}
        pictures.save(folder / "life-cycles.png", draw_cycles(lives))
        for name, cycle in lives.items():
            say(f"{name}: stable until step {cycle.stable_until:,} of {STEPS:,}; {cycle.reasons[0]}")
        say(f"Three lives, their curves and their chains: {folder / 'life-cycles.png'}")
    write(list(runs.values()), folder / "report.html")


def _show(outcome: Outcome, console: Console) -> None:
    folder = outcome.folder
    model = build.load(folder)
    samples = model.sample(SAMPLES, seed=1)
    output.write(folder / "samples.png", [samples], n=SAMPLES, shape=model.shape)
    files = Table("made", "where", title="What was made")
    for name, path in (
        ("grid of samples", folder / "samples.png"),
        ("diagnostics", logging.draw_diagnostics(folder)),
        ("checkpoint", checkpoint.path(folder, outcome.update)),
        ("log", folder / "log.jsonl"),
    ):
        files.add_row(name, Text(shown(path), overflow="fold"))  # Text: a path is no markup
    console.print(files, _figures(folder, samples))


def _figures(folder: Path, samples: Tensor) -> Table:
    data = digits()
    real = data.take(torch.arange(len(data)))
    last = logging.read_log(folder / "log.jsonl")[-100:]
    kinds = nearest_kinds(samples, real, data.labels)
    table = Table("figure", "samples", "data", title=f"Figures of {len(samples)} samples")
    table.add_row("mean pixel", f"{samples.mean():+.3f}", f"{real.mean():+.3f}")
    table.add_row("contrast (standard deviation)", f"{samples.std():.3f}", f"{real.std():.3f}")
    table.add_row("diversity (mean distance of pairs)", f"{diversity(samples):.2f}", f"{diversity(real):.2f}")
    table.add_row("kinds of digit, by nearest neighbour", f"{len(set(kinds))} of 10", "10")
    table.add_row("of each kind, 0 to 9", " ".join(str(kinds.count(k)) for k in range(10)), "")
    difference = sum(line["energy_difference"] for line in last) / len(last)
    table.add_row("energy difference, last 100 updates", f"{difference:+.3f}", "")
    return table


def nearest_kinds(samples: Tensor, real: Tensor, labels: Tensor | None) -> list[int]:
    """The label of each sample's nearest real image."""
    assert labels is not None
    kinds: list[int] = labels[torch.cdist(samples.flatten(1), real.flatten(1)).argmin(1)].tolist()
    return kinds


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that is free."""
    folder = folder.absolute() if not folder.name else folder
    if not folder.name:
        raise BadInput(f"--out {folder} cannot be a run's folder; name a new one")
    candidates = (folder.with_name(f"{folder.name}-{i}") for i in range(2, 1_000_000))
    return folder if not folder.exists() else next(path for path in candidates if not path.exists())
