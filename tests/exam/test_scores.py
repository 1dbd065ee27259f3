from pathlib import Path

import pytest
import torch
from conftest import small_digits
from rich.console import Console

from ebmlife import langevin
from ebmlife.cli import main
from ebmlife.data import InMemory, digits
from ebmlife.errors import BadInput
from ebmlife.exam import score_samples
from ebmlife.exam.scores import in_batches
from ebmlife.runs import build, run
from ebmlife.sampling.rng import Streams, normal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run.begin(small_digits(), tmp_path / "run", console=Console(quiet=True))
    return tmp_path / "run"


def test_digits_have_their_own_distance_never_called_fid(folder: Path) -> None:
    found = score_samples(build.load(folder), digits(), n=30, steps=1)
    assert list(found) == ["fd_digits_30"]
    assert found["fd_digits_30"] > 0


def test_the_command_shows_the_start_beside_the_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fid", str(folder), "--n", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[:2]] == ["0", "2"]
    assert all("fd_digits_20" in line for line in lines[:2])
    assert (folder / "fid-steps.png").exists()
    assert (folder / "fid-steps-strips.png").exists()
    assert main(["fid", str(folder), "--n", "20", "--steps", "0,x"]) == 2


def test_the_command_finds_the_best_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fid", str(folder), "--n", "20", "--checkpoints"]) == 0
    assert "best: update 6, fd_digits_20" in capsys.readouterr().out
    assert (folder / "fid-checkpoints.png").exists()


def test_samples_of_more_steps_are_the_same_chains_grown_older(folder: Path) -> None:
    model, streams = build.load(folder), Streams(3, scope="sample/0/")
    noise, step_size = normal(streams["langevin"]), model.recipe.langevin.step_size
    x = model.start(9, rng=streams["births"]).x
    for age, more in ((2, 2), (5, 3)):
        x, _ = langevin(model.energy, x, steps=more, step_size=step_size, noise=noise)
        assert torch.equal(x, model.sample(9, steps=age, seed=3))


def test_all_of_the_data_comes_once_in_order() -> None:
    data = InMemory(torch.arange(10.0)[:, None])
    assert torch.cat(list(in_batches(data, 3))).flatten().tolist() == list(range(10))


def test_points_have_no_score(folder: Path) -> None:
    with pytest.raises(BadInput, match="scores need images"):
        score_samples(build.load(folder), InMemory(torch.zeros(5, 2)), n=5, steps=0)
