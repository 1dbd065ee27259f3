"""Minimal filtering against the sums that it stands for."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_prepare import by_autograd, images, needs_compiler, shaken

from ebmlife.nets import SNGANEnergy
from ebmlife.sampling.native import Program, winograd
from ebmlife.sampling.native.steps import Op
from ebmlife.sampling.native.winograd import Filter, four_places_doubling, four_places_halving, three_places

SOURCE = np.random.default_rng(0).normal(size=16)


def filtered(one: Filter, source: NDArray[np.float64], kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a filter computes, read off its terms; 0 outside the source."""

    def at(i: int) -> float:
        return float(source[i]) if 0 <= i < len(source) else 0.0

    results = []
    for first in range(0, len(source), one.step):
        sums = np.zeros(max(one.sums) + 1)
        for read, weight, target in zip(one.reads, one.kernels, one.sums, strict=True):
            value = sum(coefficient * at(first + i) for i, coefficient in read.items())
            sums[target] += value * sum(coefficient * kernel[k] for k, coefficient in weight.items())
        results += [sum(coefficient * sums[i] for i, coefficient in terms.items()) for terms in one.writes]
    return np.array(results)


@pytest.mark.parametrize("flipped", [False, True])
def test_three_places_are_a_convolution(flipped: bool) -> None:
    kernel = np.array([2.0, -3.0, 5.0])
    expected = np.correlate(np.pad(SOURCE, 1), kernel[::-1] if flipped else kernel, "valid")
    np.testing.assert_allclose(filtered(three_places(flipped=flipped), SOURCE, kernel), expected)


@pytest.mark.parametrize("results", [2, 4])
def test_four_places_halve_and_double(results: int) -> None:
    kernel = np.array([2.0, -3.0, 5.0, 7.0])
    halved = np.correlate(np.pad(SOURCE, 1), kernel, "valid")[::2]
    np.testing.assert_allclose(filtered(four_places_halving(results=results), SOURCE, kernel), halved)
    # The backward pass is the transpose: <doubled(y), x> = <y, halved(x)> for every y.
    y = np.random.default_rng(1).normal(size=8)
    doubled = filtered(four_places_doubling(results=results), y, kernel)
    np.testing.assert_allclose(doubled @ SOURCE, y @ halved)


def test_products_saved() -> None:
    """Along one dimension: one product for each pixel that a tile reads, instead of one for each result and place."""
    assert (len(three_places(flipped=False).reads), len(three_places(flipped=False).writes)) == (4, 2)  # not 6
    for results, products in ((2, 6), (4, 10)):  # not 8 and 16
        halving, doubling = four_places_halving(results=results), four_places_doubling(results=results)
        assert (len(halving.reads), len(halving.writes)) == (products, results)
        assert (len(doubling.reads), len(doubling.writes)) == (products, 2 * results)


@needs_compiler
@pytest.mark.parametrize(("size", "width"), [(8, 6), (16, 7), (32, 10), (64, 16)])
@pytest.mark.parametrize("band", [1, 1 << 30])
@pytest.mark.parametrize("four", [1, 1 << 30])
def test_gradients_are_the_same(size: int, width: int, band: int, four: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any number of channels and results at a time, and whether tiles are taken row by row or all at once."""
    monkeypatch.setattr(winograd, "FEWEST_CHANNELS", 1)
    monkeypatch.setattr(winograd, "FEWEST_FOR_FOUR", four)
    monkeypatch.setattr(winograd, "_BAND_BYTES", band)
    net, x = shaken(SNGANEnergy(size, width, 3, activation="softplus")), images(3, 3, size)  # no kinks
    exact = by_autograd(net, x)
    error = Program(net, x.shape[1:])(x, threads=1) - exact
    assert (error.flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)).max() < 1e-5


@needs_compiler
def test_wide_networks_use_it_and_keep_to_the_tolerance() -> None:
    net, x = shaken(SNGANEnergy(16, 64, 3)), images(2, 3, 16)
    program = Program(net, x.shape[1:])
    assert any(step.kind is Op.MIX and step.target.startswith("read") for step in program._steps)
    exact = by_autograd(net, x)
    error = program(x, threads=1) - exact
    assert (error.flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)).max() < 1e-5


@needs_compiler
@pytest.mark.parametrize("n", [1, 17])
@pytest.mark.parametrize("block", [8, 16])
def test_blocks_and_threads_change_no_bit(n: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "FEWEST_CHANNELS", 1)
    net, x = shaken(SNGANEnergy(8, 9, 1)), images(20, 1, 8)
    together = Program(net, (1, 8, 8))(x, threads=1)
    assert torch.equal(Program(net, (1, 8, 8), images=block)(x[:n], threads=2), together[:n])
