"""Random numbers. Randomness is always an argument: nothing in ebmlife draws from the global generator.

A generator is determined by a seed and a name. Training uses plain names such as "bank" and "weights". Samples, scores
and pictures put a scope before them ("sample/0/langevin"), and exams and attacks have names of their own
("17/start"), so that commands with the same seed draw independent numbers.
"""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

INITIAL_STATES = "births"  # the name of their stream; another name would change the numbers of saved runs
Noise = Callable[[Tensor], Tensor]  # x -> N(0, I) of the shape of x


def derive_seed(seed: int, name: str) -> int:
    """Returns a seed in [0, 2^63) that is a hash of `seed` and `name`."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, name: str = "", *, device: torch.device | str = "cpu") -> torch.Generator:
    """Returns a generator that is seeded with a hash of `seed` and `name`.

    Args:
        seed: The seed of the run or the command.
        name: What the numbers are for. Different names give independent streams.
        device: Where the generator draws.
    """
    return torch.Generator(device).manual_seed(derive_seed(seed, name))


def normal(rng: torch.Generator) -> Noise:
    """Returns a noise function that draws from `rng`."""

    def noise(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=rng, device=x.device, dtype=x.dtype)

    return noise


def seeded(seed: int, *, device: torch.device | str = "cpu") -> Noise:
    """Returns a noise function with the same sequence for the same seed.

    Args:
        seed: Any whole number.
        device: The device of the tensors that it will be called with.

    Returns:
        A function from a tensor x to N(0, I) of the shape of x.
    """
    return normal(generator(seed, device=device))


class PerImageNoise:
    """A noise function in which consecutive states of a batch draw from generators of their own.

    The draws of an image do not depend on the other images of the batch. `position` and `seek` save and restore
    the positions in the sequences, to replay the draws.

    Args:
        seeds: The seed of each image.
        sizes: The number of states of each image.
        device: Where the generators draw.
    """

    def __init__(self, seeds: Sequence[int], sizes: Sequence[int], *, device: torch.device | str = "cpu") -> None:
        self._sizes = list(sizes)
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, x: Tensor) -> Tensor:
        z = torch.empty_like(x, memory_format=torch.contiguous_format)
        for part, rng in zip(torch.split(z, self._sizes), self._generators, strict=True):
            part.normal_(generator=rng)
        return z

    def position(self) -> list[Tensor]:
        """Returns the states of all generators."""
        return [rng.get_state() for rng in self._generators]

    def seek(self, position: Sequence[Tensor]) -> None:
        """Restores what `position` returned."""
        for rng, state in zip(self._generators, position, strict=True):
            rng.set_state(state)


class Streams:
    """Independent random streams of one seed, by name. Draws from one never shift the draws of another.

    Args:
        seed: The seed of all streams.
        device: Where they draw.
        scope: Prefix of all names, which gives a process or a purpose its own streams.
    """

    def __init__(self, seed: int = 0, *, device: torch.device | str = "cpu", scope: str = "") -> None:
        self.seed = seed
        self.device = device
        self.scope = scope
        self._streams: dict[str, torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        if name not in self._streams:
            self._streams[name] = generator(self.seed, self.scope + name, device=self.device)
        return self._streams[name]

    def state_dict(self) -> dict[str, Tensor]:
        return {name: stream.get_state() for name, stream in self._streams.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, value in state.items():
            self[name].set_state(value)
