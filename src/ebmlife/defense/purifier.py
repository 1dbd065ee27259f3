"""The defence of any classifier by an energy: images are purified by Langevin before they are classified."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ebmlife.defense import gradients
from ebmlife.defense.gradients import Gradient, Passage
from ebmlife.errors import BadInput, Diverged, nearest
from ebmlife.sampling.energy import Energy, frozen, gaussian
from ebmlife.sampling.loop import langevin
from ebmlife.sampling.rng import PerImageNoise, derive_seed

_FAR = 10.0  # walked states and noise are well within, pixels of 0 to 255 well beyond
AVERAGES = ("logits", "probabilities")
_WIDTH = 8  # chains of a lane: enough that drawing its noise costs little more than drawing that of all chains at once


class Lane(NamedTuple):
    """Chains that start at one image and draw from one generator."""

    image: int  # row of the batch
    seed: int
    chains: int


class Purifier(nn.Module):
    """T(x): `steps` Langevin steps on `energy`, each image a chain of its own; x -> x, no gradient.

    Noise is new each time, from PyTorch's global generator; with `seed` it is always the same and the same for every
    image, so that what becomes of an image does not depend on the others of its batch. At most `batch` chains walk
    at once. A batch below 8 changes which noise they draw, nothing else does.
    """

    def __init__(
        self,
        energy: Energy,
        *,
        steps: int = 1500,  # K in the paper
        step_size: float = 1e-2,
        clip: float | None = None,
        seed: int | None = None,
        batch: int = 256,
    ) -> None:
        super().__init__()
        if steps < 0 or not 0 < step_size < float("inf") or batch < 1:
            raise BadInput(
                "a purifier needs steps of at least 0, a step_size above 0 and a batch of at least 1, "
                f"got {steps}, {step_size} and {batch}"
            )
        self.energy = energy
        self.steps, self.step_size, self.clip, self.seed, self.batch = steps, step_size, clip, seed, batch

    def forward(self, x: Tensor, *, seeds: Sequence[int] | None = None) -> Tensor:
        """One chain from each image; `seeds`: one for each image, in place of new ones."""
        _refuse_levels(x)
        purified = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part in self.parts(self.seeds(len(x)) if seeds is None else seeds, replicas=1):
            rows = [lane.image for lane in part]
            purified[rows] = self.walk(x[rows], self.noise(part, x.device))
        return purified

    def seeds(self, images: int) -> list[int]:
        """A seed for each image: new ones, or the purifier's own."""
        if self.seed is not None:
            return [self.seed] * images
        drawn: list[int] = torch.randint(2**62, (images,)).tolist()
        return drawn

    def parts(self, seeds: Sequence[int], *, replicas: int) -> Iterator[list[Lane]]:
        """The lanes of so many chains from each image, in parts of at most `batch` chains."""
        width = min(_WIDTH, self.batch)
        part: list[Lane] = []
        for image, seed in enumerate(seeds):
            for first in range(0, replicas, width):
                lane = Lane(image, derive_seed(seed, f"lane {first}"), min(width, replicas - first))
                if sum(other.chains for other in part) + lane.chains > self.batch:
                    yield part
                    part = []
                part.append(lane)
        if part:
            yield part

    def noise(self, part: Sequence[Lane], device: torch.device) -> PerImageNoise:
        return PerImageNoise([lane.seed for lane in part], [lane.chains for lane in part], device=device)

    def trajectory(self, x: Tensor, *, at: Sequence[int], seeds: Sequence[int]) -> Tensor:
        """(len(at), B, ...): the states after those numbers of steps, in order, on the way that `forward` goes."""
        _refuse_levels(x)
        found = [torch.empty_like(x) for _ in at]
        for part in self.parts(seeds, replicas=1):
            rows = [lane.image for lane in part]
            state, noise = x[rows], self.noise(part, x.device)
            for kept, (done, step) in zip(found, pairwise([0, *at]), strict=True):
                state = self.walk(state, noise, steps=step - done)
                kept[rows] = state
        return torch.stack(found)

    def walk(self, x: Tensor, noise: PerImageNoise, *, steps: int | None = None) -> Tensor:
        """Chains from x, together; `steps` in place of the purifier's own."""
        steps = self.steps if steps is None else steps
        walked, _ = langevin(self.energy, x, steps=steps, step_size=self.step_size, noise=noise, clip=self.clip)
        if not walked.isfinite().all():
            raise Diverged(f"a purified image is not finite after {steps} steps of size {self.step_size}")
        return walked


class DefendedClassifier(nn.Module):
    """F_H(x) = mean over h of f(T_h(x)): logits averaged over `replicas` independent purifications (eq. f_hat).

    With average="probabilities", f is softmax of the logits, and the mean is what is returned, and what an attack takes
    for logits: so the paper's authors evaluate on ImageNet, where their classifier ends in softmax.

    An nn.Module as any other: what differentiates it gets the gradient that `gradient` names or is. The energy and the
    classifier see at most `purifier.batch` images at once; a backward pass needs the B x replicas purified images kept.
    """

    def __init__(
        self,
        classifier: nn.Module,
        purifier: Purifier,
        *,
        replicas: int = 16,  # H in the paper
        gradient: str | Gradient = "bpda",
        average: str = "logits",  # of AVERAGES
    ) -> None:
        super().__init__()
        if replicas < 1:
            raise BadInput(f"a defended classifier needs at least 1 replica, got {replicas}")
        if average not in AVERAGES:
            raise BadInput(f"unknown average {average!r}{nearest(average, AVERAGES)}")
        self.classifier, self.purifier, self.replicas, self.average = classifier, purifier, replicas, average
        self.gradient = gradients.find(gradient)

    def forward(self, x: Tensor, *, replicas: int | None = None, seeds: Sequence[int] | None = None) -> Tensor:
        """Logits (B, classes); `replicas` in place of its own number, `seeds` (one for each image) of new ones."""
        _refuse_levels(x)
        if seeds is None:
            known = self.gradient.known_noise and self.purifier.seed is None
            seeds = [0] * len(x) if known else self.purifier.seeds(len(x))
        wanted = self.replicas if replicas is None else replicas
        logits: Tensor = _Defended.apply(x, self, seeds, wanted if self.purifier.steps else 1)
        return logits

    def with_gradient(self, gradient: str | Gradient) -> "DefendedClassifier":
        """The same defence under another attack."""
        return DefendedClassifier(
            self.classifier, self.purifier, replicas=self.replicas, gradient=gradient, average=self.average
        )

    @property
    def averaged(self) -> nn.Module:
        """f, whose mean over purified images is F."""
        return nn.Sequential(self.classifier, nn.Softmax(1)) if self.average == "probabilities" else self.classifier

    def classify(self, walked: Tensor) -> Tensor:
        """What is averaged: the bare classifier's logits, or its probabilities."""
        with frozen(self.averaged, walking=False), torch.no_grad():
            logits: Tensor = self.averaged(walked)
        return logits

    def passage(self, x: Tensor, walked: Tensor, part: Sequence[Lane]) -> Passage:
        p = self.purifier
        noise = p.noise(part, x.device)
        return Passage(self.averaged, p.energy, p.steps, p.step_size, p.clip, x, walked, noise)


def undefended(classifier: nn.Module) -> DefendedClassifier:
    """The classifier alone, to be attacked by the same means: purified by no step."""
    return DefendedClassifier(classifier, Purifier(gaussian(1.0), steps=0), replicas=1)


class _Defended(torch.autograd.Function):
    """(x, defence, seeds, replicas) -> averaged logits, part by part; backward, the classifier runs again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, robust: DefendedClassifier, seeds: Sequence[int], replicas: int) -> Tensor:
        ctx.robust, ctx.replicas, ctx.seeds = robust, replicas, list(seeds)
        ctx.walked = []
        ctx.save_for_backward(x)
        if not len(x):
            return robust.classify(x.new_zeros(1, *x.shape[1:]))[:0]  # how many classes there are, one image tells
        rows: list[list[Tensor]] = [[] for _ in seeds]
        for part in robust.purifier.parts(seeds, replicas=replicas):
            walked = robust.purifier.walk(_starts(x, part), robust.purifier.noise(part, x.device))
            for lane, logits in _by_lane(part, robust.classify(walked)):
                rows[lane.image].append(logits.sum(0))
            if ctx.needs_input_grad[0]:
                ctx.walked.append(walked)
        return torch.stack([_sum(sums) / replicas for sums in rows])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        robust: DefendedClassifier = ctx.robust
        pulled = torch.zeros_like(x)
        for part, walked in zip(robust.purifier.parts(ctx.seeds, replicas=ctx.replicas), ctx.walked, strict=True):
            passage = robust.passage(_starts(x, part), walked, part)
            for lane, grad in _by_lane(part, robust.gradient(passage, _starts(v, part) / ctx.replicas)):
                pulled[lane.image] += grad.sum(0)
        return pulled, None, None, None


def _refuse_levels(x: Tensor) -> None:
    """Images of 0 to 255 would be purified to nothing, and no error would tell."""
    most = x.detach().abs().max().item() if x.numel() else 0.0
    if most > _FAR:
        raise BadInput(f"images are in [-1, 1], got values up to {most:g}; scale pixels by x / 127.5 - 1")


def _starts(x: Tensor, part: Sequence[Lane]) -> Tensor:
    """Each lane's image, once for each of its chains."""
    rows = torch.tensor([lane.image for lane in part for _ in range(lane.chains)], device=x.device)
    return x.detach()[rows]


def _by_lane(part: Sequence[Lane], values: Tensor) -> Iterator[tuple[Lane, Tensor]]:
    yield from zip(part, torch.split(values, [lane.chains for lane in part]), strict=True)


def _sum(values: Sequence[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
