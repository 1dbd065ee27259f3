"""`ebmlife demo`: train on the embedded digits, sample, let chains grow old, and show all of it on a page."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ebmlife import build, checkpoint, output, recipes, run, watch
from ebmlife.data import digits
from ebmlife.errors import BadInput
from ebmlife.exam import diversity
from ebmlife.recipe import as_ebm
from ebmlife.report import prepare, write
from ebmlife.run import Outcome

SAMPLES = 100
STEPS = 2_000  # Langevin steps of the page's chains: seconds, and enough to see them spoil


def demo(folder: Path, console: Console) -> Outcome:
    recipe = as_ebm(build.resolve(recipes.get("digits-shortrun")))
    folder = _free(folder)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)  # as it is: paths are no markup
    say(
        "What will happen, in about three minutes on two cores:\n"
        f"1. An energy and a generator learn 1,797 real digits together: {recipe.updates} updates of"
        f" {recipe.langevin.steps(0):.0f} Langevin steps\n   on {recipe.batch} images each"
        f" (recipe {recipe.name}, {recipe.hash}).\n"
        f"2. {SAMPLES} new digits are sampled.\n"
        f"3. Chains grow old for {STEPS:,} steps, and a page shows what the model is good for.\n"
    )
    outcome = run.begin(recipe, folder, console=console)
    if outcome.finished:
        _show(outcome, console)
        _write_page(folder, say)
        say(f"More samples: ebmlife sample {outcome.folder} --n 400 --out more.png")
        say(f"Open this page in a browser: {(folder / 'report.html').absolute()}")
    return outcome


def _write_page(folder: Path, say: Callable[[str], None]) -> None:
    try:
        prepare(folder, steps=STEPS)
    except BadInput as error:  # without the packages of the exam there is still a page
        say(f"No chains grow old on the page: {error}")
    write([folder], folder / "report.html")


def _show(outcome: Outcome, console: Console) -> None:
    folder = outcome.folder
    model = build.load(folder)
    samples = model.sample(SAMPLES, seed=1)
    output.write(folder / "samples.png", [samples], n=SAMPLES, shape=model.shape)
    files = Table("made", "where", title="What was made")
    for name, path in (
        ("grid of samples", folder / "samples.png"),
        ("diagnostics", watch.draw_diagnostics(folder)),
        ("checkpoint", checkpoint.path(folder, outcome.update)),
        ("log", folder / "log.jsonl"),
    ):
        files.add_row(name, Text(str(path), overflow="fold"))  # Text: a path is no markup
    console.print(files, _figures(folder, samples))


def _figures(folder: Path, samples: Tensor) -> Table:
    data = digits()
    real = data.take(torch.arange(len(data)))
    last = watch.read_log(folder / "log.jsonl")[-100:]
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
