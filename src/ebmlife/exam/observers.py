"""Observers of an exam's chains: metrics at log-spaced steps, and a trace of every chain at evenly spaced steps."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import Diverged
from ebmlife.exam.features import Features
from ebmlife.exam.metrics import Evaluation, convergence, measure
from ebmlife.exam.reference import Reference, map_batches
from ebmlife.sampling.energy import Energy

TRACED = 400  # evenly spaced steps at which parallel chains are compared


class Evaluations:
    """Computes all metrics at each mark."""

    def __init__(
        self,
        marks: Sequence[int],
        reference: Reference,
        features: Features,
        energy: Energy | None,
        classifier: Callable[[Tensor], Tensor] | None,
        batch: int,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self.marks, self.reference, self.features, self.energy = marks, reference, features, energy
        self.classifier, self.batch, self.ranks = classifier, batch, ranks
        self.steps: list[int] = []
        self.rows: list[dict[str, float | None]] = []
        self.classes: Tensor | None = None  # at the start

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        features = self._map(self.features.of, x)
        _require_finite("a feature", features, step)
        energies = None if self.energy is None else self._map(self.energy, x).double()
        if energies is not None:
            _require_finite("an energy", energies, step)
        classes = None if self.classifier is None else self._map(self.classifier, x).argmax(1)
        self.classes = classes if self.classes is None else self.classes
        row = measure(Evaluation(x.cpu(), features, self.reference, gradient, energies, classes, self.classes))
        for name, value in row.items():
            _require_finite(f"the {name}", torch.tensor(0.0 if value is None else value), step)
        self.steps.append(step)
        self.rows.append(row)

    def _map(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return map_batches(function, x, self.batch, ranks=self.ranks)

    def columns(self) -> dict[str, list[float | None]]:
        """Returns the values of each metric; None at steps that were evaluated before a metric existed."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in names}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "rows": self.rows, "classes": self.classes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.rows, self.classes = state["steps"], state["rows"], state["classes"]
        if len(self.rows) != len(self.steps) or not all(map(_is_row, self.rows)):
            raise ValueError("the metrics do not fit the steps")


class Trace:
    """Records energies and projected features of every chain at evenly spaced steps, to compare chains by."""

    def __init__(
        self,
        steps: int,
        axes: Reference,
        features: Features,
        energy: Energy | None,
        batch: int,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self.marks = sorted({round((i + 1) * steps / TRACED) for i in range(TRACED)} - {0})
        self.axes, self.features, self.energy, self.batch, self.ranks = axes, features, energy, batch, ranks
        self.steps: list[int] = []
        self.draws: list[Tensor] = []  # (chains, 1 + axes), or without the energy

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        draw = self.axes.project(map_batches(self.features.of, x, self.batch, ranks=self.ranks))
        if self.energy is not None:
            draw = torch.cat([map_batches(self.energy, x, self.batch, ranks=self.ranks)[:, None], draw], dim=1)
        self.steps.append(step)
        self.draws.append(draw.float())

    def columns(self, steps: Sequence[int]) -> dict[str, list[float | None]]:
        """Returns R-hat and effective sample size over the second half of the chain up to each of the steps.

        Of the projected features the worst value is taken.
        """
        first = 0 if self.energy is None else 1
        columns: dict[str, list[float | None]] = {}
        for step in steps:
            draws = [draw for at, draw in zip(self.steps, self.draws, strict=True) if step / 2 < at <= step]
            found = _convergences(torch.stack(draws, dim=1).double()) if draws else []  # (chains, draws, 1 + axes)
            of_features = [pair for pair in found[first:] if pair is not None]
            worst = (max(r for r, _ in of_features), min(e for _, e in of_features)) if of_features else (None, None)
            of_energy = (found[0] if found and first else None) or (None, None)
            names = ("rhat_energy", "ess_energy", "rhat_features", "ess_features")
            for name, value in zip(names, (*of_energy, *worst), strict=True):
                columns.setdefault(name, []).append(value)
        return columns

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "draws": torch.stack(self.draws) if self.draws else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.draws = [] if state["draws"] is None else list(state["draws"])
        if len(self.draws) != len(self.steps) or any(draw.dtype != torch.float32 for draw in self.draws):
            raise ValueError("the trace does not fit the steps")


def _is_row(row: dict[str, float | None]) -> bool:
    numbers = all(value is None or (type(value) in (int, float) and isfinite(value)) for value in row.values())
    return numbers and "distance" in row


def _require_finite(what: str, values: Tensor, step: int) -> None:
    """Raises Diverged if a value is not finite. States can be finite where their energies or features are not."""
    if not values.isfinite().all():
        raise Diverged(f"{what} is not finite at step {step:,}")


def _convergences(draws: Tensor) -> list[tuple[float, float] | None]:
    return [convergence(draws[..., i].numpy()) for i in range(draws.shape[-1])]
