"""The images that a model is evaluated on: the run's own data, a part of them, or any others."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Part, part
from ebmlife.runs import repeats
from ebmlife.runs.build import DATA, splits
from ebmlife.runs.model import Model
from ebmlife.sampling import fingerprint

_PROBED = 64  # images by which a data set is recognized
_OF_ONE_FOLDER = ("held_out", "train", "labels", "source")  # options that do not apply to another folder


@dataclass(frozen=True)
class Images:
    """Images that a model is evaluated on."""

    part: Part
    data: Dataset
    trained: Part  # what the model was trained on

    def spread(self, n: int) -> Tensor:
        """Returns n evenly spread rows, or all if there are fewer: images are often ordered by class."""
        return torch.linspace(0, len(self.data) - 1, min(n, len(self.data))).round().long()

    def repeated(self, rows: Tensor) -> int | None:
        """Returns how many of the rows are training images; None if this cannot be determined."""
        overlap = splits.overlap(self.trained, self.part)
        if overlap is None:
            return repeats.count(self.part, self.data, rows, self.trained)
        return len(rows) * overlap

    @cached_property
    def about(self) -> dict[str, Any]:
        """The source of the images, whether the model was trained on them, and a fingerprint, for records."""
        rows = self.spread(_PROBED)
        repeated = self.repeated(rows)
        return {
            "kind": self.part.kind,
            "split": splits.split_of(self.part),
            "images": len(self.data),
            "trained_on": None if repeated is None else repeated > 0,
            "fingerprint": fingerprint.of_tensors(self.data.take(rows), text=str(len(self.data))),
            "options": {name: value for name, value in self.part.options.items() if value is not None},
        }

    def __str__(self) -> str:
        source = next((f" {self.part.options[name]}" for name in ("folder", "shards") if name in self.part.options), "")
        seen = {True: "trained on", False: "not trained on", None: "perhaps trained on"}[self.about["trained_on"]]
        return f"{len(self.data):,} images of {self.part.kind}{source}, split {self.about['split']} ({seen})"


def choose(model: Model, changes: Mapping[str, str], split: str | None, *, tests: bool) -> Images:
    """Chooses the images that a model is evaluated on.

    Args:
        model: The model, whose recipe names its own data.
        changes: Fields `data.*` that replace those of the recipe.
        split: The name of a split, or None.
        tests: Whether, without a split, the test split is chosen where the data have one.

    Returns:
        The images, which have the shape of the model's states.
    """
    chosen = _changed(model, {name.removeprefix("data."): value for name, value in changes.items()})
    if split is not None:
        chosen = DATA.resolve(splits.choose_split(chosen, split))
    elif tests:
        chosen = DATA.resolve(splits.for_tests(chosen) or chosen)
    data: Dataset = DATA.make(chosen)
    if tuple(data.shape) != tuple(model.shape):
        raise BadInput(f"the images have the shape {tuple(data.shape)}; the model expects {tuple(model.shape)}")
    return Images(chosen, data, model.recipe.data)


def _changed(model: Model, given: Mapping[str, str]) -> Part:
    """Returns the run's data with these options. The run's own options do not apply to another kind or folder."""
    own, kind = model.recipe.data, given.get("kind", model.recipe.data.kind)
    kept = own.options if kind == own.kind else {}
    if kind == "folder" and "folder" in given:
        kept = {name: value for name, value in kept.items() if name not in _OF_ONE_FOLDER}
    options: dict[str, Any] = kept | {name: value for name, value in given.items() if name != "kind"}
    requested = part(kind, **options)
    for name, value in zip(("channels", "size"), model.shape, strict=False):
        if len(model.shape) == 3 and DATA.accepts(requested, name):
            options.setdefault(name, value)
    return DATA.resolve(part(kind, **options))
