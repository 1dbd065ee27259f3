"""What an attack left behind: every prediction, the adversaries, and the accuracies that follow from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from ebmlife.attacks.shares import Share
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.storage import checkpoint, contents
from ebmlife.storage.workspace import differences

_ATTACKED = ("images", "threat", "radius")
_WALKED = ("model", "langevin_step_size", "langevin_clip", "average")
EVALUATED_ON = "evaluated_on"  # describes the images, which `images` is the fingerprint of
NONE = -1  # in place of a prediction that was not made, or of a step that did not come


@dataclass
class Tally:
    """The predictions of an attack on n images; step j is the adversary X_j after j gradient steps."""

    ids: Tensor  # (n,): rows of the data set, which name each image's random draws
    labels: Tensor  # (n,)
    natural: Tensor  # (n,): predicted for the natural image, by the larger draw
    attacked: Tensor  # (n, steps + 1): predicted for X_j with the attack's replicas
    verified: Tensor  # (n, steps + 1): predicted anew by the larger draw where the first was wrong
    broken_at: Tensor  # (n,): the first step whose break was verified
    final: Tensor  # (n, evaluations): predicted for the last adversary by further draws of the larger size
    logits: Tensor  # (n, classes): summed over those draws
    adversaries: Tensor  # (n, C, H, W): the one that broke the image, or the last; the natural image if that was enough
    gradients: int = 0  # gradients of single images, each averaged over replicas
    image_steps: int = 0  # Langevin steps of single chains, those of gradients included

    @classmethod
    def blank(cls, ids: Tensor, labels: Tensor, x: Tensor, *, steps: int, evaluations: int) -> Self:
        n = len(labels)
        return cls(
            ids=ids,
            labels=labels,
            natural=_none(n),
            attacked=_none(n, steps + 1),
            verified=_none(n, steps + 1),
            broken_at=_none(n),
            final=_none(n, evaluations),
            logits=torch.zeros(n, 0),
            adversaries=x.clone(),
        )

    @classmethod
    def restored(cls, saved: Any, origin: Path, blank: "Tally | None" = None) -> Self:
        """What was saved of a tally, compared with a blank one of the same images, or with itself where none is known.

        BadInput, naming its `origin`, where names, shapes, dtypes or ranges are wrong.
        """
        tally = contents.restored(str(origin), lambda: cls(**saved))
        like = contents.restored(str(origin), lambda: blank or _alike(tally)).state_dict()
        logits = tally.logits if isinstance(tally.logits, Tensor) and tally.logits.ndim == 2 else torch.zeros(0, 0)
        like["logits"] = torch.zeros(len(like["labels"]), logits.shape[1])
        said = contents.mismatch(saved, like) or contents.not_finite(tally.state_dict())
        if said is None and blank is not None:
            same = torch.equal(tally.ids, blank.ids) and torch.equal(tally.labels, blank.labels)
            said = None if same else "it is of other images"
        if said is None:
            said = _out_of_range(tally, classes=logits.shape[1])
        if said is not None:
            raise BadInput(f"{origin} cannot be used: {said}")
        return tally

    @classmethod
    def joined(cls, tallies: Sequence["Tally"]) -> Self:
        columns = {field.name: [getattr(tally, field.name) for tally in tallies] for field in fields(cls)}
        joined: dict[str, Any] = {
            name: torch.cat(column) if isinstance(column[0], Tensor) else sum(column)
            for name, column in columns.items()
        }
        return cls(**joined)

    @classmethod
    def gathered(cls, tallies: Sequence["Tally"], ranks: Ranks) -> Self:
        """Those of all ranks, in their order, joined; a rank may have none."""
        mine = cls.joined(tallies).state_dict() if tallies else {}
        sent = {name: torch.as_tensor(value) for name, value in mine.items()}  # counts too
        received = [part for part in ranks.gather(sent) if part]
        return cls.joined([cls(**{n: v if v.ndim else int(v) for n, v in part.items()}) for part in received])  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def standing(self) -> Tensor:
        """Rows that were right at first and are not broken yet."""
        return ((self.natural == self.labels) & (self.broken_at == NONE)).nonzero().squeeze(1)


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


def apart(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """How one attack's images, threat and defence differ from those of another, which is of a defence; "" if one table
    may hold both. Where no Langevin step was taken, the energy is of no account."""
    names = (*_ATTACKED, *(_WALKED if before["langevin_steps"] else ()))
    return "; ".join(differences(before, after, names))


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


def _missing(settings: dict[str, Any]) -> str | None:
    kinds = {"gradient": "", "threat": "", "radius": 0.0, "langevin_steps": 0}  # what tables and pages are made of
    return contents.mismatch({name: settings.get(name) for name in kinds}, kinds, "settings")


def _alike(tally: Tally) -> Tally:
    """A blank tally of as many images, steps and evaluations."""
    steps, evaluations = tally.attacked.shape[1] - 1, tally.final.shape[1]
    rows = torch.zeros(len(tally.labels), dtype=torch.int64)
    images = torch.zeros(len(rows), *tally.adversaries.shape[1:])
    return Tally.blank(rows, rows, images, steps=steps, evaluations=evaluations)


def _out_of_range(tally: Tally, *, classes: int) -> str | None:
    """Which predictions are of no class, or which break is at no step."""
    most = classes or 2**31  # before the last evaluations the number of classes is not known
    limits = dict.fromkeys(("natural", "attacked", "verified", "final"), most) | {"broken_at": tally.attacked.shape[1]}
    for name, limit in limits.items():
        values = getattr(tally, name)
        if values.numel() and not (values.min() >= NONE and values.max() < limit):
            return f"{name} is out of range"
    return None


def _none(*shape: int) -> Tensor:
    return torch.full(shape, NONE)


def _share(right: Tensor) -> Share:
    return Share(int(right.sum()), len(right))
