import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ebmlife import langevin, recipes, seeded
from ebmlife.data import Batches, InMemory
from ebmlife.errors import BadInput
from ebmlife.sampling.energy import gradient
from ebmlife.training.learner import Learner
from ebmlife.training.recovery import Conditional, Diffusion, LevelNet, LowestEnergy, Progressive, RecoveryTrainer


def numbers(diffusion: Diffusion, name: str) -> list[float]:
    return diffusion(name, torch.arange(diffusion.levels), torch.zeros(diffusion.levels)).tolist()


def test_the_diffusion_is_the_authors() -> None:
    """Six levels of 1000 steps of variance 1e-4 to 0.02: ends at steps 0, 100, ..., 500 and 999."""
    at = Diffusion(6, relative_step=0.1)
    betas = np.linspace(1e-4, 0.02, 1000)
    total = np.cumprod(1 - betas)
    ends = [0, 100, 200, 300, 400, 500]
    assert numbers(at, "kept") == pytest.approx(np.sqrt(total[ends]).tolist())
    assert numbers(at, "spread") == pytest.approx(np.sqrt(1 - total[ends]).tolist())
    ratio = total[[100, 200, 300, 400, 500, 999]] / total[ends]
    assert numbers(at, "sigma") == pytest.approx(np.sqrt(1 - ratio).tolist())
    assert numbers(at, "a") == pytest.approx([*np.sqrt(ratio)[:-1], 1.0])
    assert numbers(at, "given") == [1, 1, 1, 1, 1, 0]
    assert numbers(at, "step")[0] == pytest.approx(0.1 * numbers(at, "sigma")[0])


class Spring(nn.Module):
    """f(y, level) = k |y|^2 / 2, the same at all levels."""

    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k))

    def forward(self, y: Tensor, level: Tensor) -> Tensor:
        return self.k * y.flatten(1).square().sum(1) / 2


def test_the_noise_that_is_learned_is_that_of_the_lowest_level() -> None:
    recipe = recipes.get("digits-recovery")
    at = Diffusion(recipe.levels, relative_step=recipe.relative_step)
    lowest = at("spread", torch.tensor([0]), torch.zeros(1, 1, 8, 8)).item()
    assert lowest == pytest.approx(recipe.noise_learned, rel=1e-3)


def test_a_conditional_energy_is_that_of_y_in_units_of_the_step() -> None:
    at, level = Diffusion(4, relative_step=0.1), torch.tensor([0, 1, 3])
    noisy, u = torch.randn(3, 1, 2, 2), torch.randn(3, 1, 2, 2)
    energy = Conditional(Spring(2.0), at, level, noisy)
    step, sigma = at("step", level, u), at("sigma", level, u)
    y = step * u
    own = y.flatten(1).square().sum(1) / step.flatten() ** 2
    near = ((noisy - y) / sigma).flatten(1).square().sum(1) / 2
    near[2] = 0  # the highest level has no noisier image
    torch.testing.assert_close(energy(u), own + near)


def test_chains_given_a_noisy_image_sample_the_exact_posterior() -> None:
    """Of a spring, y given the noisy image is Gaussian, of precision k / s^2 + 1 / sigma^2 about noisy / sigma^2
    divided by it."""
    at = Diffusion(2, relative_step=0.3)
    level = torch.zeros(4000, dtype=torch.int64)
    noisy = torch.full((4000, 1, 1, 1), 0.7)
    k = 0.02
    energy = Conditional(Spring(k), at, level, noisy)
    u, _ = langevin(energy, noisy / energy.step, steps=400, step_size=1.0, noise=seeded(0))
    y = (energy.step * u).flatten()
    step, sigma = energy.step[0].item(), energy.sigma[0].item()
    precision = k / step**2 + 1 / sigma**2
    assert y.mean().item() == pytest.approx(0.7 / sigma**2 / precision, abs=0.05 / precision**0.5)
    a = step**2 * precision / 2  # of the discretisation
    assert y.var().item() == pytest.approx(2 / (2 - a) / precision, rel=0.06)


def test_the_lowest_energy_and_its_conditional_are_of_images() -> None:
    at = Diffusion(3, relative_step=0.1)
    lowest, x = LowestEnergy(Spring(2.0), at), torch.randn(4, 1, 2, 2)
    zero = torch.zeros(4, dtype=torch.int64)
    a, step, sigma = (at(name, zero, x) for name in ("a", "step", "sigma"))
    own = (a * x / step).flatten(1).square().sum(1)
    torch.testing.assert_close(lowest(x), own)
    noisy = torch.randn(4, 1, 2, 2)
    near = ((noisy - a * x) / sigma).flatten(1).square().sum(1) / 2
    torch.testing.assert_close(lowest.given(noisy)(x), own + near)
    torch.testing.assert_close(gradient(lowest, x), 2 * (a / step).square() * x)
    with pytest.raises(BadInput, match=r"4 images .* got 2"):
        lowest.given(noisy)(x[:2])


def test_the_noisier_image_of_data_is_two_steps_of_the_diffusion() -> None:
    at = Diffusion(3, relative_step=0.1)
    x = torch.full((20_000, 1, 1, 1), 0.8)
    noisy = LowestEnergy(Spring(1.0), at).noisier(x, noise=seeded(0))
    kept, spread, step_a, sigma = (numbers(at, name)[0] for name in ("kept", "spread", "step_a", "sigma"))
    assert noisy.mean().item() == pytest.approx(0.8 * kept * step_a, abs=0.01)
    assert noisy.var().item() == pytest.approx((step_a * spread) ** 2 + sigma**2, rel=0.05)


class Springs(nn.Module):
    """f(y, level) = k_level |y|^2 / 2, every k positive."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.log_k = nn.Parameter(torch.full((levels,), -4.0))

    def forward(self, y: Tensor, level: Tensor) -> Tensor:
        return self.log_k.exp()[level] * y.flatten(1).square().sum(1) / 2


def test_training_finds_the_energy_of_gaussian_data() -> None:
    """Unit variance stays so at all levels, so that y = a x_t has the energy |y|^2 / (2 a^2): k = s^2 / a^2. (The
    lowest level's steps are too small for its chains to arrive.)"""
    rng = torch.Generator().manual_seed(0)
    data = InMemory(torch.randn(2000, 1, 2, 2, generator=rng))
    springs, at = Springs(3), Diffusion(3, relative_step=0.03)
    learner = Learner(springs, torch.optim.Adam(springs.parameters()), learning_rate=5e-2, ema=0.95)
    trainer = RecoveryTrainer(Batches(data, size=200, seed=0), energy=learner, diffusion=at, steps=60, rng=rng)
    trainer.fit(150)
    exact = [(s / a) ** 2 for s, a in zip(numbers(at, "step"), numbers(at, "a"), strict=True)]
    assert learner.ema.log_k.exp().tolist()[1:] == pytest.approx(exact[1:], rel=0.2)


def test_a_level_net_is_told_the_level() -> None:
    inner = nn.Sequential(nn.Flatten(), nn.Linear(5 * 4, 1), nn.Flatten(0))
    net = LevelNet(inner, levels=4)
    y = torch.zeros(4, 1, 2, 2)
    found = net(y, torch.arange(4))
    weight, bias = inner[1].weight[0].view(5, 4), inner[1].bias
    torch.testing.assert_close(found, weight[1:].sum(1) + bias)


def test_samples_come_down_level_by_level() -> None:
    """Without an energy, the highest level is a random walk, and chains of the others only stay near their noisy image:
    a variance that is known at every level."""
    at, steps = Diffusion(3, relative_step=0.2), 5
    x = Progressive(Spring(0.0), at, (1, 2, 2), steps=steps)(4000, rng=torch.Generator().manual_seed(0)).x
    step, sigma, a = (numbers(at, name) for name in ("step", "sigma", "a"))
    variance = 1 + steps * step[2] ** 2
    for t in (1, 0):
        kept = (1 - step[t] ** 2 / (2 * sigma[t] ** 2)) ** 2
        variance = (variance + step[t] ** 2 * (1 - kept**steps) / (1 - kept)) / a[t] ** 2
    assert x.var().item() == pytest.approx(variance, rel=0.05)
