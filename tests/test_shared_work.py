"""Exams and attacks that two ranks share leave the record that one process leaves, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from attacks.small import Linear, defended, images
from attacks.test_evaluation import same
from conftest import small_digits
from ranks import on_ranks
from rich.console import Console
from test_cli import tree
from test_torchrun import on_two
from torch import Tensor, nn

from ebmlife.attacks import Record, Threat, evaluate
from ebmlife.cli import main
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import Diverged
from ebmlife.exam import LifeCycle, life_cycle
from ebmlife.exam.subject import HasGradient
from ebmlife.runs import run
from ebmlife.sampling.energy import Energy, gaussian
from ebmlife.sampling.long_run import long_walk
from ebmlife.storage import checkpoint

EXAM = ["--steps", "20", "--chains", "8", "--batch", "3"]
ATTACK = [
    *("--classifier", "attacks.small:digits_net", "--threat", "linf:8/255", "--n", "7", "--k", "2", "--batch", "2"),
    *("--steps", "2", "--replicas", "2", "--verify", "3", "--evaluations", "2"),  # groups of three images
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shared-work") / "run"
    run.begin(small_digits(updates="2", data__train="true"), place, console=Console(quiet=True))
    return place


def recorded(folder: Path) -> dict[str, bytes | None]:
    """All files but locks and pictures: those carry no record, and a path in their title."""
    return {name: data for name, data in tree(folder).items() if not name.endswith((".lock", ".png"))}


def test_the_exam_of_two_ranks_is_that_of_one(folder: Path, tmp_path: Path) -> None:
    assert main(["exam", str(folder), *EXAM, "--out", str(tmp_path / "one")]) == 0
    first, second = on_two("exam", str(folder), *EXAM, "--out", str(tmp_path / "two"))
    assert (first[0], second) == (0, (0, "", ""))
    assert "verdict: " in first[1]
    assert "note: " not in first[1]
    assert recorded(tmp_path / "one") == recorded(tmp_path / "two")
    again, _ = on_two("exam", str(folder), *EXAM, "--out", str(tmp_path / "two"))  # at once: it is finished
    assert again[1] == first[1][first[1].index("8 chains") :]


def test_ranks_without_work_are_said(folder: Path, tmp_path: Path) -> None:
    few = ["--steps", "5", "--chains", "4", "--out", str(tmp_path / "out")]
    first, _ = on_two("exam", str(folder), *few)
    assert "are work for 1 of 2 ranks; use --batch 2" in first[1]


def _walk(ranks: Ranks, steps: int, folder: Path | None, sampler: str = "langevin") -> Tensor:
    start = torch.linspace(-1, 1, 14).view(7, 2)
    how: dict[str, Any] = {"step_size": 0.1, "batch": 2, "sampler": sampler}
    return long_walk(gaussian(0.5), start, steps=steps, folder=folder, ranks=ranks, **how)[0]


@pytest.mark.parametrize("sampler", ["langevin", "underdamped", "replica-exchange"])
def test_a_long_walk_resumes_with_any_number_of_ranks(tmp_path: Path, sampler: str) -> None:
    whole = _walk(SINGLE_PROCESS, 350, None, sampler)
    for x in on_ranks(_walk, 350, None, sampler, count=3):
        assert torch.equal(x, whole)
    on_ranks(_walk, 130, tmp_path, sampler, count=3)
    _walk(SINGLE_PROCESS, 210, tmp_path, sampler)
    assert [x.tolist() for x in on_ranks(_walk, 350, tmp_path, sampler)] == [whole.tolist()] * 2
    assert checkpoint.updates(tmp_path) == [210, 350]


def _meets_nan(ranks: Ranks) -> str:
    """Only the last batch, of another rank, reaches the region without an energy."""
    start = torch.tensor([[-9.0], [-9.0], [0.0], [0.0]])
    energy = lambda x: torch.where(x[:, 0] > 0.5, torch.nan, (x[:, 0] - x[:, 0].detach().round()) ** 2)  # noqa: E731
    try:
        long_walk(energy, start, steps=200, step_size=0.3, batch=2, sampler="mala", ranks=ranks)
    except Diverged as error:
        return str(error)
    return ""


def test_a_nan_on_one_rank_ends_the_walk_on_all() -> None:
    assert ["NaN" in line for line in on_ranks(_meets_nan)] == [True, True]


def _stopped(ranks: Ranks, folder: Path) -> int:
    """One rank is asked to stop, at its second call."""
    calls = iter([False, True])
    start = torch.zeros(4, 2)
    stopping = (lambda: next(calls)) if ranks.rank == 1 else (lambda: False)
    options: dict[str, Any] = {"batch": 2, "folder": folder, "stopping": stopping, "ranks": ranks}
    return long_walk(gaussian(0.5), start, steps=1000, step_size=0.1, **options)[1]


def test_one_rank_that_is_told_to_stop_stops_all(tmp_path: Path) -> None:
    assert on_ranks(_stopped, tmp_path) == [100, 100]
    assert checkpoint.updates(tmp_path) == [100]


class Steep:
    """A gradient without an energy: one step overflows."""

    def gradient(self, x: Tensor) -> Tensor:
        return 1e36 * x


def quartic(x: Tensor) -> Tensor:
    return x.square().sum(1).square()


def _exam(ranks: Ranks, energy: Energy | HasGradient) -> LifeCycle:
    """Chains that are thrown out of the world: the last batch, which is the second rank's."""
    start = torch.zeros(6, 2)
    start[5] = 1e9
    return life_cycle(energy, start, steps=50, step_size=1.0, batch=3, ranks=ranks)


@pytest.mark.parametrize(("energy", "said"), [(quartic, "an energy is not finite at step 1"), (Steep(), "not finite")])
def test_chains_that_diverge_on_one_rank_are_seen_by_all(energy: Energy | HasGradient, said: str) -> None:
    one, found = _exam(SINGLE_PROCESS, energy), on_ranks(_exam, energy)
    assert said in one.reasons[-1]
    for cycle in found:
        assert cycle.steps == one.steps == [0]
        assert cycle.reasons == one.reasons


def test_the_attack_of_two_ranks_is_that_of_one(folder: Path, tmp_path: Path) -> None:
    words = ["attack", str(folder), *ATTACK, "--masking"]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    first, second = on_two(*words, "--out", str(tmp_path / "two"))
    assert (first[0], second) == (0, (0, "", ""))
    assert recorded(tmp_path / "one") == recorded(tmp_path / "two")
    assert Record.load(tmp_path / "two" / "bpda-k2" / "record").settings["group"] == 3


SMALL: dict[str, Any] = {"threat": Threat("linf", 0.13), "steps": 4, "replicas": 4, "verify": 12, "evaluations": 2}


def _attack(ranks: Ranks, folder: Path | None, group: int) -> Record:
    x, y = images(10)
    return evaluate(defended("bpda"), x, y, folder=folder, group=group, ranks=ranks, **SMALL)


@pytest.mark.parametrize("group", [3, 10])
def test_an_attack_that_was_killed_goes_on_with_more_ranks(tmp_path: Path, group: int) -> None:
    """With one group for two ranks, one of them has nothing to do."""
    whole = _attack(SINGLE_PROCESS, None, group)
    assert all(same(record, whole) for record in on_ranks(_attack, None, group))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(tmp_path, group)
    assert any((tmp_path / "parts").iterdir())
    assert all(same(record, whole) for record in on_ranks(_attack, tmp_path, group))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record", "settings.json"]
    assert all(same(record, whole) for record in on_ranks(_attack, tmp_path, group))  # read, not made again


def _interrupted(folder: Path, group: int) -> None:
    calls = 0

    def stop(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    x, y = images(10)
    evaluate(defended("bpda"), x, y, folder=folder, group=group, save_every=0, watch=stop, **SMALL)


class Spoilt(Linear):
    """No logits for bright images."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return torch.where(x.mean((1, 2, 3))[:, None] > 0.3, torch.nan, logits)


def _diverging(ranks: Ranks) -> Exception:
    x, y = images(4)
    order = x.mean((1, 2, 3)).argsort()  # the bright one last: it is the second rank's
    robust: nn.Module = Spoilt()
    with pytest.raises(Diverged) as error:
        evaluate(robust, x[order], y[order], group=2, ranks=ranks, **SMALL)
    return error.value


def test_a_divergence_on_one_rank_is_raised_by_all() -> None:
    found = on_ranks(_diverging)
    assert [type(error) for error in found] == [Diverged, Diverged]
    assert str(found[0]) == str(found[1]) != ""


def test_a_mistake_in_an_attack_is_said_once(folder: Path, tmp_path: Path) -> None:
    found = on_two("attack", str(folder), *ATTACK, "--gradient", "bpda,ful", "--out", str(tmp_path / "out"))
    assert [code for code, _, _ in found] == [2, 2]
    assert sum("unknown gradient" in errors for _, _, errors in found) == 1
    assert not (tmp_path / "out").exists()
