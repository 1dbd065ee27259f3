"""Basins and barriers, against energies whose minima and saddles are known."""

import math

import pytest
import torch
from torch import Tensor

from ebmlife.data import Mixture
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.basins import Landscape, Merge, barriers, basins
from ebmlife.exam.plots import draw_basins, leaves
from ebmlife.sampling.energy import gaussian


def walls(x: Tensor) -> Tensor:
    """Minima at -1, 0 and 1 (energies 0, 1 and 2), barriers of 5 and 4 halfway; flat beyond the line."""
    knots = torch.tensor([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5])
    heights = torch.tensor([9.0, 0.0, 5.0, 1.0, 4.0, 2.0, 9.0])
    at = x[:, 0].clamp(-1.49, 1.49)
    i = ((at + 1.5) / 0.5).long()
    return torch.lerp(heights[i], heights[i + 1], (at - knots[i]) / 0.5) + x[:, 1].square()


def test_a_mixture_has_as_many_basins_as_modes_and_its_barriers_are_those_between_neighbors() -> None:
    toy = Mixture(count=5, radius=0.7, scale=0.1)
    x = toy.sample(60, rng=torch.Generator().manual_seed(0))
    found = basins(lambda x: -toy.log_density(x), x, step_size=0.05, steps=50)
    assert len(found.minima) == 5
    assert sum(found.sizes) == 60
    assert torch.equal(torch.cdist(found.minima.double(), toy.modes).min(1).values < 5e-3, torch.ones(5).bool())
    same = toy.region(x)[:, None] == toy.region(x)
    assert torch.equal(found.basin[:, None] == found.basin, same)
    # Halfway between two neighbors their Gaussians are equal, and the others are too far to matter.
    halfway = (toy.modes[:1] + toy.modes[1:2]) / 2
    saddle = -toy.log_density(halfway).item()
    assert [merge.height for merge in found.merges] == pytest.approx([saddle] * 4, rel=1e-3)


def test_basins_join_at_the_lowest_barrier_and_shallow_ones_are_merged() -> None:
    x = torch.tensor([[-1.1, 0.0], [-0.9, 0.0], [0.1, 0.0], [0.9, 0.0], [1.1, 0.0]])
    found = basins(walls, x, step_size=0.05, steps=200)
    assert found.energies.tolist() == pytest.approx([0, 1, 2], abs=0.02)
    assert found.basin.tolist() == [0, 0, 1, 2, 2]
    assert found.sizes == [2, 1, 2]
    assert [(merge.lower, merge.higher) for merge in found.merges] == [(1, 2), (0, 1)]
    assert [merge.height for merge in found.merges] == pytest.approx([4, 5], abs=0.2)
    deeper = basins(walls, x, step_size=0.05, steps=200, depth=3.0)  # the third is 2 deep
    assert deeper.basin.tolist() == [0, 0, 1, 1, 1]
    assert len(deeper.merges) == 1


def test_one_bowl_is_one_basin_however_many_states_go_down() -> None:
    found = basins(gaussian(0.5), torch.linspace(-1, 1, 80).view(20, 1, 2, 2), step_size=0.3, steps=50)
    assert found.minima.shape == (1, 1, 2, 2)
    assert found.merges == []
    assert found.minima.abs().max() < 1e-2
    assert found.sizes == [20]


@pytest.mark.parametrize("step_size", [0.01, 0.05, 0.2])
def test_descent_runs_until_it_has_converged(step_size: float) -> None:
    def wells(x: Tensor) -> Tensor:
        return ((x[:, 0].abs() - 1).square() + x[:, 1].square()) / (2 * 0.3**2)

    x = torch.tensor([[-1.8, 0.5], [0.3, -0.4], [1.5, 0.9]])
    found = basins(wells, x, step_size=step_size)
    assert found.energies.tolist() == pytest.approx([0, 0], abs=0.05)
    assert found.minima[:, 0].abs().tolist() == pytest.approx([1, 1], abs=0.1)


def test_descent_across_kinks_arrives_though_its_steps_go_up_and_down() -> None:
    rng = torch.Generator().manual_seed(0)
    ways = torch.randn(20, 5, generator=rng)
    x = torch.randn(200, 5, generator=rng)
    found = basins(lambda x: (x @ ways.T).abs().sum(1), x, step_size=0.3, steps=7)
    assert found.sizes == [200]
    assert found.energies.item() < 0.05  # of 0, at its only minimum


def test_an_energy_without_a_bottom_has_no_basins() -> None:
    with pytest.raises(Diverged, match="descent has not converged"):
        basins(lambda x: x.sum(1), torch.zeros(3, 2), step_size=0.1, steps=10)


def test_barriers_are_the_highest_energies_between() -> None:
    x = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    expected = torch.tensor([[0.0, 5.0, 5.0], [5.0, 1.0, 4.0], [5.0, 4.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(barriers(walls, x), expected)


def test_branches_do_not_cross_and_the_tree_is_drawn() -> None:
    merges = [Merge(3.0, 0, 2), Merge(4.0, 1, 3), Merge(9.0, 0, 1)]
    for minima in (torch.zeros(4, 2), torch.zeros(4, 1, 8, 8), torch.zeros(4, 3, 8, 8)):
        energies = torch.tensor([0.0, 0.5, 1.0, 1.5], dtype=torch.float64)
        found = Landscape(minima, energies, torch.tensor([0, 1, 2, 3]), merges)
        assert leaves(found) == [0, 2, 1, 3]
        assert draw_basins(found).width > 100


def test_an_energy_that_is_infinite_on_the_way_has_no_tree() -> None:
    def cleft(x: Tensor) -> Tensor:
        return (x[:, 0].abs() - 1).square() + torch.where(x[:, 0].abs() < 0.1, torch.inf, 0.0)

    with pytest.raises(Diverged, match="not finite between two minima"):
        basins(cleft, torch.tensor([[-1.1, 0.0], [1.1, 0.0]]), step_size=0.1)


@pytest.mark.parametrize("wrong", [{"x": torch.zeros(1, 2)}, {"depth": 0.0}, {"depth": math.nan}])
def test_too_few_states_and_no_depth_are_refused(wrong: dict[str, object]) -> None:
    given = {"x": torch.zeros(3, 2), "step_size": 0.1} | wrong
    with pytest.raises(BadInput, match="basins need at least 2 states"):
        basins(gaussian(1.0), **given)  # type: ignore[arg-type]
