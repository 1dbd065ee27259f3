"""The record of a finished attack: its accuracies, tables, plots and example images."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.attacks.tally import NONE, Share, Tally
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.errors import BadInput
from ebmlife.plots import charts
from ebmlife.storage import checkpoint, contents, regular
from ebmlife.storage.atomic import atomic_write
from ebmlife.storage.settings import differences

_COMPARED = ("images", "threat", "radius")
_COMPARED_OF_DEFENSES = ("model", "langevin_step_size", "langevin_clip", "average")
EVALUATED_ON = "evaluated_on"  # describes the images whose fingerprint is in `images`


@dataclass(frozen=True)
class Record:
    """A finished attack, with four accuracies under attack that answer different questions.

    Attributes:
        settings: The `AttackConfig` and the settings of the defense, as plain values, with fingerprints of the model
            and the images.
        tally: Every prediction, and the adversaries.
    """

    settings: dict[str, Any]
    tally: Tally

    @property
    def natural(self) -> Share:
        """Accuracy of the defended classifier on natural images."""
        return _share(self._natural_correct)

    @property
    def _natural_correct(self) -> Tensor:
        return self.tally.natural == self.tally.labels

    @property
    def verified(self) -> Share:
        """The paper's accuracy: images that no attack step broke, as verified by the second, larger draw."""
        return self.by_step()[self.tally.attacked.shape[1] - 1]

    @property
    def final(self) -> Share:
        """Accuracy of one final evaluation of the last adversaries.

        An image whose natural version is misclassified counts as broken, here and in `averaged` and `worst`.
        """
        return _share(self._natural_correct & (self.tally.final[:, 0] == self.tally.labels))

    @property
    def averaged(self) -> Share:
        """Accuracy of the logits averaged over all final evaluations."""
        return _share(self._natural_correct & (self.tally.logits.argmax(1) == self.tally.labels))

    @property
    def worst(self) -> Share:
        """Share of the images that every final evaluation classifies correctly."""
        return _share(self._natural_correct & (self.tally.final == self.tally.labels[:, None]).all(1))

    def by_step(self) -> dict[int, Share]:
        """Returns the verified accuracy after each attack step."""
        at = self.tally.broken_at
        steps = range(self.tally.attacked.shape[1])
        return {j: _share(self._natural_correct & ((at == NONE) | (at > j))) for j in steps}

    @property
    def accuracies(self) -> dict[str, Share]:
        """All accuracies, by the name of their column in the table."""
        n = self.tally.final.shape[1]
        return {
            "natural": self.natural,
            "verified, any step": self.verified,
            "one final": self.final,
            f"{n} averaged": self.averaged,
            f"worst of {n}": self.worst,
        }

    @property
    def known_noise(self) -> bool:
        """Whether attacker and evaluations shared one draw of the noise: the accuracies hold for that draw only."""
        return str(self.settings["gradient"]).startswith("fixed")

    @property
    def cost(self) -> dict[str, int]:
        """The number of gradients, and of Langevin steps of single chains."""
        return {"gradients": self.tally.gradients, "langevin_image_steps": self.tally.image_steps}

    def summary(self) -> dict[str, Any]:
        """Returns accuracies, cost and settings as plain values for JSON."""
        shares = {name: {"value": share.value, "interval": share.interval} for name, share in self.accuracies.items()}
        return {"images": len(self.tally.labels), "accuracies": shares, "cost": self.cost, "settings": self.settings}

    def save(self, folder: Path) -> None:
        """Writes manifest.json with the summary, and state.json and tensors.safetensors with every prediction."""
        state = {"settings": self.settings, "tally": self.tally.state_dict()}
        checkpoint.save(folder, state, about={"summary": self.summary()})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Loads a record.

        Args:
            folder: The folder of an attack, or `record` in it.

        Raises:
            BadInput: The folder holds no record, or it is damaged.
        """
        inner = Path(folder) / "record"
        place = inner if inner.is_dir() else Path(folder)
        state, _ = checkpoint.load(place)
        tally = Tally.restored(state.get("tally"), place)
        settings = contents.restored(str(place), lambda: contents.part(state, "settings"))
        problem = _missing(settings)
        if problem is not None:
            raise BadInput(f"{place} cannot be used: {problem}")
        return cls(settings, tally)

    def __str__(self) -> str:
        return table({self.settings["gradient"]: self})


@dataclass(frozen=True)
class Examples:
    """Some images before and after attack and purification, with their predictions."""

    labels: Tensor  # (n,)
    natural: Tensor  # (n, C, H, W)
    attacked: Tensor
    natural_purified: Tensor  # the end of one chain from each image
    attacked_purified: Tensor
    natural_bare: Tensor  # (n,): predicted without the defense
    attacked_bare: Tensor
    natural_defended: Tensor  # (n,): predicted by the defense, as in the record
    attacked_defended: Tensor

    @classmethod
    def of(cls, record: Record, robust: DefendedClassifier, x: Tensor, *, seeds: Sequence[int]) -> Self:
        """Returns the first images of an attack.

        Args:
            record: The finished attack.
            robust: The model that was attacked.
            x: The natural images of the attack.
            seeds: A seed for the purification of each example.
        """
        n, tally = len(seeds), record.tally
        natural, attacked = x[:n], tally.adversaries[:n].to(x.device)
        return cls(
            labels=tally.labels[:n],
            natural=natural.cpu(),
            attacked=attacked.cpu(),
            natural_purified=robust.purifier(natural, seeds=seeds).cpu(),
            attacked_purified=robust.purifier(attacked, seeds=seeds).cpu(),
            natural_bare=robust.classify(natural).argmax(1).cpu(),
            attacked_bare=robust.classify(attacked).argmax(1).cpu(),
            natural_defended=tally.natural[:n],
            attacked_defended=tally.final[:n, 0],
        )

    @property
    def rows(self) -> Tensor:
        """The images (4 n, C, H, W): natural, attacked, and both of them purified."""
        return torch.cat([self.natural, self.attacked, self.natural_purified, self.attacked_purified])

    def save(self, file: Path) -> None:
        with atomic_write(file) as unfinished:
            save_file({field.name: getattr(self, field.name).contiguous() for field in fields(self)}, unfinished)

    @classmethod
    def load(cls, file: Path) -> Self:
        try:
            return cls(**load_file(regular.check(file)))
        except (OSError, TypeError, SafetensorError) as error:
            raise BadInput(f"{file} cannot be read as examples of an attack: {error}") from error


def incomparable(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns why two attacks do not fit into one table: differences in images, threat or defense; "" if they do.

    `after` are the settings of an attack on a defense. If `before` takes no Langevin step, its energy is not compared.
    """
    names = (*_COMPARED, *(_COMPARED_OF_DEFENSES if before["langevin_steps"] else ()))
    return "; ".join(differences(before, after, names))


def table(records: dict[str, Record]) -> str:
    """Returns a text table with the accuracies, their intervals and the cost of each record, and notes below it.

    Args:
        records: The records by the names of their rows.
    """
    first = next(iter(records.values()))
    rows = [["", *first.accuracies, "gradients", "Langevin image-steps"]]
    for name, record in records.items():
        costs = [f"{count:,}" for count in record.cost.values()]
        rows.append([name, *map(str, record.accuracies.values()), *costs])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *notes(record.settings for record in records.values())])


def notes(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the notes in the settings, each of them once, as lines."""
    return [f"note: {note}" for note in dict.fromkeys(each["note"] for each in settings if "note" in each)]


def plot_steps(records: dict[str, Record]) -> Image.Image:
    """Plots the verified accuracy over the attack steps.

    Args:
        records: The records by the names of their lines.
    """
    lines = {name: {j: share.value for j, share in record.by_step().items()} for name, record in records.items()}
    return charts.curves(lines, title=_title(list(records.values())), x="attack step", y="verified accuracy")


def plot_langevin_steps(records: Sequence[Record]) -> Image.Image | None:
    """Plots natural and verified accuracy against the Langevin steps of the defense (Figure lang_sweep).

    Args:
        records: Attacks on defenses with different numbers of steps.

    Returns:
        The plot, or None if all defenses have the same number of steps.
    """
    lines: dict[str, dict[int, float]] = {"natural": {}}
    for record in sorted(records, key=lambda record: int(record.settings["langevin_steps"])):
        k = record.settings["langevin_steps"]
        if k not in lines["natural"] or not record.known_noise:
            lines["natural"][k] = record.natural.value
        lines.setdefault(record.settings["gradient"], {})[k] = record.verified.value
    if len(lines["natural"]) < 2:
        return None
    return charts.curves(lines, title=_title(records), x="Langevin steps", y="accuracy")


def _title(records: Sequence[Record]) -> str:
    threats = dict.fromkeys(record.settings["threat"] for record in records)
    return f"{len(records[0].tally.labels)} images under {', '.join(threats)}"


def _missing(settings: dict[str, Any]) -> str | None:
    """Returns which of the settings that tables and reports need is missing or has the wrong type, or None."""
    needed = {"gradient": "", "threat": "", "radius": 0.0, "langevin_steps": 0}
    return contents.mismatch({name: settings.get(name) for name in needed}, needed, "settings")


def _share(right: Tensor) -> Share:
    return Share(int(right.sum()), len(right))
