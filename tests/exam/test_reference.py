from pathlib import Path

import pytest
import torch
from torch import Tensor

from ebmlife.data import digits
from ebmlife.errors import BadInput
from ebmlife.exam.features import PLAIN, Features, plain
from ebmlife.exam.metrics import contrast, outside
from ebmlife.exam.reference import Reference, compute_reference, random_subset


def of(data: Tensor, *, chains: int = 50, noise: float = 0.0) -> Reference:
    return compute_reference(data, chains=chains, features=PLAIN, noise=noise, rng=torch.Generator().manual_seed(0))


def test_data_lie_within_their_own_range() -> None:
    data = random_subset(digits(), 500)
    truth = of(data)
    least, most = truth.ranges["contrast"]
    assert least < contrast(data) < most
    assert most < 1.1 * least
    assert truth.ranges["outside"] == (0, 0)


def test_the_noise_that_a_model_was_taught_widens_the_range_not_the_distance() -> None:
    data = random_subset(digits(), 300)
    noisy = data + 0.1 * torch.randn(data.shape, generator=torch.Generator().manual_seed(1))
    least, most = of(data, noise=0.1).ranges["outside"]
    assert least < outside(noisy) < most
    assert of(data, noise=0.1).ranges["distance"] == pytest.approx(of(data).ranges["distance"], rel=0.5)


def test_the_distance_of_one_state_is_the_spread() -> None:
    """Many copies of the mean: |0|^2 + tr(C + 0 - 0)."""
    data = torch.randn(400, 3) * torch.tensor([1.0, 2.0, 3.0])
    truth = of(data)
    assert truth.spread == pytest.approx(14, rel=0.2)
    assert truth.distance(data.mean(0).expand(10, 3)) == pytest.approx(truth.spread, rel=1e-4)
    assert truth.distance(data) == pytest.approx(0, abs=1e-6)


def test_fewer_chains_differ_more_from_the_data_by_chance() -> None:
    data = torch.randn(1000, 4)
    assert of(data, chains=20).ranges["distance"][1] > 3 * of(data, chains=500).ranges["distance"][1]


def test_chance_is_read_off_the_draws() -> None:
    truth = of(torch.randn(1000, 4, generator=torch.Generator().manual_seed(0)), chains=20)
    least, most = truth.ranges["distance"]
    assert least < truth.by_chance(0) < most < truth.by_chance(4)
    assert of(torch.ones(10, 4)).by_chance(4) == pytest.approx(0, abs=1e-200)  # nothing by chance of copies of one


def test_axes_are_the_directions_of_most_variance() -> None:
    data = torch.randn(2000, 5) * torch.tensor([1.0, 9.0, 0.1, 5.0, 0.2]) + 7
    projected = of(data).project(data)
    torch.testing.assert_close(projected[:, 0].abs(), (data[:, 1] - data[:, 1].mean()).abs(), rtol=0.1, atol=1.0)
    assert projected.std(0).tolist() == pytest.approx([9, 5, 1], rel=0.1)


def test_large_images_are_averaged_to_few_features() -> None:
    assert plain(torch.randn(2, 3, 32, 32)).shape == (2, 192)
    assert plain(torch.randn(2, 1, 8, 8)).shape == (2, 64)
    x = torch.randn(2, 2)
    assert torch.equal(plain(x), x)


def test_one_chain_is_no_exam() -> None:
    with pytest.raises(BadInput, match="at least 2 chains"):
        of(torch.randn(9, 2), chains=1)


def test_features_that_are_kept_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def slow(x: Tensor) -> Tensor:
        asked.append(len(x))
        return x.flatten(1)

    def seen(data: Tensor) -> Reference:
        rng = torch.Generator().manual_seed(0)
        return compute_reference(data, chains=20, features=Features("slow", slow, cached=True), noise=0.0, rng=rng)

    data = random_subset(digits(), 300)
    first, again = seen(data), seen(data)
    assert sum(asked) == 300
    assert first.ranges == again.ranges
    seen(-data)  # other data, other features
    assert sum(asked) == 600
