"""Randomness as an argument: nothing in ebmlife draws from the global generator.

What a generator draws depends on a seed and a name. Training has the plain names: "births", "bank", "weights" and so
on. Samples, scores and pictures put their scope in front of them ("sample/0/births"), and exams and attacks have names
that only they use ("exam births", "17/start"), so that commands with one seed share nothing.
"""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Noise = Callable[[Tensor], Tensor]


def derive_seed(seed: int, name: str) -> int:
    """A seed in [0, 2^63) made of `seed` and `name`: neighbouring ones share nothing."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, name: str = "", *, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator whose seed mixes `seed` and `name`, so that neighbouring seeds share nothing."""
    return torch.Generator(device).manual_seed(derive_seed(seed, name))


def normal(rng: torch.Generator) -> Noise:
    """x -> N(0, I) of x's shape, drawn from `rng`."""

    def noise(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=rng, device=x.device, dtype=x.dtype)

    return noise


def seeded(seed: int, *, device: torch.device | str = "cpu") -> Noise:
    """x -> N(0, I) of x's shape; the same sequence for the same seed."""
    return normal(generator(seed, device=device))


class PerImageNoise:
    """x -> N(0, I), where each run of states (a lane) draws from a generator of its own.

    What a lane draws does not depend on which others walk beside it. Its place in the sequence can be kept and gone
    back to, which replays the draws.
    """

    def __init__(self, seeds: Sequence[int], sizes: Sequence[int], *, device: torch.device | str = "cpu") -> None:
        self._sizes = list(sizes)  # states of each lane
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, x: Tensor) -> Tensor:
        z = torch.empty_like(x, memory_format=torch.contiguous_format)
        for lane, rng in zip(torch.split(z, self._sizes), self._generators, strict=True):
            lane.normal_(generator=rng)
        return z

    def place(self) -> list[Tensor]:
        return [rng.get_state() for rng in self._generators]

    def go_to(self, place: Sequence[Tensor]) -> None:
        for rng, state in zip(self._generators, place, strict=True):
            rng.set_state(state)


class Streams:
    """Independent random streams of one seed, by name: what one part draws never shifts another part's draws.

    `scope` goes before their names: of one of several processes, which else would all draw alike, or of a purpose.
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
