import numpy as np
import torch
from sklearn.datasets import load_digits

from ebmlife.data import digits


def test_digits_are_the_real_ones_scaled():
    data = digits()
    original = load_digits()
    assert data.shape == (1, 8, 8)
    assert len(data) == 1797
    assert data.items.dtype == torch.uint8
    assert torch.equal(data.labels, torch.from_numpy(original.target))
    # Every level 0..16 survives: nothing is lost by the change of scale.
    assert np.array_equal(np.rint(data.items[:, 0].numpy() * (16 / 255)), original.images)
    taken = data.take(torch.arange(1797))
    assert taken.min() == -1
    assert taken.max() == 1


def test_the_split_is_fixed_and_leaves_nothing_out():
    whole, train, test = digits(), digits(train=True), digits(train=False)
    assert (len(train), len(test)) == (1500, 297)
    assert torch.equal(torch.cat([train.items, test.items]), whole.items)
    assert torch.equal(torch.cat([train.labels, test.labels]), whole.labels)
