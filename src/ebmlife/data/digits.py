"""The data set that needs no download."""

import numpy as np
import torch

from ebmlife.data.dataset import InMemory

TRAINING = 1500  # of `split_digits`: the first ones


def digits() -> InMemory:
    """scikit-learn's 1,797 handwritten digits, grey, 8x8, with labels; their 17 levels 0..16 become 0..255."""
    from sklearn.datasets import load_digits  # here, because importing it takes about a second

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return InMemory(torch.from_numpy(pixels[:, None]), torch.from_numpy(bunch.target.astype(np.int64)))


def split_digits(*, train: bool = True) -> InMemory:
    """The first 1,500 digits, to train on, or the last 297, to test on."""
    data = digits()
    rows = slice(None, TRAINING) if train else slice(TRAINING, None)
    assert data.labels is not None
    return InMemory(data.items[rows], data.labels[rows])
