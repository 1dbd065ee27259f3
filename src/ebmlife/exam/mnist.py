"""A small classifier of MNIST, trained once within a minute and cached, its features and its confidence."""

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.data import mnist
from ebmlife.sampling.rng import generator
from ebmlife.storage import cache

FOLDER = "~/.cache/ebmlife/mnist"  # where recipes too look for MNIST by default
_VERSION = 1  # another classifier gives other distances: its cache entry needs another name


class MNISTClassifier(nn.Module):
    """(B, 1, 28, 28) in [-1, 1] -> logits (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.conv_3 = nn.Conv2d(32, 32, 3, padding=1)
        self.hidden, self.out = nn.Linear(32 * 49, 64), nn.Linear(64, 10)

    def features(self, x: Tensor) -> Tensor:
        """Returns the features (B, 64) of the Fréchet distance of MNIST."""
        h = F.max_pool2d(F.relu(self.conv_1(x)), 2)
        h = F.max_pool2d(F.relu(self.conv_3(F.relu(self.conv_2(h)))), 2)
        return F.relu(self.hidden(h.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.features(x))
        return logits


@functools.cache
def mnist_classifier() -> MNISTClassifier:
    """Returns the frozen classifier, from the cache or trained now; the same machine gives the same weights.

    Raises:
        BadInput: It is not cached, and MNIST is not in its default folder.
    """
    classifier = MNISTClassifier()
    weights = cache.tensors(f"mnist-classifier-{_VERSION}", lambda: dict(_trained().state_dict()))
    classifier.load_state_dict(weights)
    return classifier.eval().requires_grad_(False)


def confidence(samples: Tensor) -> Tensor:
    """Returns the largest class probability (B,) of each image, by the classifier.

    Args:
        samples: Images (B, 1, 28, 28) in [-1, 1].
    """
    with torch.no_grad():
        found: Tensor = mnist_classifier()(samples.cpu()).softmax(1).amax(1)
    return found


@torch.inference_mode(False)
@torch.enable_grad()  # the caller may be in no_grad mode
def _trained(*, updates: int = 2000, batch: int = 128) -> MNISTClassifier:
    """Trains on the training images with noise of several strengths, as samples have some; test images are unseen."""
    data, rng = mnist(FOLDER, train=True), generator(0, "mnist classifier")
    assert data.labels is not None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        classifier = MNISTClassifier()
    optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, updates)
    for _ in range(updates):
        rows = torch.randint(len(data), (batch,), generator=rng)
        x = data.take(rows)
        scale = 0.2 * torch.rand(batch, 1, 1, 1, generator=rng)
        x = x + scale * torch.randn(x.shape, generator=rng)
        optimizer.zero_grad()
        F.cross_entropy(classifier(x), data.labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        falling.step()
    return classifier
