"""Randomness as an argument: nothing in ebmlife draws from the global generator."""

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

Noise = Callable[[Tensor], Tensor]


def generator(seed: int, name: str = "", *, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator whose seed mixes `seed` and `name`, so that neighbouring seeds share nothing."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def normal(rng: torch.Generator) -> Noise:
    """x -> N(0, I) of x's shape, drawn from `rng`."""

    def noise(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=rng, device=x.device, dtype=x.dtype)

    return noise


def seeded(seed: int, *, device: torch.device | str = "cpu") -> Noise:
    """x -> N(0, I) of x's shape; the same sequence for the same seed."""
    return normal(generator(seed, device=device))


class Streams:
    """Independent random streams of one seed, by name: what one part draws never shifts another part's draws.

    `scope` goes before the names of the streams of one of several processes, which else would all draw alike.
    """

    def __init__(self, seed: int, *, device: torch.device | str = "cpu", scope: str = "") -> None:
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
