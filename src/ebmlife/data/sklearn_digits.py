"""The digits of scikit-learn, a data set that needs no download."""

import numpy as np
import torch

from ebmlife.data.dataset import InMemory
from ebmlife.data.description import Description, described

TRAINING = 1500  # the first ones are for training; the other 297 are for tests, mostly by other writers


@described(
    Description(
        title="handwritten digits",
        shape=(1, 8, 8),
        classes=10,
        features="digits",
        samples=2000,
        reference="all",
        whole=True,
    )
)
def digits(*, train: bool | None = None) -> InMemory:
    """scikit-learn's 1,797 handwritten digits with labels: gray, 8x8, their levels 0..16 scaled to 0..255.

    Args:
        train: True: the 1,500 images for training. False: the 297 for tests. None: all of them.

    Returns:
        The data set.
    """
    from sklearn.datasets import load_digits  # here, because importing it takes about a second

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    rows = {None: slice(None), True: slice(TRAINING), False: slice(TRAINING, None)}[train]
    return InMemory(torch.from_numpy(pixels[rows, None]), torch.from_numpy(bunch.target[rows].astype(np.int64)))
