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
from ebmlife.plots import pictures
from ebmlife.storage import checkpoint, contents, regular
from ebmlife.storage.atomic import atomic_write

_ATTACKED = ("images", "threat", "radius")
_WALKED = ("model", "langevin_step_size", "langevin_clip", "average")
EVALUATED_ON = "evaluated_on"  # describes the images, which `images` is the fingerprint of


@dataclass(frozen=True)
class Record:
    """A finished attack. Its accuracies are four different things and never one."""

    settings: dict[str, Any]
    tally: Tally

    @property
    def natural(self) -> Share:
        """Of the defended classifier on natural images."""
        return _share(self._at_first)

    @property
    def _at_first(self) -> Tensor:
        return self.tally.natural == self.tally.labels

    @property
    def verified(self) -> Share:
        """The paper's: images for which no step's break was confirmed by the second, larger draw."""
        return self.by_step()[self.tally.attacked.shape[1] - 1]

    @property
    def final(self) -> Share:
        """Of one evaluation of the last adversaries. An image that was wrong at first is broken, here and below."""
        return _share(self._at_first & (self.tally.final[:, 0] == self.tally.labels))

    @property
    def averaged(self) -> Share:
        """Of the prediction from all final evaluations' logits averaged."""
        return _share(self._at_first & (self.tally.logits.argmax(1) == self.tally.labels))

    @property
    def worst(self) -> Share:
        """Of images that every one of the final evaluations gets right."""
        return _share(self._at_first & (self.tally.final == self.tally.labels[:, None]).all(1))

    def by_step(self) -> dict[int, Share]:
        """Verified accuracy after each step: right at first, and not broken up to there."""
        at = self.tally.broken_at
        return {j: _share(self._at_first & ((at == NONE) | (at > j))) for j in range(self.tally.attacked.shape[1])}

    @property
    def accuracies(self) -> dict[str, Share]:
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
        """Whether attacker and evaluations had one draw, of the attack's replicas: its accuracies are of that draw."""
        return str(self.settings["gradient"]).startswith("fixed")

    @property
    def cost(self) -> dict[str, int]:
        return {"gradients": self.tally.gradients, "langevin_image_steps": self.tally.image_steps}

    def summary(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        shares = {name: {"value": share.value, "interval": share.interval} for name, share in self.accuracies.items()}
        return {"images": len(self.tally.labels), "accuracies": shares, "cost": self.cost, "settings": self.settings}

    def save(self, folder: Path) -> None:
        """manifest.json with the summary, state.json and tensors.safetensors with every prediction."""
        state = {"settings": self.settings, "tally": self.tally.state_dict()}
        checkpoint.save(folder, state, about={"summary": self.summary()})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """From the folder of an attack, or from `record` in it."""
        inner = Path(folder) / "record"
        place = inner if inner.is_dir() else Path(folder)
        state, _ = checkpoint.load(place)
        tally = Tally.restored(state.get("tally"), place)
        settings = contents.restored(str(place), lambda: contents.part(state, "settings"))
        said = _missing(settings)
        if said is not None:
            raise BadInput(f"{place} cannot be used: {said}")
        return cls(settings, tally)

    def __str__(self) -> str:
        return table({self.settings["gradient"]: self})


@dataclass(frozen=True)
class Examples:
    labels: Tensor  # (n,)
    natural: Tensor  # (n, C, H, W)
    attacked: Tensor
    natural_purified: Tensor  # one chain from each, of those that the defence averages over
    attacked_purified: Tensor
    natural_bare: Tensor  # (n,): predicted by the classifier alone
    attacked_bare: Tensor
    natural_defended: Tensor  # (n,): predicted by the defence, as the record has it
    attacked_defended: Tensor

    @classmethod
    def of(cls, record: Record, robust: DefendedClassifier, x: Tensor, *, seeds: Sequence[int]) -> Self:
        """The first images of an attack, one for each seed of a purification; x are the natural ones."""
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
        """(4 n, C, H, W): natural images, their adversaries, and both purified."""
        return torch.cat([self.natural, self.attacked, self.natural_purified, self.attacked_purified])

    def save(self, file: Path) -> None:
        with atomic_write(file) as unfinished:
            save_file({field.name: getattr(self, field.name).contiguous() for field in fields(self)}, unfinished)

    @classmethod
    def load(cls, file: Path) -> Self:
        try:
            return cls(**load_file(regular.check(file)))
        except (OSError, TypeError, SafetensorError) as error:
            raise BadInput(f"{file} holds no examples of an attack that can be read: {error}") from error


def differences(before: Mapping[str, Any], after: Mapping[str, Any], names: Iterable[str]) -> str:
    """Which of the named settings differ, and how; "" if none does."""
    changed = [name for name in sorted(names) if before.get(name) != after.get(name)]
    return "; ".join(f"{name}: {before.get(name)} -> {after.get(name)}" for name in changed)


def incomparable(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """How one attack's images, threat and defence differ from those of another, which is of a defence; "" if one table
    may hold both. Where no Langevin step was taken, the energy is of no account."""
    return differences(before, after, (*_ATTACKED, *(_WALKED if before["langevin_steps"] else ())))


def table(records: dict[str, Record]) -> str:
    """One line for each record: accuracies with their intervals, and the cost. Below, what is to be noted of some."""
    first = next(iter(records.values()))
    rows = [["", *first.accuracies, "gradients", "Langevin image-steps"]]
    for name, record in records.items():
        costs = [f"{count:,}" for count in record.cost.values()]
        rows.append([name, *map(str, record.accuracies.values()), *costs])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *notes(record.settings for record in records.values())])


def notes(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Each once, as a line."""
    return [f"note: {said}" for said in dict.fromkeys(named["note"] for named in settings if "note" in named)]


def plot_steps(records: dict[str, Record]) -> Image.Image:
    """Verified accuracy over the attack's steps, a line for each record."""
    lines = {name: {j: share.value for j, share in record.by_step().items()} for name, record in records.items()}
    return pictures.curves(lines, title=_title(list(records.values())), x="attack step", y="verified accuracy")


def plot_langevin_steps(records: Sequence[Record]) -> Image.Image | None:
    """Natural and verified accuracy against the defence's Langevin steps (Figure lang_sweep); None for a single K."""
    lines: dict[str, dict[int, float]] = {"natural": {}}
    for record in sorted(records, key=lambda record: int(record.settings["langevin_steps"])):
        k = record.settings["langevin_steps"]
        if k not in lines["natural"] or not record.known_noise:
            lines["natural"][k] = record.natural.value
        lines.setdefault(record.settings["gradient"], {})[k] = record.verified.value
    if len(lines["natural"]) < 2:
        return None
    return pictures.curves(lines, title=_title(records), x="Langevin steps", y="accuracy")


def _title(records: Sequence[Record]) -> str:
    threats = dict.fromkeys(record.settings["threat"] for record in records)
    return f"{len(records[0].tally.labels)} images under {', '.join(threats)}"


def _missing(settings: dict[str, Any]) -> str | None:
    kinds = {"gradient": "", "threat": "", "radius": 0.0, "langevin_steps": 0}  # what tables and pages are made of
    return contents.mismatch({name: settings.get(name) for name in kinds}, kinds, "settings")


def _share(right: Tensor) -> Share:
    return Share(int(right.sum()), len(right))
