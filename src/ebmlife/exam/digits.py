"""A small classifier of the 8x8 digits, trained once within seconds and cached, and its features."""

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.data import digits
from ebmlife.sampling.rng import generator
from ebmlife.storage import cache

_VERSION = 1  # another classifier gives other distances: its cache entry needs another name


class DigitsClassifier(nn.Module):
    """(B, 1, 8, 8) in [-1, 1] -> logits (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.hidden, self.out = nn.Linear(64 * 16, 64), nn.Linear(64, 10)

    def features(self, x: Tensor) -> Tensor:
        """Returns the features (B, 64) of the Fréchet distance of digits."""
        h = F.max_pool2d(F.relu(self.conv_2(F.relu(self.conv_1(x)))), 2)
        return F.relu(self.hidden(h.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.features(x))
        return logits


@functools.cache
def digits_classifier() -> DigitsClassifier:
    """Returns the frozen classifier, from the cache or trained now; the same machine gives the same weights."""
    classifier = DigitsClassifier()
    weights = cache.tensors(f"digits-classifier-{_VERSION}", lambda: dict(_trained().state_dict()))
    classifier.load_state_dict(weights)
    return classifier.eval().requires_grad_(False)


@torch.inference_mode(False)
@torch.enable_grad()  # the caller may be in no_grad mode
def _trained(*, updates: int = 1500, batch: int = 128) -> DigitsClassifier:
    """Trains on four fifths of the digits, with noise on the images; the rest is for tests."""
    data, rng = digits(), generator(0, "digits classifier")
    assert data.labels is not None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        classifier = DigitsClassifier()
    optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-3)
    rows = training_rows()
    for _ in range(updates):
        chosen = rows[torch.randint(len(rows), (batch,), generator=rng)]
        x = data.take(chosen)
        x = x + 0.1 * torch.randn(x.shape, generator=rng)
        optimizer.zero_grad()
        F.cross_entropy(classifier(x), data.labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return classifier


def training_rows() -> Tensor:
    return _split()[0]


def held_out_rows() -> Tensor:
    return _split()[1]


def _split() -> tuple[Tensor, Tensor]:
    """Returns (rows to train on, rows to test on), four fifths and one fifth."""
    order = torch.randperm(len(digits()), generator=generator(0, "digits split"))
    most = len(order) * 4 // 5
    return order[:most], order[most:]
