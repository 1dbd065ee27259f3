import pytest
import torch

from ebmlife.errors import BadInput
from ebmlife.exam import fd_digits, frechet_distance, moments
from ebmlife.exam.frechet import Moments


def test_moments_are_the_batched_mean_and_covariance() -> None:
    x = torch.randn(1000, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64) + 1e4
    got = moments(x.split(77))
    torch.testing.assert_close(got.mean, x.mean(0))
    torch.testing.assert_close(got.covariance, torch.cov(x.T))
    assert got.count == 1000


def test_distance_of_gaussians_in_closed_form() -> None:
    """Diagonal covariances: |m - n|^2 + sum (s - t)^2 over standard deviations s, t."""
    s, t = torch.tensor([1.0, 2.0, 0.0]).double(), torch.tensor([3.0, 0.5, 2.0]).double()
    a = Moments(torch.zeros(3).double(), torch.diag(s**2), 9)
    b = Moments(torch.tensor([1.0, 0.0, 2.0]).double(), torch.diag(t**2), 9)
    assert frechet_distance(a, b) == pytest.approx(5 + (s - t).square().sum().item())


def test_distance_does_not_depend_on_the_basis_or_the_order() -> None:
    q, _ = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))
    x, y = torch.randn(50, 5, dtype=torch.float64), 2 * torch.randn(60, 5, dtype=torch.float64) + 1
    straight = frechet_distance(moments([x]), moments([y]))
    assert frechet_distance(moments([x @ q]), moments([y @ q])) == pytest.approx(straight)
    assert frechet_distance(moments([y]), moments([x])) == pytest.approx(straight)


def test_few_images_give_a_real_number() -> None:
    x, y = torch.randn(2, 10, 64)
    distance = frechet_distance(moments([x]), moments([y]))
    assert distance > 0
    assert frechet_distance(moments([x]), moments([x])) == pytest.approx(0, abs=1e-4)


def test_one_image_is_too_few() -> None:
    with pytest.raises(BadInput, match="at least 2"):
        moments([torch.zeros(1, 4)])


def test_fd_digits_behaves_as_a_distance_of_images_should() -> None:
    from ebmlife.data import digits

    data = digits()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    real = data.take(order)
    half, few = fd_digits([real[:900]]), fd_digits([real[:200]])
    noisy = [fd_digits([real[:900] + s * torch.randn(900, 1, 8, 8)]) for s in (0.1, 0.3, 0.6, 1.0)]
    noise = fd_digits([2 * torch.rand(900, 1, 8, 8) - 1])
    assert half < few  # the more images, the nearer
    assert [half, *noisy] == sorted([half, *noisy])  # it grows with added noise
    assert noise > 20 * half
