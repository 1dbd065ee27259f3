"""The command line under several ranks: what a user of torchrun sees."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from ranks import on_ranks, started
from rich.console import Console
from safetensors.torch import load_file
from test_run import assert_same

from ebmlife.cli import main
from ebmlife.data import digits
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.exam import score_samples
from ebmlife.runs import build, logging, run
from ebmlife.storage import checkpoint

QUIET = Console(quiet=True)
FIELDS = [
    *("--batch", "8", "--net.width", "4", "--langevin.steps", "3", "--watch.pictures", "4"),
    *("--generator.net.width", "4", "--generator.net.latent", "3", "--chains.size", "20", "--sampling_steps", "2"),
]


def _main(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def on_two(*words: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of `ebmlife ...` on each of two ranks."""
    return started(_main, *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("torchrun") / "run"
    run.begin(small_digits(), place, console=QUIET)
    return place


def test_only_the_first_rank_prints(tmp_path: Path) -> None:
    """Only the first rank logs: one line of the log an update, one board, one of each picture, one page."""
    place, often = tmp_path / "run", ["--watch.pictures_every", "1", "--watch.tensorboard_every", "1"]
    first, second = on_two("train", "digits-shortrun", *FIELDS, *often, "--updates", "2", "--out", str(place))
    assert first[0] == second[0] == 0
    assert f"done: 2 updates in {place}" in " ".join(first[1].split())
    assert second[1:] == ("", "")
    log = logging.read_log(place / "log.jsonl")
    assert [line["update"] for line in log] == [1, 2]
    assert all(line["data_seconds"] > 0 for line in log)
    assert len([*(place / "tensorboard").iterdir()]) == 1
    drawn = sorted(path.name for path in (place / "pictures").iterdir())
    assert drawn == [f"{name}-{n:09d}.png" for name in ("bank", "generator", "samples") for n in (1, 2)]
    assert _main("report", str(place), "--no-walk")[0] == 0
    assert (place / "report.html").read_text().count("digits-shortrun") > 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "digits-shortrn", "--out", "{out}"], 2, "unknown recipe"),
        (["sample", "{folder}", "--nn", "3"], 2, "the following arguments are required: --out"),
        (
            ["train", "digits-shortrun", *FIELDS, "--batch", "9", "--out", "{out}"],
            2,
            "cannot be split evenly over 2 ranks",
        ),
        (
            ["train", "digits-shortrun", *FIELDS, "--explosion", "1e-12", "--out", "{out}"],
            1,
            "diverged: the energy differ",
        ),
        (["sample", "{folder}", "--out", "{out}.gif"], 2, "must end in .png"),
        (["fid", "{folder}", "--n", "0", "--steps", "1,b"], 2, "--steps takes whole numbers"),
    ],
)
def test_a_mistake_is_said_once(words: list[str], code: int, message: str, folder: Path, tmp_path: Path) -> None:
    found = on_two(*(word.format(folder=folder, out=tmp_path / "out") for word in words))
    assert [one[0] for one in found] == [code, code]
    said = [one[2] for one in found if one[2]]
    assert len(said) == 1
    assert said[0].startswith("ebmlife: ")
    assert message in said[0]
    assert len(said[0].splitlines()) == 1


def test_samples_and_scores_are_those_of_one_process(folder: Path, tmp_path: Path) -> None:
    """600 samples are three batches, for two ranks: one makes two of them."""
    for name, call in (("one", main), ("two", lambda words: on_two(*words))):
        call(["sample", str(folder), "--n", "600", "--out", str(tmp_path / f"{name}.safetensors")])
    one, two = (load_file(tmp_path / f"{name}.safetensors")["images"] for name in ("one", "two"))
    assert torch.equal(one, two)
    assert not torch.equal(one[:88], one[512:])  # batches differ
    words = ("fid", str(folder), "--n", "600", "--steps", "2")
    assert on_two(*words)[0][1] == _main(*words)[1]
    alone = pytest.approx(_score(SINGLE_PROCESS, folder), rel=1e-7)  # sums depend on the number of threads
    assert on_ranks(_score, folder) == [alone] * 2


def _score(ranks: Ranks, folder: Path) -> dict[str, float]:
    return score_samples(build.load(folder), digits(), n=600, steps=2, seed=1, ranks=ranks)


LONG = [
    *("--batch", "16", "--data.n", "200", "--chains.size", "50", "--net.width", "8", "--langevin.steps", "5"),
    *("--checkpoint.every", "5", "--watch.pictures_every", "1000", "--watch.pictures", "10"),
]


def test_a_killed_rank_stops_all_and_the_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    """SIGKILL for the second of torchrun's two processes, in the middle of its work."""
    folder, environment = tmp_path / "killed", os.environ | {"OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "ebmlife"]
    train = ["train", "toy-mixture-midrun", *LONG, "--out"]
    action = [*torchrun, *train, str(folder), "--updates", "100000"]
    process = subprocess.Popen(action, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not checkpoint.updates(folder):
        time.sleep(0.05)
    os.kill(_rank_1_of(process.pid), signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode != 0
    said = [line for line in errors.splitlines() if line.startswith("ebmlife: ")]
    assert len(said) == 1, errors
    assert said[0].startswith("ebmlife: lost a rank: ")
    assert "last good checkpoint: " in said[0]
    assert f"ebmlife resume {folder}" in said[0]
    updates = str(checkpoint.updates(folder)[-1] + 5)
    assert [code for code, _, _ in on_two("resume", str(folder), "--updates", updates)] == [0, 0]
    assert [code for code, _, _ in on_two(*train, str(tmp_path / "whole"), "--updates", updates)] == [0, 0]
    assert_same(tmp_path / "whole", folder)
    name = Path("checkpoints") / f"{int(updates):09d}" / "rank-1" / "tensors.safetensors"
    assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_killed_rank_is_started_again_and_nobody_is_needed(tmp_path: Path) -> None:
    """`train --or-resume` under torchrun's restarts: the same bits as a run that nothing happened to."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    train = ["-m", "ebmlife", "train", "toy-mixture-midrun", *LONG, "--updates", "60", "--or-resume", "--out"]
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(
        [*torchrun, *train, str(folder)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not checkpoint.updates(folder):
        time.sleep(0.02)
    os.kill(_rank_1_of(process.pid), signal.SIGKILL)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "done: 60 updates" in " ".join(out.split())
    again = subprocess.run(
        [*torchrun, *train, str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert again.returncode == 0, again.stderr
    assert "finished already: 60 updates" in " ".join(again.stdout.split())
    subprocess.run([*torchrun, *train, str(whole)], env=environment, check=True, capture_output=True, timeout=300)
    assert_same(whole, folder)
    name = Path("checkpoints") / "000000060" / "rank-1" / "tensors.safetensors"
    assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert [line["update"] for line in logging.read_log(folder / "log.jsonl")] == [*range(1, 61)]


def _rank_1_of(torchrun: int) -> int:
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == torchrun and b"RANK=1" in (place / "environ").read_bytes().split(b"\0"):
                return int(place.name)
    raise AssertionError("torchrun has no second process")


def _stopped(rank: int, folder: Path) -> tuple[int, str, str]:
    """A training that a signal reaches on one rank only."""

    def strike() -> None:
        while not checkpoint.updates(folder):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    if os.environ["RANK"] == str(rank):
        threading.Thread(target=strike, daemon=True).start()
    return _main("train", "toy-mixture-midrun", *LONG, "--updates", "100000", "--out", str(folder))


def test_a_signal_to_one_rank_saves_and_stops_all(tmp_path: Path) -> None:
    first, second = started(_stopped, 1, tmp_path / "run")
    assert first[0] == second[0] == 0
    update = checkpoint.updates(tmp_path / "run")[-1]
    assert f"stopped and saved at update {update}" in first[1]
    assert logging.read_log(tmp_path / "run" / "log.jsonl")[-1]["update"] == update
