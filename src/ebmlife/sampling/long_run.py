"""Chains of 100,000 steps and more, run in segments, observed at chosen steps, and saved at intervals.

Memory does not grow with the number of steps. A walk that was killed resumes from its last checkpoint and gives the
same bits: each batch of chains has its own random stream, whose state is saved too. Several ranks share the batches;
they exchange states at every stop, so that all of them have the same states.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.sampling import fingerprint
from ebmlife.sampling.batches import Batches
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels import WARM_UP, make_kernel
from ebmlife.storage import checkpoint, contents
from ebmlife.storage.workspace import Layout, Workspace

SEGMENT = 100  # most steps between two stops; fixed, because saved and resumed walks must stop at the same steps
_LAYOUT = Layout("walk", file=None, within=("exam", "life cycle"))


@dataclass(frozen=True)
class Progress:
    """The progress of a walk."""

    step: int
    steps: int
    seconds_left: float


class Watcher(Protocol):
    """An observer that is called with all chains at chosen steps. Its state is part of the walk's checkpoints."""

    @property
    def marks(self) -> Sequence[int]:
        """The steps at which it is called; 0 is the start."""
        ...

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        """`gradient`: mean |grad E| over chains and the last at most SEGMENT steps; None at the start."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Snapshots:
    """Keeps the states of the first chains at each mark."""

    def __init__(self, marks: Sequence[int], *, chains: int = 16) -> None:
        self.marks, self.chains = marks, chains
        self.steps: list[int] = []
        self.states: list[Tensor] = []

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        self.steps.append(step)
        self.states.append(x[: self.chains].cpu().clone())

    def state_dict(self) -> dict[str, Any]:
        return {"steps": list(self.steps), "states": list(self.states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.states = list(state["steps"]), list(state["states"])
        if len(self.steps) != len(self.states) or len({(s.shape, s.dtype) for s in self.states}) > 1:
            raise ValueError(f"{len(self.states)} states of {len(self.steps)} steps")
        if wrong := contents.not_finite(self.states):
            raise ValueError(wrong)


def log_spaced(steps: int, *, per_decade: int = 8) -> list[int]:
    """Returns 0, then integers that are nearly evenly spaced in their logarithm, then `steps`."""
    powers, marks = range(10 * per_decade), {0, steps}
    return sorted(marks | {mark for i in powers if (mark := round(10 ** (i / per_decade))) < steps})


def long_walk(
    energy: Energy,
    x: Tensor,
    *,
    steps: int,
    step_size: float,
    seed: int = 0,
    clip: float | None = None,
    sampler: str = "langevin",
    batch: int = 256,
    watchers: Sequence[Watcher] = (),
    about: Mapping[str, object] | None = None,
    folder: Path | None = None,
    save_every: float = 60.0,
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
    ranks: Ranks = SINGLE_PROCESS,
) -> tuple[Tensor, int]:
    """Runs chains from the states x (B, ...) for `steps` steps.

    Args:
        energy: The energy that is sampled.
        x: The initial states.
        steps: Total number of steps, including those before a resumption.
        step_size: Langevin step size; the initial value for samplers that adapt it.
        seed: Seed of the random streams; each batch of chains has its own stream.
        clip: Largest length of a gradient, or None.
        sampler: One of `ebmlife.sampling.kernels.SAMPLERS`. Those that adapt their step size do so in the first 500
            steps, for each batch of chains by itself.
        batch: Number of chains that run together. All chains reach a mark before any continues.
        watchers: Called with all chains at their marks.
        about: Further settings that identify the walk, such as the reference of the watchers.
        folder: Where the walk is saved, and resumed from if it was saved before.
        save_every: Seconds between two checkpoints.
        progress: Called after every segment.
        stopping: Asked after every segment whether to save and return early.
        report: Called at the end with what the sampler measured, averaged over batches: step size, acceptance, swap
            rates.
        ranks: The processes that share the batches.

    Returns:
        The states, and the number of steps done, which is smaller than `steps` if `stopping` returned True.

    Raises:
        Diverged: A state is not finite. The watchers have seen every mark before it.
        BadInput: The folder holds a walk with different settings, or the sampler needs an energy and there is none.
    """
    if batch < 1 or len(x) < 1:
        raise BadInput(f"a walk needs at least 1 chain and batches of at least 1, got {len(x)} and {batch}")
    if steps < 0:
        raise BadInput(f"the number of Langevin steps must not be negative, got {steps}")
    kernel = make_kernel(sampler, energy, step_size=step_size, clip=clip, warm_up=WARM_UP)
    walk = Batches(energy, x, kernel, seed, batch, ranks)
    saved = None if folder is None else _Saved(folder, walk, watchers, about or {})
    with nullcontext() if saved is None else ranks.on_rank0(saved.work.exclusive()):
        if saved is None or not saved.restore(steps):
            _show(watchers, walk, None)
        clock, begun, last_save = time.monotonic, walk.step, time.monotonic()
        started = clock()
        while walk.step < steps and not ranks.any(stopping()):
            _show(watchers, walk, walk.advance(_next_stop(walk.step, steps, watchers)))
            elapsed = clock() - started
            progress(Progress(walk.step, steps, elapsed * (steps - walk.step) / (walk.step - begun)))
            if saved is not None and ranks.any(ranks.first and clock() - last_save > save_every):
                saved.save()
                last_save = clock()
        if saved is not None:
            saved.save()
    report(walk.report())
    return walk.x, walk.step


def _next_stop(step: int, steps: int, watchers: Sequence[Watcher]) -> int:
    marks = (mark for watcher in watchers for mark in watcher.marks if mark > step)
    return min(steps, (step // SEGMENT + 1) * SEGMENT, *marks)


def _show(watchers: Sequence[Watcher], walk: Batches, gradient: float | None) -> None:
    for watcher in watchers:
        if walk.step in watcher.marks:
            watcher(walk.step, walk.x, gradient)


class _Saved:
    """A walk and its watchers in a folder, which the first rank writes."""

    def __init__(self, folder: Path, walk: Batches, watchers: Sequence[Watcher], about: Mapping[str, object]) -> None:
        marks = [fingerprint.of_tensors(torch.tensor(watcher.marks)) for watcher in watchers]
        self.work = Workspace(folder, walk.settings() | {"marks": marks, **about}, _LAYOUT)
        self.walk, self.at, self.ranks = walk, -1, walk.ranks
        self.parts: list[Batches | Watcher] = [walk, *watchers]

    def save(self) -> None:
        with self.ranks.raise_on_all():
            if self.ranks.first and self.at != self.walk.step:
                self.at = self.walk.step
                state = {"parts": [part.state_dict() for part in self.parts]}
                self.work.save(self.at, state, about={"settings": self.work.settings})
                checkpoint.prune(self.work.folder, keep=2, keep_every=None)

    def restore(self, steps: int) -> bool:
        """Loads the newest intact checkpoint of at most `steps` steps. Returns whether there is one."""
        with self.ranks.raise_on_all():
            newest = self.work.newest() if self.ranks.first else None
        newest = self.ranks.from_rank0(newest)
        if newest is None:
            return False
        with self.ranks.raise_on_all():
            place = self.work.path(newest)
            state, manifest = checkpoint.load(place)
            self.work.check(manifest.get("settings", {}))
            contents.restored(f"checkpoint {place}", lambda: self._load(state["parts"], newest))
            if newest > steps:
                raise BadInput(
                    f"{self.work.folder} holds a walk of {newest} steps already, more than the {steps} requested"
                )
        self.at = newest
        return True

    def _load(self, saved: list[Any], step: int) -> None:
        wrong = contents.mismatch(saved[0], self.walk.state_dict()) or contents.not_finite(saved[0])
        if wrong is not None or saved[0]["step"] != step:
            raise BadInput(wrong or f"it is of step {saved[0]['step']}")
        for part, state in zip(self.parts, saved, strict=True):
            part.load_state_dict(state)
            seen = [mark for mark in part.marks if mark <= self.walk.step] if not isinstance(part, Batches) else []
            if state.get("steps", seen) != seen:
                raise BadInput(f"{type(part).__name__} has not seen the steps up to {self.walk.step}")
