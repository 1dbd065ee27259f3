"""`ebmlife demo`: train on the embedded digits, sample, and say what was made and where it lies."""

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
from ebmlife.recipe import EBMRecipe
from ebmlife.run import Outcome

SAMPLES = 100


def demo(folder: Path, console: Console) -> Outcome:
    recipe = build.resolve(recipes.get("digits-shortrun"))
    assert isinstance(recipe, EBMRecipe)
    folder = _free(folder)
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)  # as it is: paths are no markup
    say(
        f"Training {recipe.name} (recipe {recipe.hash}): an energy and a generator learn 1,797 real digits together,\n"
        f"{recipe.updates} updates of {recipe.langevin.steps(0):.0f} Langevin steps on {recipe.batch} images each."
    )
    outcome = run.begin(recipe, folder, console=console)
    if outcome.finished:
        _show(outcome, console)
        say(f"More samples: ebmlife sample {outcome.folder} --n 400 --out more.png")
    return outcome


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


def diversity(x: Tensor) -> float:
    """Mean Euclidean distance of pairs."""
    return torch.pdist(x.flatten(1)).mean().item()


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that is free."""
    folder = folder.absolute() if not folder.name else folder
    if not folder.name:
        raise BadInput(f"--out {folder} cannot be a run's folder; name a new one")
    candidates = (folder.with_name(f"{folder.name}-{i}") for i in range(2, 1_000_000))
    return folder if not folder.exists() else next(path for path in candidates if not path.exists())
