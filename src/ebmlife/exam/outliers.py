"""Whether energies tell what is not data: noise, constant images, data taken apart, other data."""

import torch
from torch import Tensor

from ebmlife.errors import BadInput, Diverged
from ebmlife.exam.reference import map_batches
from ebmlife.sampling.energy import Energy

_BATCH = 256


def auroc(inside: Tensor, outside: Tensor) -> float:
    """P(an outsider's energy is above an insider's), ties counted half: 0.5 is chance, 1 tells them all apart."""
    if not len(inside) or not len(outside):
        raise BadInput(f"an AUROC needs numbers on both sides, got {len(inside)} and {len(outside)}")
    sorted_inside = inside.double().sort().values
    below = torch.searchsorted(sorted_inside, outside.double())
    not_above = torch.searchsorted(sorted_inside, outside.double(), right=True)
    return ((below + not_above).double() / (2 * len(inside))).mean().item()


def outlier_sets(data: Tensor, *, rng: torch.Generator) -> dict[str, Tensor]:
    """As many states as the data (B, ...) that are none: uniform noise; one grey value each; the data with their values
    in another order, one order for all; the means of two data."""
    n, device = len(data), data.device
    flat = data.flatten(1)
    order = torch.randperm(flat.shape[1], generator=rng)
    grey = torch.rand(n, *[1] * (data.ndim - 1), generator=rng, dtype=data.dtype).to(device)
    return {
        "noise": (2 * torch.rand(data.shape, generator=rng, dtype=data.dtype) - 1).to(device),
        "constant": (2 * grey - 1).expand_as(data).contiguous(),
        "shuffled": flat[:, order.to(device)].view_as(data),
        "blended": (data + data[torch.randperm(n, generator=rng).to(device)]) / 2,
    }


def detect(
    energy: Energy, data: Tensor, *, data_noise: float, rng: torch.Generator, others: dict[str, Tensor] | None = None
) -> dict[str, float]:
    """AUROC of the energy between data (B, ...) and each kind of stranger, all under the noise that the model learned
    its data with: by their grain alone none is told from the others."""

    def energies(x: Tensor) -> Tensor:
        noisy = x + data_noise * torch.randn(x.shape, generator=rng, dtype=x.dtype).to(x.device)
        found = map_batches(energy, noisy, _BATCH)
        if found.shape != x.shape[:1]:
            raise BadInput(
                f"the energy of states {tuple(x.shape)} must be of the shape ({len(x)},), got {tuple(found.shape)}"
            )
        if not found.isfinite().all():
            raise Diverged("an energy of data, or of what is none, is not finite")
        return found

    inside = energies(data)
    kinds = outlier_sets(data, rng=rng)
    for name in kinds.keys() & (others or {}).keys():
        raise BadInput(f"other data cannot be called {name!r}: a kind of strangers is; give them another name")
    kinds |= others or {}
    return {name: auroc(inside, energies(x)) for name, x in kinds.items()}
