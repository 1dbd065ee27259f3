"""Chains of one walk in batches, which several processes can share."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ebmlife.distributed import Ranks
from ebmlife.errors import Diverged
from ebmlife.sampling import fingerprint
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.kernels import Kernel, Langevin
from ebmlife.sampling.kernels.interface import HasStates
from ebmlife.sampling.loop import run_kernel
from ebmlife.sampling.rng import generator, normal


class Batches:
    """Chains in batches, each with its own random stream, all at the same step. Each rank runs some of the batches."""

    def __init__(self, energy: Energy, x: Tensor, kernel: Kernel[Any], seed: int, batch: int, ranks: Ranks) -> None:
        self.energy, self.kernel, self.seed = energy, kernel, seed
        self.batch, self.ranks = batch, ranks
        self.x, self.step = x.detach().clone(), 0
        self.streams = [generator(seed, f"chains {first}", device=x.device) for first in range(0, len(x), batch)]
        self.states: list[HasStates] = [
            kernel.init(energy, rows, normal(rng))
            for rows, rng in zip(torch.split(self.x, batch), self.streams, strict=True)
        ]

    def settings(self) -> dict[str, Any]:
        """What identifies the walk, before its first step."""
        of_kernel = self.kernel.settings()
        return {
            "step_size": of_kernel["step_size"],
            "seed": self.seed,
            "clip": of_kernel["clip"],
            "batch": self.batch,
            "start": fingerprint.of_tensors(self.x),
            "energy": fingerprint.of_functions(self.energy),
            "slope": fingerprint.of_gradient(self.energy, self.x[: self.batch]),
            **({} if self._plain else {"sampler": of_kernel}),
        }

    @property
    def _plain(self) -> bool:
        """Whether x is the whole state, as in Langevin walks: their checkpoints have no other."""
        return isinstance(self.kernel, Langevin)

    def advance(self, until: int) -> float:
        """Runs all chains up to that step; returns the mean of |grad E| on the way."""
        own = self.ranks.part(len(self.streams))
        with nullcontext() if self._plain else self.ranks.raise_on_all():  # a Metropolis test can raise on one rank
            try:
                gradients = [self._advance(index, until) for index in range(len(self.streams))[own]]
            except Diverged as error:
                raise Diverged(f"{error}, between steps {self.step} and {until}") from error
        if self.ranks.count > 1:
            gradients = self._exchange(own, gradients)
        if not self.x.isfinite().all():
            raise Diverged(f"states are not finite any more between steps {self.step} and {until}")
        self.step = until
        return sum(gradients) / len(self.x)

    def _advance(self, index: int, until: int) -> float:
        """Runs one batch up to that step; returns the mean of |grad E| times its number of chains."""
        rows, noise = torch.split(self.x, self.batch)[index], normal(self.streams[index])
        state, info = run_kernel(self.kernel, self.energy, self.states[index], steps=until - self.step, noise=noise)
        self.states[index] = state
        rows.copy_(state.x)
        return info.gradient.item() * len(rows)

    def report(self) -> dict[str, Any]:
        """Returns what the kernel measured, as means over the batches, weighted by their numbers of chains."""
        reports = [self.kernel.report(state) for state in self.states]
        weights = torch.tensor([len(state.x) / len(self.x) for state in self.states], dtype=torch.float64)
        values = {name: torch.tensor([of_batch[name] for of_batch in reports]).double() for name in reports[0]}
        return {name: torch.tensordot(weights, value, 1).tolist() for name, value in values.items()}

    def _exchange(self, own: slice, gradients: list[float]) -> list[float]:
        """Takes over the other ranks' states and streams; returns the gradients of all batches, in order."""
        mine = {"x": self.x[own.start * self.batch : own.stop * self.batch]}
        mine["streams"] = torch.cat([stream.get_state()[None] for stream in self.streams[own]] or [torch.empty(0)])
        mine["gradients"] = torch.tensor(gradients, dtype=torch.float64)
        for index in () if self._plain else range(len(self.streams))[own]:
            mine |= {f"states/{index}/{name}": value for name, value in self.states[index].state_dict().items()}
        parts = self.ranks.gather(mine)
        self.x = torch.cat([part["x"] for part in parts]).to(self.x.device)
        states = [state.clone() for part in parts for state in part["streams"]]  # a view of it may not be aligned
        for stream, state in zip(self.streams, states, strict=True):
            stream.set_state(state)
        self._load_states(None if self._plain else self._by_batch(parts))
        return [value for part in parts for value in part["gradients"].tolist()]

    def _by_batch(self, parts: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """Returns the gathered states of all batches, in order."""
        gathered = {name: value for part in parts for name, value in part.items()}
        return [
            {name: gathered[f"states/{index}/{name}"] for name in state.state_dict()}
            for index, state in enumerate(self.states)
        ]

    def _load_states(self, saved: list[dict[str, Tensor]] | None) -> None:
        """Restores the states of the kernel; None: x is all of them."""
        if saved is None:
            saved = [{"x": rows} for rows in torch.split(self.x, self.batch)]
        for state, values in zip(self.states, saved, strict=True):
            state.load_state_dict(values)

    def state_dict(self) -> dict[str, Any]:
        chains = {"x": self.x, "step": self.step, "streams": [stream.get_state() for stream in self.streams]}
        return chains if self._plain else chains | {"states": [state.state_dict() for state in self.states]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x, self.step = state["x"].to(self.x.device), state["step"]
        for stream, value in zip(self.streams, state["streams"], strict=True):
            stream.set_state(value)
        self._load_states(state.get("states"))
