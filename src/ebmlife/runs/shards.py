"""The part of a run's state that belongs to one rank, and how it is split over another number of ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.sampling.rng import Streams, generator
from ebmlife.storage import checkpoint

State = dict[str, Any]


def shard_of(state: State) -> State:
    """Returns banks and random streams. Weights, optimizers and the position in the data are equal on all ranks."""
    return {"chains": state["trainer"]["chains"], "streams": state["streams"], "torch": state["torch"]}


def with_shard(state: State, shard: State) -> State:
    """Returns the state with the banks and random streams of a rank."""
    trainer = state["trainer"] | {"chains": shard["chains"]}
    return state | {"trainer": trainer, "streams": shard["streams"], "torch": shard["torch"]}


def saved_by(manifest: dict[str, Any], folder: Path) -> int:
    """Returns the number of ranks that wrote the checkpoint `folder`, which has a shard of each but the first."""
    ranks, found = manifest.get("ranks", 1), {entry.name for entry in folder.glob("rank-*")}
    if ranks != len(found) + 1 or found != {checkpoint.shard(folder, rank).name for rank in range(1, ranks)}:
        names = ", ".join(sorted(found)) or "none"
        raise checkpoint.Damaged(f"checkpoint {folder} is damaged: saved by {ranks} ranks, and has shards {names}", "")
    return int(ranks)


def localize(state: State, folder: Path, *, saved: int, ranks: Ranks, device: torch.device | str) -> State:
    """Returns the state of a checkpoint for this rank: its own shard, or a part of all shards.

    If the number of ranks has changed, the shards are split again, and random streams start again under new names.
    """
    if saved == ranks.count and ranks.first:
        return state
    if saved == ranks.count:
        return with_shard(state, _read(folder, ranks.rank))
    shards = [shard_of(state), *(_read(folder, rank) for rank in range(1, saved))]
    scope = f"rank {ranks.rank} of {ranks.count} from update {state['trainer']['update']}/"
    streams = Streams(state["recipe"]["seed"], device=device, scope=scope)
    for name in state["streams"]:
        streams[name]
    return with_shard(
        state,
        {
            "chains": split([shard["chains"] for shard in shards], ranks),
            "streams": streams.state_dict(),
            "torch": generator(state["recipe"]["seed"], f"{scope}torch").get_state(),
        },
    )


def split(states: Sequence[Any], ranks: Ranks) -> Any:
    """Returns one rank's part of the states of several ranks. Rows are joined and split; the first rank gets counts."""
    one = states[0]
    if isinstance(one, dict):
        return {key: split([state[key] for state in states], ranks) for key in one}
    if isinstance(one, Tensor) and one.ndim:
        rows = torch.cat([*states])
        return rows[ranks.part(len(rows))]
    if isinstance(one, int):
        return sum(states) if ranks.first else 0
    if one is None:
        return None
    raise BadInput(f"chains with a state of {type(one).__name__} cannot be split over another number of ranks")


def _read(folder: Path, rank: int) -> State:
    state, _ = checkpoint.load(checkpoint.shard(folder, rank))
    if state.keys() != {"chains", "streams", "torch"}:
        raise BadInput(
            f"checkpoint {checkpoint.shard(folder, rank)} holds {', '.join(state)}: it is not the shard of a rank"
        )
    return state
