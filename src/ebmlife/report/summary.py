"""Summarizes a run in words and numbers: its model, recipe, progress and cost."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebmlife.recipes.schema import EBMRecipe, Recipe, flat
from ebmlife.report.safe_files import SafeFolder
from ebmlife.runs import build
from ebmlife.storage import checkpoint

_STARTS = {
    "uniform": "noise",
    "data": "data",
    "generator": "a generator's images",
    "augmented": "their own earlier states with small changes",
    "coarse": "images of lower resolution",
}
_CHAINS = {
    "fresh": "are new at every update",
    "persistent": "are kept in a bank between updates",
    "maturing": "stay in a burn-in bank before they are used for learning",
}
_METHODS = {
    "ebm": "An energy-based model",
    "gan": "A generative adversarial network",
    "classifier": "A classifier",
    "score": "A score network",
    "flow": "A normalizing flow",
    "recovery": "A recovery likelihood model",
}
_NETWORKS = {  # where their weights are in a checkpoint
    "parameters of the energy": ("trainer/ebm/ema/", "trainer/energy/ema/"),
    "parameters of its generator": ("trainer/generator/ema/", "frozen_generator/"),
    "parameters of its discriminator": ("trainer/discriminator/ema/",),
    "parameters": ("trainer/classifier/ema/", "trainer/score/ema/", "trainer/flow/ema/"),
}


@dataclass(frozen=True)
class Fact:
    name: str
    value: str
    note: str = ""


def headline(recipe: Recipe, shape: Sequence[int] | None) -> str:
    """Returns a sentence or two about the model."""
    states = "" if not shape else "points in the plane: " if len(shape) == 1 else f"{_size(shape)} images: "
    what = f"{_METHODS[recipe.method]} of {states}{_data(recipe)}."
    if not isinstance(recipe, EBMRecipe):
        return what
    start = _STARTS.get(recipe.start.kind, recipe.start.kind)
    chains = _CHAINS.get(recipe.chains.kind, f"are of kind '{recipe.chains.kind}'")
    return f"{what} Its training chains start from {start} and {chains}."


def _data(recipe: Recipe) -> str:
    kind = recipe.data.kind
    name = recipe.data.options.get("name") or recipe.data.options.get("folder")
    return build.describe(recipe.data).title or (f"{kind} {Path(str(name)).name}" if name else kind)


def _size(shape: Sequence[int]) -> str:
    channels, height, width = shape
    return f"{height}x{width} {'gray' if channels == 1 else 'color'}"


def sizes(folder: Path) -> list[Fact]:
    """Returns the numbers of parameters of the networks in the newest checkpoint."""
    counts = {name: parameters(folder, prefixes) for name, prefixes in _NETWORKS.items()}
    return [Fact(name, _short(count)) for name, count in counts.items() if count]


def facts(recipe: Recipe, lines: Sequence[dict[str, Any]], *, saved: int, sizes: Sequence[Fact]) -> list[Fact]:
    """Returns progress, sizes, settings and cost. `saved` is the update of the newest checkpoint."""
    update = lines[-1]["update"] if lines else saved
    found = [Fact("update", f"{update:,}", f"of {recipe.updates:,}"), *sizes]
    if isinstance(recipe, EBMRecipe):
        steps = recipe.langevin.steps(max(update - 1, 0))
        found.append(Fact("Langevin steps per update", f"{steps:,.0f}", f"of size {recipe.langevin.step_size:g}"))
    if lines:
        found.append(Fact("training time", duration(seconds(lines)), "without evaluations"))
    if lines and isinstance(recipe, EBMRecipe):
        found.append(Fact("image-steps", _short(image_steps(recipe, update)), "images times Langevin steps"))
    return found


def newest(folder: Path) -> tuple[int, Path | None]:
    """Returns update and path of the newest checkpoint, or 0 and None. All of its files must be inside the run."""
    update = checkpoint.choose(folder, None)
    if update is None:
        return 0, None
    place = checkpoint.path(folder, update)
    SafeFolder(folder).tree(place)
    return update, place


def parameters(folder: Path, prefixes: tuple[str, ...]) -> int:
    """Returns the number of parameters of a network in the newest checkpoint, from the file's header."""
    _, place = newest(folder)
    if place is None:
        return 0
    shapes = checkpoint.shapes(place)
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefixes))


def states(folder: Path) -> tuple[int, ...] | None:
    """Returns the shape of a state, from the newest checkpoint."""
    _, place = newest(folder)
    if place is None:
        return None
    return build.shape_of(checkpoint.plain(place))


def seconds(lines: Sequence[dict[str, Any]]) -> float:
    """Returns the training time: the sum of 1 / speed over the logged updates."""
    speeds = (line.get("updates_per_second") or 0 for line in lines)
    return math.fsum(1 / speed for speed in speeds if 1e-9 < speed < math.inf)


def image_steps(recipe: EBMRecipe, updates: int) -> int:
    """Returns the Langevin steps of single images, summed over updates, as the chains declare them."""
    phases = recipe.langevin.steps.phases
    ends = [*(phase.from_update for phase in phases[1:]), updates]
    spans = (max(min(end, updates) - phase.from_update, 0) for phase, end in zip(phases, ends, strict=True))
    options, chains = build.CHAINS.options(recipe.chains), build.declared(recipe.chains)
    costs = (chains.cost(options, batch=recipe.batch, steps=phase.value).langevin_steps for phase in phases)
    return round(sum(cost * span for cost, span in zip(costs, spans, strict=True)))


def class_names(recipe: Recipe) -> Sequence[str]:
    """Returns the names of the data's classes, or () if they are only known by number."""
    return build.describe(recipe.data).class_names


def rows(recipe: Recipe) -> list[tuple[str, str]]:
    """Returns every field of the recipe and its value."""
    return [(name, _plain(value)) for name, value in flat(recipe.model_dump(mode="json")).items()]


def duration(length: float) -> str:
    if length < 90:
        return f"{length:.0f} s"
    return f"{length / 60:.0f} min" if length < 5400 else f"{length / 3600:.1f} h"


def today() -> str:
    return time.strftime("%-d %B %Y")


def _short(count: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,.0f}"


def _plain(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(phase, dict) for phase in value):
        return ", ".join(f"{phase['value']:g} from update {phase['from_update']:,}" for phase in value)
    return "none" if value is None else str(value)
