"""Those who watch the chains of an exam: a row of figures at log-spaced steps, a thin trace of every chain between."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import Diverged
from ebmlife.exam.convergence import convergence
from ebmlife.exam.metrics import metrics_of
from ebmlife.exam.reference import Features, Reference, in_parts
from ebmlife.sampling.energy import Energy

TRACED = 400  # evenly spaced moments at which parallel chains are compared


class Looks:
    """A row of figures at each mark."""

    def __init__(
        self,
        marks: Sequence[int],
        truth: Reference,
        features: Features,
        energies: Energy | None,
        classifier: Callable[[Tensor], Tensor] | None,
        batch: int,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self.marks, self.truth, self.features, self.energies = marks, truth, features, energies
        self.classifier, self.batch, self.ranks = classifier, batch, ranks
        self.steps: list[int] = []
        self.rows: list[dict[str, float | None]] = []
        self.classes: Tensor | None = None  # of the start

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        seen = in_parts(self.features.of, x, self.batch, ranks=self.ranks)
        _refuse("a feature", seen, step)
        row: dict[str, float | None] = {"distance": self.truth.distance(seen)}
        row |= metrics_of(x.cpu())
        row["gradient"] = gradient
        if self.energies is not None:
            energies = in_parts(self.energies, x, self.batch, ranks=self.ranks).double()
            _refuse("an energy", energies, step)
            row |= {"energy": energies.mean().item(), "energy_spread": energies.std().item()}
        if self.classifier is not None:
            classes = in_parts(self.classifier, x, self.batch, ranks=self.ranks).argmax(1)
            self.classes = classes if self.classes is None else self.classes
            row["agreement"] = (classes == self.classes).double().mean().item()
        for name, value in row.items():
            _refuse(f"the {name}", torch.tensor(0.0 if value is None else value), step)
        self.steps.append(step)
        self.rows.append(row)

    def columns(self) -> dict[str, list[float | None]]:
        return {name: [row[name] for row in self.rows] for name in self.rows[0]}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "rows": self.rows, "classes": self.classes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.rows, self.classes = state["steps"], state["rows"], state["classes"]
        if len(self.rows) != len(self.steps) or any(not _is_row(row, self.rows[0]) for row in self.rows):
            raise ValueError("the figures are not those of its steps")


class Trace:
    """Energies and projected features of every chain at evenly spaced steps: what chains are compared by."""

    def __init__(
        self,
        steps: int,
        axes: Reference,
        features: Features,
        energies: Energy | None,
        batch: int,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self.marks = sorted({round((i + 1) * steps / TRACED) for i in range(TRACED)} - {0})
        self.axes, self.features, self.energies, self.batch, self.ranks = axes, features, energies, batch, ranks
        self.steps: list[int] = []
        self.draws: list[Tensor] = []  # (chains, 1 + axes), or without the energy

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        seen = self.axes.project(in_parts(self.features.of, x, self.batch, ranks=self.ranks))
        if self.energies is not None:
            seen = torch.cat([in_parts(self.energies, x, self.batch, ranks=self.ranks)[:, None], seen], dim=1)
        self.steps.append(step)
        self.draws.append(seen.float())

    def columns(self, steps: Sequence[int]) -> dict[str, list[float | None]]:
        """R-hat and effective sample size over the second half of what was walked up to each of the steps; of the
        projections, the worst."""
        first = 0 if self.energies is None else 1
        columns: dict[str, list[float | None]] = {}
        for step in steps:
            rows = [draw for at, draw in zip(self.steps, self.draws, strict=True) if step / 2 < at <= step]
            found = _converged(torch.stack(rows, dim=1).double()) if rows else []  # (chains, draws, 1 + axes)
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
            raise ValueError("the trace is not that of its steps")


def _is_row(row: dict[str, float | None], first: dict[str, float | None]) -> bool:
    numbers = all(value is None or (type(value) in (int, float) and isfinite(value)) for value in row.values())
    return row.keys() == first.keys() and numbers


def _refuse(what: str, values: Tensor, step: int) -> None:
    """States can be finite where what is seen of them is not."""
    if not values.isfinite().all():
        raise Diverged(f"{what} is not finite at step {step:,}")


def _converged(draws: Tensor) -> list[tuple[float, float] | None]:
    return [convergence(draws[..., i].numpy()) for i in range(draws.shape[-1])]
