"""The life cycle of a model's samples: the same chains, looked at over log-spaced Langevin steps as they grow old."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ebmlife.data import Dataset
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.convergence import arviz
from ebmlife.exam.observers import Looks, Trace
from ebmlife.exam.reference import PLAIN, Features, reference, some_of
from ebmlife.exam.verdict import Verdict, judge
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy, frozen, gradient, is_energy
from ebmlife.sampling.long_run import Progress, Snapshots, log_spaced, long_walk
from ebmlife.sampling.rng import generator

REFERENCE = 2048  # least number of states that stand for a data set: as many as FID has features


class HasGradient(Protocol):
    """What chains can walk on without an energy: minus a score."""

    def gradient(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class LifeCycle:
    steps: list[int]
    figures: dict[str, list[float | None]]  # a value for each of the steps; None where there is none
    verdict: Verdict
    stable_until: int  # steps
    reasons: list[str]
    ranges: dict[str, tuple[float, float]]  # least and most of each figure over as large sets of data
    settings: dict[str, Any]
    complete: bool  # False: stopped before its last step
    strip: Tensor = field(repr=False)  # (len(steps), chains shown, ...): the same chains growing old
    states: Tensor = field(repr=False)  # (chains, ...) at the last step


def life_cycle(
    energy: Energy | HasGradient,
    x0: Tensor,
    *,
    steps: int = 100_000,
    step_size: float = 1e-2,
    data: Dataset | Tensor | None = None,
    data_noise: float = 0.0,
    features: Features = PLAIN,
    traced: Features | None = None,
    classifier: Callable[[Tensor], Tensor] | None = None,
    clip: float | None = None,
    seed: int = 0,
    batch: int = 256,
    shown: int = 8,
    folder: Path | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
    ranks: Ranks = SINGLE_PROCESS,
) -> LifeCycle:
    """Walks all chains x0 (B, ...) for `steps` Langevin steps and says how long their states stay like the data.

    `energy` is any callable from states to numbers, or an object with a `gradient` alone. Without `data`, x0 itself is
    what samples are compared with: right for chains that begin at data or at good samples. `data_noise` is the noise
    that the model's data were under. Distances are taken in `features`; R-hat's projections in `traced`, where those
    are too slow. With a `classifier` (x -> logits) the share of chains that keep their start's class is followed.
    With a `folder` the exam is saved there every minute, and goes on when it is called again. Several ranks share the
    batches of chains; all of them return what one process would.
    """
    check(energy, x0, data, steps=steps, batch=batch)
    arviz()  # before hours are spent
    known = x0 if data is None else data if isinstance(data, Tensor) else some_of(data, max(REFERENCE, len(x0)))
    rng, traced = generator(seed, "exam"), traced or features
    of_data = partial(reference, known.to("cpu", x0.dtype), rng=rng, ranks=ranks)
    truth = of_data(chains=len(x0), features=features, noise=data_noise)
    axes = truth if traced is features else of_data(chains=2, features=traced, noise=0.0)
    energies = cast(Energy, energy) if is_energy(energy) else None
    marks = log_spaced(steps)
    looks = Looks(marks, truth, features, energies, classifier, batch, ranks)
    trace, strip = Trace(steps, axes, traced, energies, batch, ranks), Snapshots(marks, chains=shown)
    about = {"data": fingerprint.of_tensors(known), "data_noise": data_noise, "shown": shown}
    about |= {"features": [features.name, traced.name], "classes": classifier is not None}
    diverged = None
    try:
        x, done = long_walk(
            cast(Energy, energy),
            x0,
            steps=steps,
            step_size=step_size,
            seed=seed,
            clip=clip,
            batch=batch,
            watchers=[looks, trace, strip],
            about=about,
            folder=folder,
            progress=progress,
            stopping=stopping,
            ranks=ranks,
        )
    except Diverged as error:
        if not looks.rows:
            raise  # there is no life to tell of
        x, done, diverged = x0, steps, str(error)
    figures = looks.columns() | trace.columns(looks.steps)
    judged = judge(looks.steps, figures, truth, diverged=diverged)
    settings: dict[str, Any] = {"steps": steps, "step_size": step_size, "chains": len(x0), "seed": seed, "clip": clip}
    settings |= {"distance": f"{features.name}_{len(x0)}", "data_noise": data_noise, "data": len(known)}
    return LifeCycle(
        looks.steps,
        figures,
        judged.verdict,
        judged.stable_until,
        judged.reasons,
        truth.ranges,
        settings,
        done == steps,
        torch.stack(strip.states),
        x.cpu() if diverged is None else torch.empty(0),
    )


def check(energy: Energy | HasGradient, x0: Tensor, data: Dataset | Tensor | None, *, steps: int, batch: int) -> None:
    """Whether these can be examined; before hours are spent."""
    if x0.ndim < 2 or len(x0) < 2 or not x0.numel() or x0.dtype not in (torch.float32, torch.float64):
        raise BadInput(
            f"an exam needs at least 2 states (B, ...) of float32 or float64, got {x0.dtype} of shape {tuple(x0.shape)}"
        )
    if not x0.isfinite().all():
        raise BadInput("the states that the exam begins with are not finite")
    if isinstance(data, Tensor) and not data.isfinite().all():
        raise BadInput("the data that samples are to be compared with are not finite")
    if steps < 1 or batch < 1:
        raise BadInput(f"an exam needs at least 1 step and batches of at least 1, got {steps} and {batch}")
    shape = x0.shape[1:] if data is None else data.shape[1:] if isinstance(data, Tensor) else data.shape
    if tuple(shape) != tuple(x0.shape[1:]):
        raise BadInput(f"one of the data has the shape {tuple(shape)}, a state of the start {tuple(x0.shape[1:])}")
    _check_returned(energy, x0[:batch])


def _check_returned(energy: Energy | HasGradient, x: Tensor) -> None:
    """A network that returns (B, 1), or fails, would do so at the first look, hundreds of steps later."""
    walked, tried = cast(Energy, energy), "energy"
    try:
        with frozen(walked, walking=False):
            if is_energy(energy):
                with torch.no_grad():
                    _check_shape(tried, walked(x), x.shape[:1], x)
            tried = "gradient"
            _check_shape(tried, gradient(walked, x), x.shape, x)
    except BadInput:
        raise
    except Exception as error:  # whatever the user's own function does
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"the {tried} of states {tuple(x.shape)} failed with {said}; --debug shows where") from error


def _check_shape(name: str, seen: object, expected: torch.Size, x: Tensor) -> None:
    if not isinstance(seen, Tensor) or seen.shape != expected:
        got = tuple(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
        wanted = f"a tensor of the shape {tuple(expected)}"
        raise BadInput(f"the {name} of states {tuple(x.shape)} must be {wanted}, got {got}")
