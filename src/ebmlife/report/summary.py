"""What a run is, in words and numbers: its model, its recipe, how far it is, what it cost."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebmlife.data.cifar import CLASSES
from ebmlife.recipes.schema import EBMRecipe, Recipe, flat
from ebmlife.report.safe_files import SafeFolder
from ebmlife.runs import build
from ebmlife.storage import checkpoint

_STARTS = {
    "uniform": "noise",
    "data": "data",
    "generator": "a generator's images",
    "augmented": "their own old states, altered a little",
    "coarse": "images of a lower resolution",
}
_CHAINS = {
    "fresh": "begin anew at every update",
    "persistent": "are kept in a bank between updates",
    "maturing": "ripen in a burn-in bank before they are learned from",
}
_METHODS = {
    "ebm": "An energy",
    "gan": "A generator, and the discriminator that it learned from,",
    "classifier": "A classifier",
    "score": "The score",
    "flow": "A normalizing flow",
    "recovery": "Energies given noisier images,",
}
_NETWORKS = {  # where their weights are in a checkpoint
    "parameters of the energy": ("trainer/ebm/ema/", "trainer/energy/ema/"),
    "of its generator": ("trainer/generator/ema/", "frozen_generator/"),
    "of the discriminator": ("trainer/discriminator/ema/",),
    "parameters": ("trainer/classifier/ema/", "trainer/score/ema/", "trainer/flow/ema/"),
}


@dataclass(frozen=True)
class Fact:
    name: str
    value: str
    note: str = ""


def headline(recipe: Recipe, shape: Sequence[int] | None) -> str:
    """What the model is, in a sentence."""
    states = "" if not shape else "points of the plane: " if len(shape) == 1 else f"{_size(shape)} images: "
    what = f"{_METHODS[recipe.method]} of {states}{_data(recipe)}."
    if not isinstance(recipe, EBMRecipe):
        return what
    start = _STARTS.get(recipe.start.kind, recipe.start.kind)
    chains = _CHAINS.get(recipe.chains.kind, f"are of the kind '{recipe.chains.kind}'")
    return f"{what} Its training chains start from {start} and {chains}."


def _data(recipe: Recipe) -> str:
    known = {"digits": "handwritten digits", "cifar10": "CIFAR-10"}
    kind = recipe.data.kind
    name = recipe.data.options.get("name") or recipe.data.options.get("folder")
    return known.get(kind) or (f"{kind} {Path(str(name)).name}" if name else kind)


def _size(shape: Sequence[int]) -> str:
    channels, height, width = shape
    return f"{height}x{width} {'grey' if channels == 1 else 'colour'}"


def sizes(folder: Path) -> list[Fact]:
    """Of the networks in the newest checkpoint."""
    counts = {name: parameters(folder, prefixes) for name, prefixes in _NETWORKS.items()}
    return [Fact(name, _short(count)) for name, count in counts.items() if count]


def facts(recipe: Recipe, lines: Sequence[dict[str, Any]], *, saved: int, sizes: Sequence[Fact]) -> list[Fact]:
    """How far, how large, how long. `saved` is the update of the newest checkpoint."""
    update = lines[-1]["update"] if lines else saved
    found = [Fact("update", f"{update:,}", f"of {recipe.updates:,}"), *sizes]
    if isinstance(recipe, EBMRecipe):
        steps = recipe.langevin.steps(max(update - 1, 0))
        found.append(Fact("Langevin steps an update", f"{steps:,.0f}", f"of size {recipe.langevin.step_size:g}"))
    if lines:
        found.append(Fact("training time", duration(seconds(lines)), "of updates alone"))
    if lines and isinstance(recipe, EBMRecipe):
        found.append(Fact("image-steps", _short(image_steps(recipe, update)), "one image, one Langevin step"))
    return found


def newest(folder: Path) -> tuple[int, Path | None]:
    """Update and place of the newest checkpoint, whose files are all inside the run; 0 and None where there is none."""
    update = checkpoint.choose(folder, None)
    if update is None:
        return 0, None
    place = checkpoint.path(folder, update)
    SafeFolder(folder).tree(place)
    return update, place


def parameters(folder: Path, prefixes: tuple[str, ...]) -> int:
    """Of a network in the newest checkpoint, from the file's header alone."""
    _, place = newest(folder)
    if place is None:
        return 0
    shapes = checkpoint.shapes(place)
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefixes))


def states(folder: Path) -> tuple[int, ...] | None:
    """The shape of a state, from the newest checkpoint."""
    _, place = newest(folder)
    if place is None:
        return None
    return build.shape_of(checkpoint.plain(place))


def seconds(lines: Sequence[dict[str, Any]]) -> float:
    """Sum of 1 / speed over the updates that were logged."""
    speeds = (line.get("updates_per_second") or 0 for line in lines)
    return math.fsum(1 / speed for speed in speeds if 1e-9 < speed < math.inf)


def image_steps(recipe: EBMRecipe, updates: int) -> int:
    """Langevin steps of single images: batch x K, summed over updates; maturing chains walk a second batch."""
    phases = recipe.langevin.steps.phases
    ends = [*(phase.from_update for phase in phases[1:]), updates]
    spans = (max(min(end, updates) - phase.from_update, 0) for phase, end in zip(phases, ends, strict=True))
    steps = sum(int(phase.value) * span for phase, span in zip(phases, spans, strict=True))
    if recipe.chains.kind != "maturing":
        return recipe.batch * steps
    burn_in = recipe.chains.options.get("burn_in_steps")
    return recipe.batch * (steps + (steps if burn_in is None else burn_in * updates))


def class_names(recipe: Recipe) -> Sequence[str]:
    """Of the data's classes; none where numbers must do."""
    return CLASSES if recipe.data.kind == "cifar10" else ()


def rows(recipe: Recipe) -> list[tuple[str, str]]:
    """Every field of the recipe."""
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
