"""AUROC against its definition, and outsiders of known energies."""

import pytest
import torch

from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.outliers import auroc, detect, outlier_sets
from ebmlife.sampling.energy import gaussian


def test_auroc_is_the_share_of_pairs_in_order_with_ties_counted_half() -> None:
    rng = torch.Generator().manual_seed(0)
    inside, outside = (
        torch.randint(0, 6, (40,), generator=rng).float(),
        torch.randint(2, 9, (30,), generator=rng).float(),
    )
    pairs = (outside[:, None] > inside).double() + (outside[:, None] == inside).double() / 2
    assert auroc(inside, outside) == pytest.approx(pairs.mean().item())
    assert auroc(inside, inside + 10) == 1
    assert auroc(inside, inside - 10) == 0
    assert auroc(inside, inside) == 0.5
    with pytest.raises(BadInput, match="energies of both"):
        auroc(inside, torch.empty(0))


def test_outliers_keep_some_statistics_of_the_data() -> None:
    data = torch.rand(6, 1, 4, 4)
    made = outlier_sets(data, rng=torch.Generator().manual_seed(0))
    assert all(x.shape == data.shape and x.abs().max() <= 1 for x in made.values())
    assert made["constant"].flatten(1).std(1).max() == 0
    assert torch.equal(made["shuffled"].flatten(1).sort(1).values, data.flatten(1).sort(1).values)
    assert not torch.equal(made["shuffled"], data)
    torch.testing.assert_close(made["blended"].mean(), data.mean())


def test_a_bowl_tells_noise_and_far_data_but_no_order_of_pixels() -> None:
    rng = torch.Generator().manual_seed(0)
    data = 0.1 * torch.randn(200, 1, 4, 4, generator=rng)
    found = detect(gaussian(0.1), data, data_noise=0.0, rng=rng, others={"far": data + 1})
    assert found["noise"] == 1
    assert found["far"] == 1
    assert found["shuffled"] == pytest.approx(0.5, abs=1e-3)
    assert found["blended"] < 0.2  # means of two have half the variance, and so half the energy


def test_energies_that_are_no_numbers_are_never_scored() -> None:
    data, rng = torch.rand(6, 1, 4, 4), torch.Generator().manual_seed(0)
    with pytest.raises(Diverged, match="not finite"):
        detect(lambda x: x.flatten(1).sum(1) * float("nan"), data, data_noise=0.0, rng=rng)
    with pytest.raises(BadInput, match=r"must have the shape \(6,\), got \(6, 1\)"):
        detect(lambda x: x.flatten(1).sum(1, keepdim=True), data, data_noise=0.0, rng=rng)
    with pytest.raises(BadInput, match="cannot be called 'noise'"):
        detect(gaussian(1.0), data, data_noise=0.0, rng=rng, others={"noise": data})
