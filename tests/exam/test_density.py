"""Quadrature against densities and distances in closed form."""

import math

import pytest
import torch
from torch import Tensor

from ebmlife.data import TOYS, Mixture
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.density import compare, exact, normalized
from ebmlife.sampling.energy import gaussian, tempered


@pytest.mark.parametrize("name", ["mixture", "rings"])
def test_the_truth_is_no_distance_from_itself(name: str) -> None:
    toy = TOYS[name]()
    found = compare(lambda x: 7 - toy.log_density(x), toy)
    assert found.total_variation == pytest.approx(0, abs=1e-5)
    assert found.kl == pytest.approx(0, abs=1e-5)
    assert found.masses == pytest.approx(found.true_masses, abs=1e-5)
    assert sum(found.masses) == pytest.approx(1)
    assert len(found.masses) == toy.regions
    assert exact(toy).mass.sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("ratio", [1.1, 2.0])
def test_a_gaussian_of_another_width_in_closed_form(ratio: float) -> None:
    """N(0, s^2 I) and N(0, r s^2 I) in the plane: TV = r^(-1/(r-1)) - r^(-r/(r-1)), KL = 1/r - 1 + log r."""
    truth = Mixture(count=1, radius=0.0, scale=0.1)
    found = compare(gaussian(0.1 * math.sqrt(ratio)), truth)
    expected = ratio ** (-1 / (ratio - 1)) - ratio ** (-ratio / (ratio - 1))
    assert found.total_variation == pytest.approx(expected, abs=1e-4)
    assert found.kl == pytest.approx(1 / ratio - 1 + math.log(ratio), abs=1e-4)


def test_a_temperature_is_a_width() -> None:
    hot, wide = normalized(tempered(gaussian(0.1), 4.0)), normalized(gaussian(0.2))
    torch.testing.assert_close(hot.log_density, wide.log_density, rtol=1e-5, atol=1e-4)


def test_a_missing_mode_is_its_mass() -> None:
    toy = Mixture(count=4)
    kept = toy.modes[1:]

    def three(x: Tensor) -> Tensor:
        return -torch.logsumexp(-torch.cdist(x, kept.to(x)).square() / (2 * toy.scale**2), 1)

    found = compare(three, toy)
    assert found.masses == pytest.approx((0, 1 / 3, 1 / 3, 1 / 3), abs=1e-4)
    assert found.total_variation == pytest.approx(0.25, abs=1e-4)


def test_mass_that_may_lie_beyond_the_square_shows() -> None:
    assert normalized(lambda x: torch.zeros(len(x))).at_edge == pytest.approx(1 - 0.9**2)
    assert normalized(gaussian(0.2)).at_edge == pytest.approx(0, abs=1e-9)


def test_an_energy_that_is_not_finite_is_not_integrated() -> None:
    with pytest.raises(Diverged, match="not finite"):
        normalized(lambda x: x[:, 0].log())


@pytest.mark.parametrize("scale", [1.0, 0.004])
def test_a_truth_that_the_square_cannot_hold_is_refused(scale: float) -> None:
    toy = Mixture(scale=scale)
    with pytest.raises(BadInput, match=r"the exact density has a mass of .*, not 1"):
        compare(lambda x: -toy.log_density(x), toy)
