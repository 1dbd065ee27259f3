import math

import pytest
import torch

from ebmlife.data import TOYS, Mixture, Rings, Spirals, toy
from ebmlife.errors import BadInput

DENSITIES = [
    Mixture(),
    Mixture(count=3, radius=0.4, scale=0.2),
    Rings(),
    Rings(radii=(0.05, 0.5), scale=0.1),  # the inner ring is cut off at the centre
    Spirals(),
    Spirals(arms=3, turns=1.0, nodes=100),
]
SIDE = 300


def grid(reach: float) -> tuple[torch.Tensor, float]:
    """The midpoints (SIDE^2, 2) of a fine grid over [-reach, reach]^2, and the area of a cell."""
    step = 2 * reach / SIDE
    line = -reach + step * (torch.arange(SIDE, dtype=torch.float64) + 0.5)
    return torch.cartesian_prod(line, line), step**2


def masses(density, reach: float) -> torch.Tensor:
    points, area = grid(reach)
    return torch.cat([density.log_density(part).exp() for part in points.split(20_000)]) * area


@pytest.mark.parametrize("density", DENSITIES, ids=repr)
def test_density_integrates_to_one_near_the_unit_square(density):
    assert masses(density, 1.8).sum().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", TOYS)
def test_nearly_all_mass_lies_within_a_little_more_than_the_unit_square(name):
    assert masses(TOYS[name](), 1.2).sum() > 0.999


@pytest.mark.parametrize("density", DENSITIES, ids=repr)
def test_samples_follow_the_density(density):
    """Chi-square over 30 x 30 cells; the statistic's own deviation is sqrt(2 dof), and five of them are allowed."""
    n, cells, reach = 100_000, 30, 1.5
    x = density.sample(n, rng=torch.Generator().manual_seed(5))
    assert x.shape == (n, 2)
    assert x.dtype == torch.float32
    expected = n * masses(density, reach).reshape(cells, SIDE // cells, cells, SIDE // cells).sum((1, 3)).flatten()
    inside = ((x + reach) * (cells / (2 * reach))).floor().clamp(0, cells - 1).long()
    counts = torch.bincount(inside[:, 0] * cells + inside[:, 1], minlength=cells**2).double()
    likely = expected >= 5
    rest = torch.stack([expected[~likely].sum(), counts[~likely].sum()])
    chi2 = ((counts - expected).square() / expected)[likely].sum() + (rest[1] - rest[0]).square() / rest[0].clamp(min=5)
    dof = int(likely.sum())
    assert abs(chi2 - dof) < 5 * math.sqrt(2 * dof)


def test_mixture_density_at_a_mode_is_that_of_its_gaussian():
    mixture = Mixture()
    assert mixture.modes.shape == (8, 2)
    expected = -math.log(2 * math.pi * mixture.scale**2 * 8)  # the neighbors are 9 deviations away
    assert mixture.log_density(mixture.modes) == pytest.approx(expected, abs=1e-6)


def test_rings_are_equally_high_and_round():
    rings = Rings()
    angles = torch.linspace(0, 6, 7, dtype=torch.float64)
    around = torch.stack([angles.cos(), angles.sin()], dim=1)
    heights = torch.stack([rings.log_density(radius * around) for radius in rings.radii])
    assert heights.max() - heights.min() < 1e-6


@pytest.mark.parametrize("arms", [1, 2])
def test_spirals_are_fine_enough_to_be_an_integral(arms):
    x = Spirals(arms=arms).sample(5000, rng=torch.Generator().manual_seed(0)).double()
    coarse, fine = Spirals(arms=arms).log_density(x), Spirals(arms=arms, nodes=1600).log_density(x)
    gap = (coarse - fine).abs()
    assert gap.median() < 1e-9
    # What is left is not ripple but the ends of the arms, where the first and last node stand half a spacing inside.
    assert (gap > 0.01).double().mean() < 0.01


@pytest.mark.parametrize("density", DENSITIES, ids=repr)
def test_log_density_is_differentiable_everywhere_in_float32(density):
    x = torch.cat([torch.zeros(1, 2), density.sample(50, rng=torch.Generator().manual_seed(1))]).requires_grad_()
    log_density = density.log_density(x)
    assert log_density.shape == (51,)
    assert log_density.dtype == torch.float32
    (grad,) = torch.autograd.grad(log_density.sum(), x)
    assert grad.isfinite().all()


@pytest.mark.parametrize("name", TOYS)
def test_toy_is_a_seeded_set_of_points(name):
    data = toy(name, n=300, seed=4)
    assert data.shape == (2,)
    assert len(data) == 300
    assert data.labels is None
    assert torch.equal(data.items, toy(name, n=300, seed=4).items)
    assert not torch.equal(data.items, toy(name, n=300, seed=5).items)


def test_unknown_toys_are_refused_with_a_hint():
    with pytest.raises(BadInput, match="did you mean 'rings'"):
        toy("ring")
    with pytest.raises(BadInput, match="from 1 to 10000000 points, not 0"):
        toy("rings", n=0)


@pytest.mark.parametrize(
    ("density", "points", "regions"),
    [
        (Mixture(count=4), [[0.7, 0.1], [0.0, 1.0], [-2.0, 0.0], [0.1, -0.5]], [0, 1, 2, 3]),
        (Rings(), [[0.0, 0.1], [0.5, 0.0], [0.0, -0.8]], [0, 1, 2]),
        (Spirals(), Spirals().curve()[[0, 159, 160, 319]].tolist(), [0, 0, 1, 1]),
    ],
)
def test_every_point_belongs_to_the_nearest_region(density, points, regions):
    assert density.region(torch.tensor(points)).tolist() == regions
    assert density.regions == len(set(regions))
