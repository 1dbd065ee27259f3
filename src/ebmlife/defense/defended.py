"""A classifier that an energy defends: images are purified by Langevin steps before they are classified."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ebmlife.defense import gradients
from ebmlife.defense.gradients import Gradient, Passage
from ebmlife.errors import BadInput, nearest
from ebmlife.sampling.energy import frozen, gaussian
from ebmlife.sampling.purifier import ChainGroup, Purifier, check_range

AVERAGES = ("logits", "probabilities")


class DefendedClassifier(nn.Module):
    """F_H(x) = mean over h of f(T_h(x)): logits averaged over `replicas` independent purifications (eq. f_hat).

    It is an ordinary nn.Module, and its gradient is the one that `gradient` selects. The energy and the classifier see
    at most `purifier.batch` images at a time; a backward pass keeps the B x replicas purified images in memory.

    Args:
        classifier: An nn.Module from images (B, C, H, W) in [-1, 1] to logits (B, classes).
        purifier: T, such as `model.purifier()`.
        replicas: Number of purifications of each image (H in the paper).
        gradient: How an attacker's gradient passes the purifier: a name in `defense.gradients.MODES`, or a `Gradient`.
        average: "logits", or "probabilities": f is then the softmax of the logits, and attacks treat its mean as
            logits. The authors evaluate their ImageNet classifier in this way, because it ends in softmax.

    Raises:
        BadInput: `replicas` is below 1, a name is unknown, or the purifier has another sampler than "langevin".
    """

    def __init__(
        self,
        classifier: nn.Module,
        purifier: Purifier,
        *,
        replicas: int = 16,
        gradient: str | Gradient = "bpda",
        average: str = "logits",
    ) -> None:
        super().__init__()
        if replicas < 1:
            raise BadInput(f"a defended classifier needs at least 1 replica, got {replicas}")
        if average not in AVERAGES:
            raise BadInput(f"unknown average {average!r}{nearest(average, AVERAGES)}")
        if purifier.sampler != "langevin":  # gradients pass through Langevin steps
            raise BadInput(f"a defended classifier needs a purifier with the sampler langevin, got {purifier.sampler}")
        self.classifier, self.purifier, self.replicas, self.average = classifier, purifier, replicas, average
        self.gradient = gradients.find(gradient)

    def forward(self, x: Tensor, *, replicas: int | None = None, seeds: Sequence[int] | None = None) -> Tensor:
        """Returns the averaged logits (B, classes).

        Args:
            x: Images (B, C, H, W) in [-1, 1].
            replicas: Number of purifications of each image; None: the model's own.
            seeds: A seed for the noise of each image; None: new ones.
        """
        check_range(x)
        if seeds is None:
            known = self.gradient.known_noise and self.purifier.seed is None
            seeds = [0] * len(x) if known else self.purifier.seeds(len(x))
        replicas = self.replicas if replicas is None else replicas
        logits: Tensor = _Defended.apply(x, self, seeds, replicas if self.purifier.steps else 1)
        return logits

    def with_gradient(self, gradient: str | Gradient) -> "DefendedClassifier":
        """Returns the same defense with another gradient."""
        return DefendedClassifier(
            self.classifier, self.purifier, replicas=self.replicas, gradient=gradient, average=self.average
        )

    @property
    def averaged(self) -> nn.Module:
        """The module f, whose mean over purified images is F."""
        return nn.Sequential(self.classifier, nn.Softmax(1)) if self.average == "probabilities" else self.classifier

    def classify(self, walked: Tensor) -> Tensor:
        """Returns f of images that are not purified here: the classifier's logits, or its probabilities."""
        with frozen(self.averaged, walking=False), torch.no_grad():
            logits: Tensor = self.averaged(walked)
        return logits

    def passage(self, x: Tensor, walked: Tensor, part: Sequence[ChainGroup]) -> Passage:
        """Returns the inputs of a gradient through the chains from x to `walked`."""
        p = self.purifier
        noise = p.noise(part, x.device)
        return Passage(self.averaged, p.energy, p.steps, p.step_size, p.clip, x, walked, noise)


def undefended(classifier: nn.Module) -> DefendedClassifier:
    """Returns the classifier without a defense: a DefendedClassifier with 0 Langevin steps."""
    return DefendedClassifier(classifier, Purifier(gaussian(1.0), steps=0), replicas=1)


class _Defended(torch.autograd.Function):
    """(x, defended classifier, seeds, replicas) -> averaged logits. The backward pass runs the classifier again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, robust: DefendedClassifier, seeds: Sequence[int], replicas: int) -> Tensor:
        ctx.robust, ctx.replicas, ctx.seeds = robust, replicas, list(seeds)
        ctx.walked = []
        ctx.save_for_backward(x)
        if not len(x):
            return robust.classify(x.new_zeros(1, *x.shape[1:]))[
                :0
            ]  # the logits of one image give the number of classes
        rows: list[list[Tensor]] = [[] for _ in seeds]
        for part in robust.purifier.parts(seeds, replicas=replicas):
            walked = robust.purifier.walk(_starts(x, part), robust.purifier.noise(part, x.device))
            for group, logits in _by_group(part, robust.classify(walked)):
                rows[group.image].append(logits.sum(0))
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
            for group, grad in _by_group(part, robust.gradient(passage, _starts(v, part) / ctx.replicas)):
                pulled[group.image] += grad.sum(0)
        return pulled, None, None, None


def _starts(x: Tensor, part: Sequence[ChainGroup]) -> Tensor:
    """Returns the image of each group, once for each of its chains."""
    rows = torch.tensor([group.image for group in part for _ in range(group.chains)], device=x.device)
    return x.detach()[rows]


def _by_group(part: Sequence[ChainGroup], values: Tensor) -> Iterator[tuple[ChainGroup, Tensor]]:
    yield from zip(part, torch.split(values, [group.chains for group in part]), strict=True)


def _sum(values: Sequence[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
