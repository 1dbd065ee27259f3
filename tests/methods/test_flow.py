import math

import pytest
import torch
from torch import Tensor

from ebmlife import recipes
from ebmlife.data import Batches, InMemory
from ebmlife.errors import BadInput
from ebmlife.training.flow import FlowTrainer, bits, dequantized
from ebmlife.training.learner import Learner

pytest.importorskip("normflows", reason="the extra 'flows' is not installed")

from ebmlife.nets import Glow, GlowGenerator


def unsettled(glow: Glow) -> Glow:
    """Random weights instead of the zeros with which a Glow begins, and with initialized activation norms."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in glow.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    glow(torch.randn(64, *image(glow), generator=rng))
    return glow.double()


def image(glow: Glow) -> tuple[int, int, int]:
    channels, size, _ = glow.latents[-1]
    return (channels // 4, 2 * size, 2 * size) if len(glow.latents) == 1 else (channels // 2, 2 * size, 2 * size)


@pytest.mark.parametrize(("size", "channels", "scales"), [(4, 1, 1), (4, 1, 2), (4, 2, 1)])
def test_the_density_is_that_of_the_change_of_variables(size: int, channels: int, scales: int) -> None:
    """-log p(x) = |z|^2 / 2 + d log(2 pi) / 2 - log |det dz/dx|, with the Jacobian of the generator by autograd."""
    torch.manual_seed(0)
    glow = unsettled(Glow(size, channels, scales=scales, depth=2, width=8))
    generator = GlowGenerator(glow)
    d = channels * size * size
    assert generator.latent == d
    z = torch.randn(d, dtype=torch.float64)

    def flat(z: Tensor) -> Tensor:
        return generator(z[None]).flatten()

    jacobian = torch.autograd.functional.jacobian(flat, z)
    _, log_det = torch.linalg.slogdet(jacobian)
    expected = z.square().sum() / 2 + d / 2 * math.log(2 * math.pi) + log_det
    torch.testing.assert_close(glow(generator(z[None]))[0], expected, rtol=1e-6, atol=1e-6)


def test_the_density_of_four_pixels_integrates_to_one() -> None:
    """By importance sampling from a wide Gaussian q: the mean of p(x) / q(x) over x ~ q is 1."""
    torch.manual_seed(0)
    glow = unsettled(Glow(2, 1, scales=1, depth=2, width=8))
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        x = GlowGenerator(glow)(torch.randn(20_000, 4, generator=rng, dtype=torch.float64)).flatten(1)
        mean, covariance = x.mean(0), 2 * torch.cov(x.T)
        q = torch.distributions.MultivariateNormal(mean, covariance)
        proposals = (
            mean + torch.randn(200_000, 4, generator=rng, dtype=torch.float64) @ torch.linalg.cholesky(covariance).T
        )
        weights = (-glow(proposals.view(-1, 1, 2, 2)) - q.log_prob(proposals)).exp()
    assert weights.mean().item() == pytest.approx(1, abs=5 * weights.std().item() / 200_000**0.5)
    assert weights.std().item() / 200_000**0.5 < 0.02  # else nothing was shown


def test_levels_are_spread_over_their_own_bins_which_tile_the_range() -> None:
    levels = 17
    values = torch.linspace(-1, 1, levels)
    x = values.repeat(4000, 1)
    spread = dequantized(x, levels, torch.Generator().manual_seed(0))
    offset = (spread - x) * (levels - 1) / 2  # in bins
    assert -0.5 <= offset.min() < -0.49
    assert 0.49 < offset.max() <= 0.5
    assert torch.equal(((spread + 1) * (levels - 1) / 2).round(), ((x + 1) * (levels - 1) / 2).round())


def test_the_noise_that_is_learned_is_that_of_the_bins() -> None:
    recipe = recipes.get("digits-glow")
    spread = dequantized(torch.zeros(100_000), recipe.levels, torch.Generator().manual_seed(0))
    assert spread.std().item() == pytest.approx(recipe.noise_learned, rel=0.01)


def test_bits_of_a_uniform_density_are_those_of_as_many_levels() -> None:
    """A density that is flat over the bins gives each of the levels the same probability: log2(levels) bits."""
    levels, pixels = 17, 3
    volume = pixels * math.log(levels * 2 / (levels - 1))  # log of the whole range, bins of both ends included
    assert bits(torch.tensor([volume]), levels=levels, pixels=pixels).item() == pytest.approx(math.log2(levels))


def test_training_finds_the_entropy_of_gaussian_noise() -> None:
    """Of independent pixels of standard deviation s, no density has fewer than log2(s sqrt(2 pi e)) bits."""
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    spread, levels = 0.2, 10_001  # bins so fine that they do not matter
    data = InMemory(spread * torch.randn(2000, 1, 4, 4, generator=rng))
    glow = Glow(4, 1, scales=1, depth=2, width=8)
    learner = Learner(glow, torch.optim.Adam(glow.parameters()), learning_rate=1e-3, ema=0.9)
    trainer = FlowTrainer(Batches(data, size=500, seed=0), flow=learner, levels=levels, rng=rng)
    found = [trainer.step().bits_per_pixel for _ in range(60)][-1]
    entropy = math.log2(spread * math.sqrt(2 * math.pi * math.e)) - math.log2(2 / (levels - 1))
    assert found == pytest.approx(entropy, abs=0.05)


def test_images_that_cannot_be_halved_so_often_are_refused() -> None:
    with pytest.raises(BadInput, match=r"net\.scales 4 .*8x8; make it smaller"):
        Glow(8, 1, scales=4)
