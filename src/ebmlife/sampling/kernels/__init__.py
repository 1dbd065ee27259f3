"""Sampling kernels: one step of a Markov chain each. The loop over the steps is `ebmlife.sampling.loop`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ebmlife.errors import BadInput, nearest
from ebmlife.sampling.kernels.interface import Info, Kernel, State, check_energy
from ebmlife.sampling.kernels.langevin import Langevin
from ebmlife.sampling.kernels.mala import MALA
from ebmlife.sampling.kernels.metropolis import WARM_UP
from ebmlife.sampling.kernels.replica_exchange import ReplicaExchange
from ebmlife.sampling.kernels.underdamped import Underdamped

SAMPLERS: Mapping[str, Callable[..., Kernel[Any]]] = MappingProxyType(
    {"langevin": Langevin, "mala": MALA, "underdamped": Underdamped, "replica-exchange": ReplicaExchange}
)


def make_kernel(
    name: str, energy: object, *, step_size: float, clip: float | None = None, warm_up: int = WARM_UP
) -> Kernel[Any]:
    """Returns the kernel of a name, after checking that it can sample from this energy.

    Args:
        name: One of `SAMPLERS`: "langevin", "mala", "underdamped" or "replica-exchange".
        energy: What is sampled. A score, which has no energy, takes "langevin" only.
        step_size: Step size; the initial value for kernels with a warm-up.
        clip: Largest length of the gradient term of a step.
        warm_up: Number of steps in which step sizes and temperatures are adapted, where the kernel does so.

    Raises:
        BadInput: If the name is unknown, or the kernel needs an energy and there is none.
    """
    if name not in SAMPLERS:
        raise BadInput(f"unknown sampler {name!r}{nearest(name, SAMPLERS)}")
    if name == "langevin":
        return Langevin(step_size, clip)
    check_energy(name, energy)
    return SAMPLERS[name](step_size, clip=clip, warm_up=warm_up)


__all__ = [
    "MALA",
    "SAMPLERS",
    "WARM_UP",
    "Info",
    "Kernel",
    "Langevin",
    "ReplicaExchange",
    "State",
    "Underdamped",
    "make_kernel",
]
