"""Checks that FID behaves as it should on 5,000 real images: `make results-fid`. An hour on two cores.

Features are cached for each set of images. Call it again to continue.
"""

from collections.abc import Callable

import torch
from rich.console import Console
from tables import RESULTS, replace, table
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from ebmlife.data import Dataset, InMemory, cifar10
from ebmlife.exam.inception import scores
from ebmlife.exam.scores import reference_features
from ebmlife.plots.pictures import to_uint8
from ebmlife.sampling.rng import generator
from ebmlife.storage.atomic import cache_folder

COUNT = 5000


def changed(images: Tensor, change: Callable[[Tensor], Tensor]) -> InMemory:
    return InMemory(to_uint8(change(images)))


def noisy(images: Tensor, level: float) -> Tensor:
    return images + level * torch.randn(images.shape, generator=generator(0, "noise"))


def blurred(images: Tensor, sigma: float) -> Tensor:
    return gaussian_blur(images, kernel_size=[9, 9], sigma=[sigma, sigma])


def sets(test: Dataset) -> dict[str, InMemory]:
    """The same images unchanged, blurred and noisy, and as many images of noise."""
    images = test.take(torch.arange(COUNT))
    uniform = 2 * torch.rand(images.shape, generator=generator(0, "uniform")) - 1
    return {
        "5,000 of the test images": changed(images, lambda x: x),
        "blurred, sigma 0.5": changed(images, lambda x: blurred(x, 0.5)),
        "blurred, sigma 1": changed(images, lambda x: blurred(x, 1.0)),
        "with noise, deviation 0.1": changed(images, lambda x: noisy(x, 0.1)),
        "with noise, deviation 0.3": changed(images, lambda x: noisy(x, 0.3)),
        "uniform noise": changed(uniform, lambda x: x),
    }


def main() -> None:
    console = Console()
    folder = cache_folder() / "cifar-10-batches-bin"
    reference = reference_features(cifar10(folder), COUNT)
    rows = []
    for name, data in sets(cifar10(folder, train=False)).items():
        found = reference_features(data, COUNT)
        for count in (2500, COUNT) if not rows else (COUNT,):
            values = scores(found[:count], reference[torch.linspace(0, COUNT - 1, count).long()])
            fid, kid, precision, recall = (f"{value:.3g}" for value in values.values())
            title = name.replace("5,000", f"{count:,}")
            rows.append([title, f"{count:,}", fid, kid, precision, recall])
            console.print(*rows[-1], markup=False, highlight=False)
    replace(
        RESULTS / "shortrun.md",
        "fid properties",
        table(("images", "count", "FID", "KID", "precision", "recall"), rows)
        + "\n\nSeed 0, each set against as many images of the training set. Command: `make results-fid`.",
    )


if __name__ == "__main__":
    main()
