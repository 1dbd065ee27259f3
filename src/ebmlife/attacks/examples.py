"""A few images on their way through an attack and a defence, with what is predicted of each: for people to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.attacks.record import Record
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.errors import BadInput
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write


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
