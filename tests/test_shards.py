"""A run's state over any number of ranks."""

from collections.abc import Callable

import pytest
import torch
from test_chains import ALL, ENERGY, copied
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.runs import shards
from ebmlife.sampling.rng import Streams
from ebmlife.training.chains import Chains


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("count", [2, 3])
def test_every_kind_of_chain_can_be_split_and_joined(kind: str, count: int) -> None:
    make: Callable[[Streams], Chains] = ALL[kind]
    chains = make(Streams(0))
    for update in range(3):
        chains.step(ENERGY, 10, update=update)
    state = chains.state_dict()
    parts = [shards.split([state], Ranks(rank, count)) for rank in range(count)]
    for name, whole in leaves(state).items():
        pieces = [leaves(part)[name] for part in parts]
        if isinstance(whole, Tensor):
            assert [len(piece) for piece in pieces] == [Ranks(rank, count).share(len(whole)) for rank in range(count)]
            assert torch.equal(torch.cat(pieces), whole)
        elif isinstance(whole, int):
            assert sum(pieces) == whole
    joined = make(Streams(1))
    joined.load_state_dict(copied(shards.split(parts, SINGLE_PROCESS)))
    again = leaves(joined.state_dict())
    assert all(torch.equal(again[n], v) if isinstance(v, Tensor) else again[n] == v for n, v in leaves(state).items())


def leaves(value: object, name: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {name: value}
    return {path: leaf for key, item in value.items() for path, leaf in leaves(item, f"{name}/{key}").items()}


def test_what_has_no_rows_cannot_be_split() -> None:
    with pytest.raises(BadInput, match="a state of str cannot be split"):
        shards.split([{"x": torch.zeros(4), "mood": "good"}], Ranks(0, 2))
