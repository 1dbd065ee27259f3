import pytest
import torch
from torch import Tensor, nn

from ebmlife import langevin
from ebmlife.data import Batches, InMemory
from ebmlife.errors import BadInput
from ebmlife.nets import ScoreNet
from ebmlife.sampling.energy import curvature, gradient
from ebmlife.training.learner import Learner
from ebmlife.training.score import ScoreEnergy, ScoreTrainer, annealed, geometric, score_loss

SPREAD = 0.5  # of the Gaussian data below


class Linear(nn.Module):
    """s(x, sigma) = -scale x / (spread^2 + sigma^2): the score of Gaussian data under noise where scale is 1."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return -self.scale * x / (SPREAD**2 + sigma.view(-1, *[1] * (x.ndim - 1)).square())


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_the_loss_is_least_at_the_true_score_and_is_known_there(sigma: float) -> None:
    """For Gaussian data, sigma s + e has the variance spread^2 / (spread^2 + sigma^2) a pixel at the minimum."""
    rng = torch.Generator().manual_seed(0)
    data, noise = (torch.randn(50_000, 1, 2, 2, generator=rng) for _ in range(2))
    noisy, sigmas = SPREAD * data + sigma * noise, torch.full((50_000,), sigma)
    losses = {scale: score_loss(Linear(scale)(noisy, sigmas), noise, sigmas).item() for scale in (0.9, 1.0, 1.1)}
    assert min(losses, key=losses.__getitem__) == 1.0
    assert losses[1.0] == pytest.approx(4 / 2 * SPREAD**2 / (SPREAD**2 + sigma**2), rel=0.02)
    assert score_loss(torch.zeros_like(noisy), noise, sigmas).item() == pytest.approx(4 / 2, rel=0.02)


def test_training_finds_the_score_of_a_gaussian() -> None:
    rng = torch.Generator().manual_seed(0)
    data = InMemory(SPREAD * torch.randn(4000, 1, 2, 2, generator=rng))
    net = Linear(0.3)
    learner = Learner(net, torch.optim.Adam(net.parameters()), learning_rate=2e-2, ema=0.9)
    trainer = ScoreTrainer(Batches(data, size=200, seed=0), score=learner, sigmas=geometric(2, 0.1, 5), rng=rng)
    trainer.fit(400)
    assert learner.ema.scale.item() == pytest.approx(1, abs=0.05)


def test_levels_are_geometric() -> None:
    assert geometric(8, 0.5, 5) == pytest.approx([8, 4, 2, 1, 0.5])


def test_langevin_on_a_score_samples_its_density() -> None:
    """On the exact score of N(0, v), v = spread^2 + sigma^2, discretised Langevin has variance 2 v / (2 - a)."""
    sigma, step_size = 0.3, 0.3
    energy, variance = ScoreEnergy(Linear(), sigma), SPREAD**2 + sigma**2
    noise = torch.Generator().manual_seed(1)
    x, _ = langevin(
        energy,
        torch.zeros(4000, 1, 2, 2),
        steps=200,
        step_size=step_size,
        noise=lambda x: torch.randn(x.shape, generator=noise),
    )
    a = step_size**2 / (2 * variance)
    assert x.var().item() == pytest.approx(2 * variance / (2 - a), rel=0.04)


def test_the_energy_of_a_conservative_score_is_its_integral() -> None:
    energy = ScoreEnergy(Linear(), 0.3)
    x = torch.randn(5, 1, 2, 2)
    expected = x.flatten(1).square().sum(1) / (2 * (SPREAD**2 + 0.3**2))
    torch.testing.assert_close(energy(x), expected)
    torch.testing.assert_close(gradient(energy, x), x / (SPREAD**2 + 0.3**2))


class Turning(nn.Module):
    """s(x) = -A x with an A that is not symmetric: the score of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return -(x.flatten(1) @ self.matrix.T).view_as(x)


def test_an_attacker_differentiates_through_a_score_that_no_energy_has() -> None:
    energy = ScoreEnergy(Turning(), 0.3)
    x, v = torch.randn(2, 3, 1, 2, 2)
    torch.testing.assert_close(curvature(energy, x, v).flatten(1), v.flatten(1) @ energy.net.matrix.detach())
    walked = x.clone().requires_grad_()
    step = walked + 0.1**2 / 2 * energy.score(walked)
    (exact,) = torch.autograd.grad(step, walked, v)
    torch.testing.assert_close(v - 0.1**2 / 2 * curvature(energy, x, v), exact)


def test_annealing_begins_with_the_largest_noise_and_ends_in_the_data() -> None:
    start = annealed(Linear(), geometric(2, 0.3, 4), (1, 2, 2), steps=60, relative_step=0.7)
    x = start(3000, rng=torch.Generator().manual_seed(0)).x
    variance = SPREAD**2 + 0.3**2
    a = (0.7 * 0.3) ** 2 / (2 * variance)
    assert x.var().item() == pytest.approx(2 * variance / (2 - a), rel=0.06)


@pytest.mark.parametrize("size", [4, 8, 16, 28, 32])
@pytest.mark.parametrize("channels", [1, 3])
def test_score_networks_keep_the_shape_and_know_the_noise(size: int, channels: int) -> None:
    net = ScoreNet(size, width=6, channels=channels)
    x = torch.randn(2, channels, size, size)
    fine, coarse = (net(x, torch.full((2,), sigma)) for sigma in (0.1, 1.0))
    assert fine.shape == x.shape
    assert not torch.allclose(fine * 0.1, coarse, atol=1e-4)  # more than the factor 1 / sigma


def test_other_sizes_have_no_score_network() -> None:
    with pytest.raises(BadInput, match="power of 2 and at least 4, not 12"):
        ScoreNet(12)
