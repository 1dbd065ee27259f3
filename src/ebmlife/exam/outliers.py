"""Outlier detection by energy: data against noise, constant images, shuffled and blended data, and other data."""

import torch
from torch import Tensor

from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.reference import map_batches
from ebmlife.sampling.energy import Energy

_BATCH = 256


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Returns P(energy of an outlier > energy of data), with ties counted half: 0.5 is chance, 1 is perfect.

    Args:
        inside: Energies of data.
        outside: Energies of outliers.
    """
    if not len(inside) or not len(outside):
        raise BadInput(f"an AUROC needs energies of both data and outliers, got {len(inside)} and {len(outside)}")
    sorted_inside = inside.double().sort().values
    below = torch.searchsorted(sorted_inside, outside.double())
    not_above = torch.searchsorted(sorted_inside, outside.double(), right=True)
    return ((below + not_above).double() / (2 * len(inside))).mean().item()


def outlier_sets(data: Tensor, *, rng: torch.Generator) -> dict[str, Tensor]:
    """Returns outliers by kind, as many of each as there are data.

    The kinds are uniform noise, constant images, the data with their values in another order (the same for all), and
    averages of two data.

    Args:
        data: States (B, ...).
        rng: Generator of the random numbers.
    """
    n, device = len(data), data.device
    flat = data.flatten(1)
    order = torch.randperm(flat.shape[1], generator=rng)
    gray = torch.rand(n, *[1] * (data.ndim - 1), generator=rng, dtype=data.dtype).to(device)
    return {
        "noise": (2 * torch.rand(data.shape, generator=rng, dtype=data.dtype) - 1).to(device),
        "constant": (2 * gray - 1).expand_as(data).contiguous(),
        "shuffled": flat[:, order.to(device)].view_as(data),
        "blended": (data + data[torch.randperm(n, generator=rng).to(device)]) / 2,
    }


def detect(
    energy: Energy, data: Tensor, *, data_noise: float, rng: torch.Generator, others: dict[str, Tensor] | None = None
) -> dict[str, float]:
    """Returns the AUROC of the energy between data and each kind of outlier, by name.

    Data and outliers are under the same noise, so that noise does not separate them.

    Args:
        energy: A callable from states (B, ...) to energies (B,).
        data: States (B, ...).
        data_noise: Standard deviation of the noise on the data that the model learned.
        rng: Generator of the noise and the outliers.
        others: More outliers (N, ...) by name.
    """

    def energies(x: Tensor) -> Tensor:
        noisy = x + data_noise * torch.randn(x.shape, generator=rng, dtype=x.dtype).to(x.device)
        found = map_batches(energy, noisy, _BATCH)
        if found.shape != x.shape[:1]:
            raise BadInput(
                f"the energy of states {tuple(x.shape)} must have the shape ({len(x)},), got {tuple(found.shape)}"
            )
        if not found.isfinite().all():
            raise Diverged("an energy of data or of outliers is not finite")
        return found

    inside = energies(data)
    outliers = outlier_sets(data, rng=rng)
    for name in outliers.keys() & (others or {}).keys():
        raise BadInput(f"other data cannot be called {name!r}, which is a kind of outlier; give them another name")
    outliers |= others or {}
    return {name: auroc(inside, energies(x)) for name, x in outliers.items()}
