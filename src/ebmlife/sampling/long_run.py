"""Walks of 100,000 steps and more: the one Langevin loop in segments, watched at marks, saved inside the chain.

Memory does not grow with the number of steps. A walk that was killed goes on from its last checkpoint to the same bits:
each batch of chains has a random stream of its own, whose state is saved with them. Several ranks take some of the
batches each; what they know of the others' is brought up to date at every stop, so that all see, and save, the same.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import langevin
from ebmlife.sampling.rng import generator, normal
from ebmlife.storage import checkpoint, contents
from ebmlife.storage.atomic import sweep
from ebmlife.storage.interrupt import locked

_log = logging.getLogger(__name__)
SEGMENT = 100  # most steps between two looks at clock and stop; saved and resumed walks must cut at the same places


@dataclass(frozen=True)
class Progress:
    step: int
    steps: int
    seconds_left: float


class Watcher(Protocol):
    """Sees all chains at its marks. Its state travels in the walk's checkpoints."""

    @property
    def marks(self) -> Sequence[int]:
        """The steps at which it looks; 0 is the start."""
        ...

    def __call__(self, step: int, x: Tensor, gradient: float | None) -> None:
        """`gradient`: mean |grad E| over chains and the last at most SEGMENT steps; None at the start."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Snapshots:
    """The first chains as they were at each mark."""

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
        if said := contents.not_finite(self.states):
            raise ValueError(said)


def log_spaced(steps: int, *, per_decade: int = 8) -> list[int]:
    """0, then whole numbers nearly evenly spaced in their logarithm, then `steps`."""
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
    batch: int = 256,  # chains that walk together; all reach a mark before any goes on
    watchers: Sequence[Watcher] = (),
    about: Mapping[str, object] | None = None,  # what else the watchers' figures rest on, by name
    folder: Path | None = None,  # of the checkpoints; a walk that is there already goes on
    save_every: float = 60.0,  # seconds
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
    ranks: Ranks = SINGLE_PROCESS,
) -> tuple[Tensor, int]:
    """(states, steps done) after `steps` Langevin steps from x, or after fewer where `stopping` said so.

    States that are no longer finite raise Diverged; the watchers have seen every mark before it.
    """
    if batch < 1 or len(x) < 1:
        raise BadInput(f"a walk needs at least 1 chain and batches of at least 1, got {len(x)} and {batch}")
    if steps < 0:
        raise BadInput(f"the number of Langevin steps must not be negative, got {steps}")
    settings: dict[str, Any] = {"step_size": step_size, "seed": seed, "clip": clip, "batch": batch}
    settings |= {"start": fingerprint.of_tensors(x), "energy": fingerprint.of_functions(energy)}
    settings |= {"slope": fingerprint.of_gradient(energy, x[:batch])} if folder else {}
    settings |= {"marks": [fingerprint.of_tensors(torch.tensor(w.marks)) for w in watchers], **(about or {})}
    walk = _Walk(energy, x, step_size, seed, clip, batch, ranks)
    with nullcontext() if folder is None else _exclusive(folder, ranks):
        saved = _Saved(folder, settings, walk, watchers, ranks)
        with ranks.raise_on_all():
            if ranks.first:
                saved.settle()
        with ranks.raise_on_all():
            saved.newest = ranks.from_rank0(saved.newest)
            restored = saved.restore()
            if walk.step > steps:
                raise BadInput(f"{folder} holds a walk of {walk.step} steps already, more than the {steps} asked for")
        if not restored:
            _show(watchers, walk, None)
        clock, begun, last_save = time.monotonic, walk.step, time.monotonic()
        started = clock()
        while walk.step < steps and not ranks.any(stopping()):
            _show(watchers, walk, walk.go(_next_stop(walk.step, steps, watchers)))
            elapsed = clock() - started
            progress(Progress(walk.step, steps, elapsed * (steps - walk.step) / (walk.step - begun)))
            if ranks.any(ranks.first and clock() - last_save > save_every):
                saved.save()
                last_save = clock()
        saved.save()
    return walk.x, walk.step


def _next_stop(step: int, steps: int, watchers: Sequence[Watcher]) -> int:
    marks = (mark for watcher in watchers for mark in watcher.marks if mark > step)
    return min(steps, (step // SEGMENT + 1) * SEGMENT, *marks)


class _Walk:
    """Chains in batches, each with its own random stream, all at the same step; some of the batches walk here."""

    def __init__(
        self, energy: Energy, x: Tensor, step_size: float, seed: int, clip: float | None, batch: int, ranks: Ranks
    ) -> None:
        self.energy, self.step_size, self.clip, self.batch, self.ranks = energy, step_size, clip, batch, ranks
        self.x, self.step = x.detach().clone(), 0
        self.streams = [generator(seed, f"chains {first}", device=x.device) for first in range(0, len(x), batch)]

    def go(self, until: int) -> float:
        """All chains on to that step; the mean of |grad E| on the way."""
        whose, gradients = self.ranks.part(len(self.streams)), []
        for rows, rng in zip(torch.split(self.x, self.batch)[whose], self.streams[whose], strict=True):
            walked, info = langevin(
                self.energy,
                rows,
                steps=until - self.step,
                step_size=self.step_size,
                noise=normal(rng),
                clip=self.clip,
            )
            rows.copy_(walked)
            gradients.append(info.gradient.item() * len(rows))
        if self.ranks.count > 1:
            gradients = self._exchange(whose, gradients)
        if not self.x.isfinite().all():
            raise Diverged(f"states are not finite any more between steps {self.step} and {until}")
        self.step = until
        return sum(gradients) / len(self.x)

    def _exchange(self, whose: slice, gradients: list[float]) -> list[float]:
        """What the other ranks' batches came to; the gradients of all batches, in order."""
        mine = {"x": self.x[whose.start * self.batch : whose.stop * self.batch]}
        mine["streams"] = torch.cat([stream.get_state()[None] for stream in self.streams[whose]] or [torch.empty(0)])
        mine["gradients"] = torch.tensor(gradients, dtype=torch.float64)
        parts = self.ranks.gather(mine)
        self.x = torch.cat([part["x"] for part in parts]).to(self.x.device)
        states = [state.clone() for part in parts for state in part["streams"]]  # in its place it may not be aligned
        for stream, state in zip(self.streams, states, strict=True):
            stream.set_state(state)
        return [value for part in parts for value in part["gradients"].tolist()]

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "step": self.step, "streams": [stream.get_state() for stream in self.streams]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x, self.step = state["x"].to(self.x.device), state["step"]
        for stream, value in zip(self.streams, state["streams"], strict=True):
            stream.set_state(value)


def _show(watchers: Sequence[Watcher], walk: _Walk, gradient: float | None) -> None:
    for watcher in watchers:
        if walk.step in watcher.marks:
            watcher(walk.step, walk.x, gradient)


class _Saved:
    """A walk and its watchers in a folder, or nowhere; the first rank writes."""

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, Any],
        walk: _Walk,
        watchers: Sequence[Watcher],
        ranks: Ranks,
    ) -> None:
        self.folder, self.settings, self.walk, self.at, self.ranks = folder, settings, walk, -1, ranks
        self.parts: list[_Walk | Watcher] = [walk, *watchers]
        self.newest: int | None = None  # checkpoint

    def settle(self) -> None:
        """Finds the newest sound checkpoint; those after it that are damaged are set aside."""
        if self.folder is not None:
            self.newest = checkpoint.newest_sound(self.folder, checkpoint.verify, _log.warning)

    def save(self) -> None:
        with self.ranks.raise_on_all():
            if self.folder is not None and self.ranks.first and self.at != self.walk.step:
                self.at = self.walk.step
                state = {"parts": [part.state_dict() for part in self.parts]}
                checkpoint.save(checkpoint.path(self.folder, self.at), state, about={"settings": self.settings})
                checkpoint.prune(self.folder, keep=2, keep_every=None)

    def restore(self) -> bool:
        """Whether there was something to go on from."""
        if self.folder is None or self.newest is None:
            return False
        place = checkpoint.path(self.folder, self.newest)
        state, manifest = checkpoint.load(place)
        _check_settings(self.folder, manifest.get("settings", {}), self.settings)
        contents.restored(f"checkpoint {place}", lambda: self._load(state["parts"], self.newest))
        self.at = self.newest
        return True

    def _load(self, saved: list[Any], step: int | None) -> None:
        said = contents.mismatch(saved[0], self.walk.state_dict()) or contents.not_finite(saved[0])
        if said is not None or saved[0]["step"] != step:
            raise BadInput(said or f"it is of step {saved[0]['step']}")
        for part, state in zip(self.parts, saved, strict=True):
            part.load_state_dict(state)
            seen = [mark for mark in part.marks if mark <= self.walk.step] if not isinstance(part, _Walk) else []
            if state.get("steps", seen) != seen:
                raise BadInput(f"{type(part).__name__} has not seen the steps up to {self.walk.step}")


def _check_settings(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    for name, value in new.items():
        if not fingerprint.alike(old.get(name), value):
            raise BadInput(
                f"{folder} holds a walk with {name} {old.get(name)}, not {value}; choose another folder for this one"
            )


@contextmanager
def _exclusive(folder: Path, ranks: Ranks) -> Iterator[None]:
    with ExitStack() as stack:
        with ranks.raise_on_all():
            if ranks.first:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(folder))
                sweep(folder / "checkpoints")
        yield
