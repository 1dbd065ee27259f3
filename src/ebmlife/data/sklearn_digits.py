"""The data set that needs no download."""

import numpy as np
import torch

from ebmlife.data.dataset import InMemory

TRAINING = 1500  # the first so many are for training, the other 297 for tests: other writers' hands, mostly


def digits(*, train: bool | None = None) -> InMemory:
    """scikit-learn's 1,797 handwritten digits, grey, 8x8, with labels; their 17 levels 0..16 become 0..255.

    `train`: only the part for training, or only that for tests; None: all of them.
    """
    from sklearn.datasets import load_digits  # here, because importing it takes about a second

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    rows = {None: slice(None), True: slice(TRAINING), False: slice(TRAINING, None)}[train]
    return InMemory(torch.from_numpy(pixels[rows, None]), torch.from_numpy(bunch.target[rows].astype(np.int64)))
