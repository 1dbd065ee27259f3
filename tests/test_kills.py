"""Killed before each of its file operations in turn and started again, a command ends as if nothing had happened."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from conftest import small_digits
from rich.console import Console
from test_run import assert_same
from torture.killing import Ended, ebmlife, kill_points

from ebmlife.runs import logging, run
from ebmlife.storage import atomic, checkpoint

TINY = [
    *("--updates", "4", "--checkpoint.every", "2", "--checkpoint.keep", "1", "--batch", "8", "--data.n", "100"),
    *("--chains.size", "20", "--net.width", "4", "--langevin.steps", "2", "--watch.pictures", "4"),
    *("--watch.pictures_every", "1000", "--watch.tensorboard_every", "1000"),
]
TRAIN = ["train", "toy-mixture-midrun", *TINY, "--or-resume", "--out"]
CHANGE = ["--data_noise", "0.3", "--updates", "5", "--allow-changes"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kills") / "whole"
    assert ebmlife([*TRAIN, str(place)]).code == 0
    return place


@pytest.fixture(scope="module")
def changed(whole: Path) -> Path:
    """The same run, resumed under another recipe: its only checkpoint is replaced."""
    place = Path(shutil.copytree(whole, whole.with_name("changed")))
    assert ebmlife(["resume", str(place), *CHANGE]).code == 0
    return place


def deaths(folder: Path, command: Callable[[int], Sequence[str]], *, every: bool) -> Iterator[Ended]:
    return kill_points(command, within=folder, step=1 if every else 7)


EVERY = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("every", EVERY)
def test_a_killed_training_ends_the_same(every: bool, whole: Path, tmp_path: Path) -> None:
    died = 0
    for death in deaths(tmp_path, lambda n: [*TRAIN, str(tmp_path / str(n))], every=every):
        folder = tmp_path / str(death.operation)
        ended = ebmlife([*TRAIN, str(folder)])
        assert ended.code == 0, f"{death.what}: {ended.err}"
        assert_as(whole, folder, death)
        died += 1
    assert died > (40 if every else 6)


@pytest.mark.parametrize("every", EVERY)
def test_a_kill_while_the_only_checkpoint_is_replaced_loses_nothing(
    every: bool, whole: Path, changed: Path, tmp_path: Path
) -> None:
    """`resume --allow-changes` writes a checkpoint of the same update under the new recipe."""
    for death in deaths(tmp_path, lambda n: _copied(whole, tmp_path, n), every=every):
        folder = tmp_path / str(death.operation)
        assert checkpoint.updates(folder) in ([4], [5], [4, 5]), death.what
        ended = ebmlife(["resume", str(folder), *CHANGE])
        assert ended.code == 0, f"{death.what}: {ended.err}"
        assert_as(changed, folder, death)


def _copied(whole: Path, place: Path, n: int) -> list[str]:
    return ["resume", str(shutil.copytree(whole, place / str(n))), *CHANGE]


def test_the_same_where_the_file_system_cannot_exchange_names(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between two renames, at which the old checkpoint once was swept away and the run began again."""
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    newest = checkpoint.path(folder, 4)
    newest.rename(newest.with_name(f".000000004.{atomic._machine()}-1.old.unfinished"))
    assert ebmlife(["resume", str(folder)]).code == 0
    assert_same(whole, folder)


ATTACK = [
    *("--classifier", "attacks.small:digits_net", "--threat", "linf:8/255", "--n", "4", "--steps", "2", "--k", "2"),
    *("--replicas", "2", "--verify", "3", "--evaluations", "1", "--gradient", "bpda", "--out"),
]


@pytest.mark.parametrize("every", EVERY)
def test_a_killed_attack_ends_the_same(every: bool, tmp_path: Path) -> None:
    model, whole = tmp_path / "model", tmp_path / "whole"
    run.begin(small_digits(updates="1", data__train="true"), model, console=Console(quiet=True))
    attack = ["attack", str(model), *ATTACK]
    assert ebmlife([*attack, str(whole)]).code == 0
    (tmp_path / "killed").mkdir()
    for death in kill_points(
        lambda n: [*attack, str(tmp_path / "killed" / str(n))], within=tmp_path / "killed", step=1 if every else 12
    ):
        folder = tmp_path / "killed" / str(death.operation)
        ended = ebmlife([*attack, str(folder)])
        assert ended.code == 0, f"{death.what}: {ended.err}"
        names = [sorted(str(path.relative_to(place)) for path in place.rglob("*")) for place in (whole, folder)]
        assert names[0] == names[1], death.what
        record = Path("bpda-k2") / "record" / "tensors.safetensors"
        assert (whole / record).read_bytes() == (folder / record).read_bytes()


def assert_as(whole: Path, folder: Path, death: Ended) -> None:
    """The bits, the log, and which files there are; events of TensorBoard are one file a start."""
    assert_same(whole, folder)
    logged = [[line["update"] for line in logging.read_log(place / "log.jsonl")] for place in (whole, folder)]
    assert logged[0] == logged[1], death.what
    names = [
        {str(path.relative_to(place)) for path in place.rglob("*") if "tfevents" not in path.name}
        for place in (whole, folder)
    ]
    assert names[0] == names[1], death.what
