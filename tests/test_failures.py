"""Commands that fail: one line, exit code 2, and not a file or folder more than before."""

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import small_digits
from PIL import Image
from rich.console import Console

from ebmlife.cli import main
from ebmlife.runs import run

HUGE = ("9223372036854775808", "4611686018427387904", "1" * 400, "-1", "-9223372036854775809")
NOT_FINITE = ("nan", "inf", "-inf", "1e999")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and an image."""
    place = tmp_path_factory.mktemp("place")
    run.begin(small_digits(), place / "run", console=Console(quiet=True))
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(place / "a.png")
    (place / "b.png").write_bytes(b"not an image")
    (place / "file").write_text("a file")
    os.mkfifo(place / "fifo.png")
    (place / "taken").mkdir()
    (place / "taken" / "x").write_text("")
    return place


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def listed(place: Path) -> list[tuple[str, int]]:
    return sorted((str(path.relative_to(place)), path.lstat().st_size * path.is_file()) for path in place.rglob("*"))


def fails(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    before = listed(here)
    code = main(command.split())
    said = capsys.readouterr()
    line = said.err.splitlines()[-1]
    assert code == 2, (command, code, said)
    assert line.startswith("ebmlife: error: ")
    assert all(earlier.startswith("note: ") for earlier in said.err.splitlines()[:-1]), said.err
    assert "unfinished" not in line
    assert listed(here) == before, command
    return line


@pytest.mark.parametrize(
    "command",
    [
        "train digits-shortrun --out deep/new --device zzz",
        "train digits-shortrun --out deep/new --batch 0",
        "train digits-shortrun --out deep/new --batch 100000",
        "train digits-shortrun --out deep/new --chains.size 5",
        "train digits-shortrun --out deep/new --chains.size 1000000000",
        "train digits-shortrun --out deep/new --generator.run nowhere",
        "train digits-shortrun --out file/new --updates 1 --chains.size 200",
        "train folder-shortrun --out deep/new --data.folder nowhere --data.size 8",
        "train folder-shortrun --out deep/new --data.folder ~nobody-here/x --data.size 8",
        "train folder-shortrun --out deep/new --data.folder . --data.size 8",
        "train digits-shortrun --out taken",
        "resume nowhere",
        "resume run --batch 100000 --allow-changes",
        "sample run --out deep/a.txt",
        "sample run --out taken",
        "sample run --out deep/a.npy --device zzz",
        "sample run --out deep/a.npy --steps -1",
        "sample run --out deep/a.npy --n 0",
        "sample run --out deep/a.npy --update 3333",
        "sample run --out file/a.npy",
        "sample run --out file",
        "sample nowhere --out deep/a.npy",
        "sample zoo:nothing --out deep/a.npy",
        "sample run --out deep/a.npy --seed -1",
        "fid run --n 0",
        "fid run --n -3",
        "fid run --steps a",
        "fid run --steps -1",
        "fid run --steps 0,-1",
        "fid nowhere",
        "exam run --device zzz",
        "exam run --steps -1",
        "exam run --chains 1",
        "exam run --step-size 0",
        "exam run --step-size nan",
        "exam run --classifier nothing",
        "exam run --batch 0",
        "exam run --others nowhere --outliers",
        "exam run --out file",
        "exam run --out file/deep",
        "exam run --out run",
        "exam nowhere",
        "exam no_such_module:function --out deep/exam",
        "purify run a.png --out taken",
        "purify run a.png --out deep/clean --steps -1",
        "purify run a.png --out deep/clean --device zzz",
        "purify run a.png nothing.png --out deep/clean",
        "purify run a.png b.png --out deep/clean",
        "purify run a.png fifo.png --out deep/clean",
        "purify run a.png taken --out deep/clean",
        "purify run a.png /dev/zero --out deep/clean",
        "purify run a.png a.png --out deep/clean",
        "purify run a.png --out file/clean",
        "attack run --classifier nothing --threat linf:8/255",
        "attack run --classifier nothing --threat l9:1",
        "attack run --classifier timm:nothing --threat linf:8/255",
        "attack run --classifier cifar-resnet20:file --threat linf:8/255",
        "attack run --classifier run --threat linf:8/255",
        "report run --device zzz",
        "report run --out deep/a.txt",
        "report run --steps -5",
        "report run --chains 1",
        "report run --chains 0",
        "report nowhere",
        "report run run",
        "report run --out file/a.html --steps 5 --chains 4",
        "bench --rounds 0 --out deep/bench",
        "import nowhere --out deep/imported",
        "estimate digits-shortrun --devices 0",
        "train digits-shortrun --out \udcff",
        "demo --out \udcff",
    ],
    ids=ascii,
)
def test_a_command_that_fails_leaves_nothing(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    fails(here, command, capsys)


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(
    "command",
    [
        "sample run --out a.npy --n",
        "sample run --out a.npy --steps",
        "sample run --out a.npy --update",
        "sample run --out a.png --n",
        "fid run --n",
        "fid run --steps",
        "exam run --steps",
        "exam run --chains",
        "exam run --batch",
        "purify run a.png --out clean --steps",
        "report run --steps",
        "report run --chains",
        "attack run --classifier nothing --threat linf:8/255 --n",
        "attack run --classifier nothing --threat linf:8/255 --replicas",
        "attack run --classifier nothing --threat linf:8/255 --verify",
        "attack run --classifier nothing --threat linf:8/255 --evaluations",
        "attack run --classifier nothing --threat linf:8/255 --batch",
        "attack run --classifier nothing --threat linf:8/255 --sweep-k",
        "bench --rounds",
        "watch run --port",
        "resume run --from-update",
        "resume run --updates",
        "estimate digits-shortrun --devices",
        "show digits-shortrun --watch.pictures",
        "show digits-shortrun --batch",
        "show digits-shortrun --updates",
        "show digits-shortrun --workers",
        "show digits-shortrun --sampling_steps",
        "show digits-shortrun --langevin.steps",
        "show digits-shortrun --checkpoint.every",
        "train digits-shortrun --out new --chains.size",
        "train digits-shortrun --out new --net.width",
        "train digits-shortrun --out new --generator.net.width",
        "train digits-shortrun --out new --generator.net.latent",
        "train digits-longrun --out new --chains.mature",
        "train digits-longrun --out new --chains.burn_in_size",
        "train toy-rings-longrun --out new --data.n",
        "train toy-rings-longrun --out new --net.depth",
        "train digits-glow --out new --levels",
        "train digits-glow --out new --net.depth",
        "train digits-score --out new --noise.count",
        "train digits-classifier --out new --net.depth",
        "train digits-recovery --out new --levels",
        "train folder-shortrun --out new --data.folder . --data.size",
    ],
)
def test_counts_beyond_all_use_are_one_line(
    here: Path, command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = fails(here, f"{command}={number}" if "--" in command else f"{command} {number}", capsys)
    assert len(line) < 2200


@pytest.mark.parametrize("number", [*NOT_FINITE, "1e-400"])
@pytest.mark.parametrize(
    "command",
    [
        "exam run --step-size",
        "exam run --evaluation-temperature",
        "exam run --basins --basin-depth",
        "attack run --classifier nothing --threat linf:8/255 --gradient smooth --beta",
        "attack run --classifier nothing --threat",
        "bench --seconds",
        "estimate digits-shortrun --link",
        "show digits-shortrun --temperature",
        "show digits-shortrun --langevin.step_size",
        "show digits-shortrun --optimizer.learning_rate",
        "show digits-shortrun --optimizer.clip",
        "show digits-shortrun --tau",
        "show digits-score --noise.largest",
        "show digits-recovery --relative_step",
        "train toy-rings-longrun --out new --data.scale",
    ],
)
def test_numbers_that_are_not_finite_are_one_line(
    here: Path, command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(here, f"{command}={number}", capsys)
