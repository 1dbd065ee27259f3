"""The state of an attack: the predictions of each image, accuracies with their intervals, and progress."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.storage import contents

NONE = -1  # in place of a prediction that was not made, or of a step that did not happen
_Z = 1.959963984540054  # the 97.5 % point of the normal distribution


class Share(NamedTuple):
    """An accuracy: `right` of `of` images, with its 95 % confidence interval."""

    right: int
    of: int

    @property
    def value(self) -> float:
        return self.right / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson score interval."""
        n, p = self.of, self.value
        center, half = p + _Z**2 / (2 * n), _Z * sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        scale = 1 + _Z**2 / n
        return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass
class Tally:
    """The predictions of an attack on n images; step j is the adversary X_j after j gradient steps."""

    ids: Tensor  # (n,): rows of the data set, which name each image's random draws
    labels: Tensor  # (n,)
    natural: Tensor  # (n,): predicted for the natural image, by the larger draw
    attacked: Tensor  # (n, steps + 1): predicted for X_j with the attack's replicas
    verified: Tensor  # (n, steps + 1): predicted by the larger draw where the first prediction was wrong
    broken_at: Tensor  # (n,): the first step at which a wrong prediction was verified
    final: Tensor  # (n, evaluations): predicted for the last adversary by further draws of the larger size
    logits: Tensor  # (n, classes): summed over those draws
    adversaries: Tensor  # (n, C, H, W): the one that broke the image, or the last one
    gradients: int = 0  # gradients of single images, each averaged over replicas
    image_steps: int = 0  # Langevin steps of single chains, including those of gradients

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
        """Returns a saved tally after checking its names, shapes, dtypes and ranges.

        Args:
            saved: What `state_dict` returned.
            origin: The file, for errors.
            blank: An empty tally of the same images. None: one with the shapes of the saved tally.

        Raises:
            BadInput: The saved tally is damaged, or it belongs to other images.
        """
        tally = contents.restored(str(origin), lambda: cls(**saved))
        like = contents.restored(str(origin), lambda: blank or _blank_like(tally)).state_dict()
        logits = tally.logits if isinstance(tally.logits, Tensor) and tally.logits.ndim == 2 else torch.zeros(0, 0)
        like["logits"] = torch.zeros(len(like["labels"]), logits.shape[1])
        problem = contents.mismatch(saved, like) or contents.not_finite(tally.state_dict())
        if problem is None and blank is not None:
            same = torch.equal(tally.ids, blank.ids) and torch.equal(tally.labels, blank.labels)
            problem = None if same else "it belongs to other images"
        if problem is None:
            problem = _out_of_range(tally, classes=logits.shape[1])
        if problem is not None:
            raise BadInput(f"{origin} cannot be used: {problem}")
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
        """Returns the tallies of all ranks as one, in the order of the ranks; a rank may have none."""
        mine = cls.joined(tallies).state_dict() if tallies else {}
        sent = {name: torch.as_tensor(value) for name, value in mine.items()}  # counts too
        received = [part for part in ranks.gather(sent) if part]
        return cls.joined([cls(**{n: v if v.ndim else int(v) for n, v in part.items()}) for part in received])  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def unbroken(self) -> Tensor:
        """Returns the rows of the images that are classified correctly and are not broken yet."""
        return ((self.natural == self.labels) & (self.broken_at == NONE)).nonzero().squeeze(1)


@dataclass(frozen=True)
class Progress:
    """The progress of an attack.

    Attributes:
        done: The finished fraction of the work, from 0 to 1.
        unbroken: The share of the images that are not broken, among those whose attack has begun.
        seconds_left: The estimated time that is left.
        tally: The images that are being attacked.
    """

    done: float
    unbroken: Share
    seconds_left: float
    tally: Tally


Watcher = Callable[[Progress], None]


class Meter:
    """Measures progress in chains that this process walks; chains that a broken image does not need count as done."""

    def __init__(self, images: int, *, walks: Sequence[int], first_final: int, watch: Watcher) -> None:
        self._until = [0, *accumulate(walks)]  # chains of one image, before each stage and after the last
        self._first_final = first_final  # the first stage that includes broken images again
        self._total, self._watch = images * self._until[-1], watch
        self._done, self._begun, self._unbroken = 0, 0, 0  # in the finished groups
        self._then, self._before = time.monotonic(), 0

    def enter(self, tally: Tally, stage: int) -> None:
        """Begins or resumes a group. The work of an earlier process does not count for the estimated time."""
        self._before += self._walks(tally, stage)

    def show(self, tally: Tally, stage: int) -> None:
        done = self._done + self._walks(tally, stage)
        made, elapsed = done - self._before, time.monotonic() - self._then
        left = elapsed * (self._total - done) / made if made > 0 else float("inf")
        unbroken = Share(self._unbroken + len(tally.unbroken()), self._begun + len(tally.labels))
        self._watch(Progress(done / self._total, unbroken, left, tally))

    def leave(self, tally: Tally) -> None:
        self._done += len(tally.labels) * self._until[-1]
        self._begun += len(tally.labels)
        self._unbroken += len(tally.unbroken())

    def _walks(self, tally: Tally, stage: int) -> int:
        if stage == 0:
            return 0
        unbroken = len(tally.unbroken())
        broken = len(tally.labels) - unbroken
        return unbroken * self._until[stage] + broken * self._until[max(stage, self._first_final)]


def _blank_like(tally: Tally) -> Tally:
    """Returns an empty tally of as many images, steps and evaluations."""
    steps, evaluations = tally.attacked.shape[1] - 1, tally.final.shape[1]
    rows = torch.zeros(len(tally.labels), dtype=torch.int64)
    images = torch.zeros(len(rows), *tally.adversaries.shape[1:])
    return Tally.blank(rows, rows, images, steps=steps, evaluations=evaluations)


def _out_of_range(tally: Tally, *, classes: int) -> str | None:
    """Returns which predictions or steps are out of range, or None."""
    most = classes or 2**31  # before the final evaluations the number of classes is not known
    limits = dict.fromkeys(("natural", "attacked", "verified", "final"), most) | {"broken_at": tally.attacked.shape[1]}
    for name, limit in limits.items():
        values = getattr(tally, name)
        if values.numel() and not (values.min() >= NONE and values.max() < limit):
            return f"{name} is out of range"
    return None


def _none(*shape: int) -> Tensor:
    return torch.full(shape, NONE)
