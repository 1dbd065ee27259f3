"""What several ranks do is what one process does, wherever that is defined."""

import time
from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.storage.workspace import Workspace


@pytest.mark.parametrize("total", [0, 1, 7, 12, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_parts_are_a_partition_in_order(total: int, count: int) -> None:
    ranks = [Ranks(rank, count) for rank in range(count)]
    assert [i for one in ranks for i in range(total)[one.part(total)]] == list(range(total))
    shares = [one.share(total) for one in ranks]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_a_single_process_changes_nothing() -> None:
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor(3.0)]
    SINGLE_PROCESS.average(tensors)
    assert [tensor.tolist() for tensor in tensors] == [[1, 2], 3]
    assert SINGLE_PROCESS.any(True)
    assert not SINGLE_PROCESS.any(False)
    assert list(SINGLE_PROCESS.in_order([lambda: torch.tensor(1), lambda: torch.tensor(2)])) == [1, 2]
    with pytest.raises(ValueError, match="mine"), SINGLE_PROCESS.raise_on_all(), SINGLE_PROCESS.rank0_first():
        raise ValueError("mine")


def _exchange(ranks: Ranks) -> dict[str, object]:
    mine = [torch.full((2, 3), float(ranks.rank)), torch.tensor(10.0 * ranks.rank)]
    ranks.average(mine)
    made: list[int] = []

    def make(i: int) -> Tensor:
        made.append(i)
        return torch.full((i + 1, 2), i)

    return {
        "average": [tensor.tolist() for tensor in mine],
        "any": [ranks.any(ranks.rank == 1), ranks.any(False)],
        "gathered": [one["x"].tolist() for one in ranks.gather({"x": torch.arange(ranks.rank)})],
        "in order": [tensor.tolist() for tensor in ranks.in_order([lambda i=i: make(i) for i in range(5)])],
        "made": made,
        "prints_first": [ranks.first_to_print("the same"), ranks.first_to_print(f"my own, {ranks.rank}")],
    }


def test_three_ranks_exchange_what_they_should() -> None:
    found = on_ranks(_exchange, count=3)
    for one in found:
        assert one["average"] == [[[1.0] * 3] * 2, 10.0]
        assert one["any"] == [True, False]
        assert one["gathered"] == [[], [0], [0, 1]]
        assert one["in order"] == [[[i, i]] * (i + 1) for i in range(5)]
    assert [one["made"] for one in found] == [[0, 3], [1, 4], [2]]
    assert sorted(one["prints_first"][0] for one in found) == [False, False, True]
    assert all(one["prints_first"][1] for one in found)


def _mistaken(ranks: Ranks) -> None:
    with ranks.raise_on_all():
        if ranks.rank == 1:
            raise BadInput("photo.jpg cannot be read")


def test_one_ranks_mistake_is_raised_by_all() -> None:
    found = on_ranks(_mistaken)
    assert [(type(error), str(error)) for error in found] == [(BadInput, "photo.jpg cannot be read")] * 2


def _in_workspace(ranks: Ranks, folder: Path) -> None:
    with ranks.on_rank0(Workspace(folder, {"seed": 0}).open()):
        assert (folder / "settings.json").exists()
    with ranks.on_rank0(Workspace(folder, {"seed": 1}).open()):
        raise AssertionError("not refused")


def test_the_first_rank_opens_a_workspace_for_all_and_all_raise_if_it_cannot(tmp_path: Path) -> None:
    errors = on_ranks(_in_workspace, tmp_path)
    assert [type(error) for error in errors] == [BadInput] * 2
    assert all("(seed: 0 -> 1)" in str(error) for error in errors)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "settings.json"]


def _met(ranks: Ranks, folder: Path) -> list[int]:
    """How many of three had come when this one left, at each of three meetings."""
    there = []
    for meeting in range(3):
        time.sleep(0.2 * ((ranks.rank + meeting) % 3))  # another one is late each time
        (folder / f"{meeting}-{ranks.rank}").touch()
        ranks.barrier()
        there.append(len([*folder.glob(f"{meeting}-*")]))
    return there


def test_no_rank_passes_a_barrier_before_all_have_reached_it(tmp_path: Path) -> None:
    assert on_ranks(_met, tmp_path, count=3) == [[3, 3, 3]] * 3


def _led(ranks: Ranks, file: Path) -> bool:
    with ranks.rank0_first():
        there = file.exists()
        time.sleep(0.3 * ranks.first)  # else the others might be late by chance
        file.touch()
    return there


def test_the_first_goes_ahead(tmp_path: Path) -> None:
    assert on_ranks(_led, tmp_path / "file", count=3) == [False, True, True]
