"""Classifiers by cross-entropy, and the energy that a classifier implies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.data import Batches, Dataset
from ebmlife.sampling.rng import Noise
from ebmlife.training.base import Loop, Report
from ebmlife.training.learner import Learner


@dataclass(frozen=True)
class ClassifierMetrics(Report):
    """The metrics of one update of a classifier."""

    headline: ClassVar[str] = "loss"

    loss: float  # mean cross-entropy of the batch, in nats
    accuracy: float  # of the batch, before this update
    test_accuracy: float | None  # of the averaged weights on the test data, every `test_every` updates


class ClassifierTrainer(Loop[ClassifierMetrics]):
    """Trains a classifier by cross-entropy.

    Args:
        batches: The data, with labels.
        classifier: The learner of the classifier.
        test: Measures the accuracy of a classifier on test data. None: it is not measured.
        test_every: Number of updates between two tests.
        data_noise: Standard deviation of the noise on the data.
        noise: Draws that noise.
        device: Where the network is.
    """

    stateful = ("batches", "classifier")

    def __init__(
        self,
        batches: Batches,
        *,
        classifier: Learner,
        test: Callable[[nn.Module], float] | None = None,
        test_every: int = 500,
        data_noise: float = 0.0,
        noise: Noise = torch.randn_like,
        device: torch.device | str = "cpu",
    ) -> None:
        self.batches, self.classifier, self.test, self.test_every = batches, classifier, test, test_every
        self.data_noise, self.noise, self.device = data_noise, noise, device

    def step(self) -> ClassifierMetrics:
        """Makes one update that lowers the mean of -log softmax(f(x))[y]."""
        x, labels = (tensor.to(self.device) for tensor in self.batches.next_labelled())
        logits = self.classifier.net(x + self.data_noise * self.noise(x))
        loss = F.cross_entropy(logits, labels)
        self.classifier.descend(loss, update=self.update)
        self.update += 1
        due = self.test is not None and self.update % self.test_every == 0
        return ClassifierMetrics(
            update=self.update,
            data_seconds=self.batches.waited(),
            loss=loss.item(),
            accuracy=(logits.argmax(1) == labels).float().mean().item(),
            test_accuracy=self.test(self.classifier.ema) if due and self.test is not None else None,
        )


@torch.no_grad()
def accuracy(classifier: nn.Module, data: Dataset, *, device: torch.device | str = "cpu", batch: int = 500) -> float:
    """Returns the share of a data set's images that the classifier assigns to their class."""
    assert data.labels is not None
    right = 0
    for rows in torch.split(torch.arange(len(data)), batch):
        right += int((classifier(data.take(rows).to(device)).argmax(1).cpu() == data.labels[rows]).sum())
    return right / len(data)


class ImpliedEnergy(nn.Module):
    """E(x) = -log sum over classes of exp f(x)[y]: the energy that any classifier implies (Grathwohl et al. 2020)."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        return -torch.logsumexp(self.classifier(x), 1)
