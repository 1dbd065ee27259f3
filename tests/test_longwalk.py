"""Long walks are plain Langevin walks, whatever batches, marks, kills and checkpoints do to them."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ebmlife import langevin
from ebmlife.errors import BadInput, Diverged
from ebmlife.sampling.energy import gaussian, tempered
from ebmlife.sampling.long_run import Progress, Snapshots, log_spaced, long_walk
from ebmlife.sampling.rng import generator, normal
from ebmlife.storage import checkpoint

ENERGY = gaussian(0.5)


def start(chains: int = 6) -> Tensor:
    return torch.linspace(-1, 1, 2 * chains).view(chains, 2)


def test_it_is_the_langevin_loop_to_the_bit() -> None:
    x, done = long_walk(ENERGY, start(), steps=345, step_size=0.1, seed=3, watchers=[Snapshots([0, 7, 150, 345])])
    plain, _ = langevin(ENERGY, start(), steps=345, step_size=0.1, noise=normal(generator(3, "chains 0")))
    assert done == 345
    assert torch.equal(x, plain)


def test_a_batch_does_not_know_of_the_others() -> None:
    whole, _ = long_walk(ENERGY, start(7), steps=120, step_size=0.1, batch=3)
    alone, _ = long_walk(ENERGY, start(7)[:3], steps=120, step_size=0.1, batch=3)
    assert torch.equal(whole[:3], alone)
    assert not torch.equal(whole[3:6] - whole[:3], start(7)[3:6] - start(7)[:3])  # noise of their own


def test_a_long_walk_reaches_the_stationary_variance() -> None:
    """2 s^2 / (2 - a) with a = step_size^2 / (2 s^2), from a start far away."""
    s, step_size, chains = 0.5, 0.2, 20_000
    x, _ = long_walk(gaussian(s), torch.full((chains, 1), 3.0), steps=300, step_size=step_size, batch=5000)
    expected = 2 * s**2 / (2 - step_size**2 / (2 * s**2))
    assert x.var().item() == pytest.approx(expected, rel=5 * math.sqrt(2 / chains))


def test_the_start_is_left_as_it_was() -> None:
    x = start()
    long_walk(ENERGY, x, steps=10, step_size=0.1)
    assert torch.equal(x, start())


@pytest.mark.parametrize("steps", [1, 2, 100, 12_345, 1_000_000])
def test_marks_are_log_spaced_from_the_start_to_the_end(steps: int) -> None:
    marks = log_spaced(steps)
    assert marks[0] == 0
    assert marks[-1] == steps
    assert marks == sorted(set(marks))
    assert all(later / earlier < 1.5 for earlier, later in pairwise(marks) if earlier >= 10)
    assert len(marks) <= 2 + 8 * (1 + math.log10(steps))


def test_snapshots_are_the_same_chains_at_the_marks() -> None:
    shots = Snapshots([0, 5, 130, 200], chains=2)
    x, _ = long_walk(ENERGY, start(), steps=200, step_size=0.1, watchers=[shots])
    assert shots.steps == [0, 5, 130, 200]
    assert torch.equal(shots.states[0], start()[:2])
    assert torch.equal(shots.states[-1], x[:2])
    young, _ = long_walk(ENERGY, start(), steps=5, step_size=0.1)
    assert torch.equal(shots.states[1], young[:2])


def test_stopped_and_resumed_gives_the_same_bits_and_the_same_snapshots(tmp_path: Path) -> None:
    marks = log_spaced(500)
    whole, parts = Snapshots(marks), Snapshots(marks)
    expected, _ = long_walk(ENERGY, start(), steps=500, step_size=0.1, batch=4, watchers=[whole])
    looks = iter([False, False, True])
    _, done = long_walk(
        ENERGY, start(), steps=500, step_size=0.1, batch=4, watchers=[parts], folder=tmp_path, stopping=looks.__next__
    )
    assert 0 < done < 500
    again = Snapshots(marks)
    x, done = long_walk(ENERGY, start(), steps=500, step_size=0.1, batch=4, watchers=[again], folder=tmp_path)
    assert done == 500
    assert torch.equal(x, expected)
    assert again.steps == whole.steps
    assert torch.equal(torch.stack(again.states), torch.stack(whole.states))


@pytest.mark.parametrize("sampler", ["mala", "underdamped", "replica-exchange"])
def test_walks_of_other_samplers_resume_to_the_bit_and_report(tmp_path: Path, sampler: str) -> None:
    """Stopped in the warm-up and after it: states, adapted step sizes and counts are all restored."""
    reports: list[dict[str, Any]] = []
    walk = partial(long_walk, ENERGY, start(), steps=700, step_size=0.1, batch=4, sampler=sampler)
    expected, _ = walk(report=reports.append)
    for stops in (3, 4):
        looks = iter([False] * stops + [True])
        walk(folder=tmp_path, stopping=looks.__next__)
    x, done = walk(folder=tmp_path, report=reports.append)
    assert done == 700
    assert torch.equal(x, expected)
    assert reports[0] == reports[1]
    assert 0 < reports[0]["acceptance"] <= 1
    with pytest.raises(BadInput, match="holds another walk"):
        long_walk(ENERGY, start(), steps=700, step_size=0.1, batch=4, folder=tmp_path)


def test_a_nan_in_a_metropolis_test_says_where() -> None:
    broken = lambda x: torch.where(x[:, 0] > 0.9, math.nan, x.square().sum(1))  # noqa: E731
    with pytest.raises(Diverged, match=r"NaN.*between steps 0 and 100"):
        long_walk(broken, start() / 2, steps=700, step_size=0.5, sampler="mala")


def test_a_finished_walk_is_not_walked_again_and_can_go_further(tmp_path: Path) -> None:
    seen: list[Progress] = []
    long_walk(ENERGY, start(), steps=300, step_size=0.1, folder=tmp_path)
    long_walk(ENERGY, start(), steps=300, step_size=0.1, folder=tmp_path, progress=seen.append)
    assert seen == []
    x, _ = long_walk(ENERGY, start(), steps=400, step_size=0.1, folder=tmp_path)
    assert torch.equal(x, long_walk(ENERGY, start(), steps=400, step_size=0.1)[0])
    with pytest.raises(BadInput, match="holds a walk of 400 steps already, more than the 300"):
        long_walk(ENERGY, start(), steps=300, step_size=0.1, folder=tmp_path)


def test_what_is_kept_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    sizes = []
    for steps in (300, 3000):
        long_walk(ENERGY, start(), steps=steps, step_size=0.1, folder=tmp_path / str(steps), save_every=0)
        assert len(checkpoint.updates(tmp_path / str(steps))) == 2
        sizes.append((checkpoint.path(tmp_path / str(steps), steps) / "tensors.safetensors").stat().st_size)
    assert sizes[0] == sizes[1]


def test_progress_counts_up_and_says_what_is_left() -> None:
    seen: list[Progress] = []
    long_walk(ENERGY, start(), steps=450, step_size=0.1, progress=seen.append)
    assert [look.step for look in seen] == [100, 200, 300, 400, 450]
    assert all(look.steps == 450 and look.seconds_left >= 0 for look in seen)
    assert seen[-1].seconds_left == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_size": 0.2}, r"holds another walk \(step_size: 0\.1 -> 0\.2\); choose another folder"),
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"batch": 2}, "batch: 256 -> 2"),
        ({"watchers": [Snapshots([0, 9])]}, "marks: "),
    ],
)
def test_a_different_walk_is_refused_in_a_folder_that_holds_one(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    long_walk(ENERGY, start(), steps=10, step_size=0.1, folder=tmp_path)
    with pytest.raises(BadInput, match=message):
        long_walk(ENERGY, start(), **{"steps": 10, "step_size": 0.1, "folder": tmp_path, **change})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="start: "):
        long_walk(ENERGY, start() + 1, steps=10, step_size=0.1, folder=tmp_path)
    with pytest.raises(BadInput, match="energy: "):
        long_walk(tempered(ENERGY, 2.0), start(), steps=10, step_size=0.1, folder=tmp_path)


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long_walk(ENERGY, start(), steps=300, step_size=0.1, folder=tmp_path, save_every=0)
    newest = checkpoint.path(tmp_path, 300)
    (newest / "tensors.safetensors").write_bytes(b"torn")
    x, _ = long_walk(ENERGY, start(), steps=300, step_size=0.1, folder=tmp_path)
    assert "000000300 is damaged" in caplog.text
    assert torch.equal(x, long_walk(ENERGY, start(), steps=300, step_size=0.1)[0])
    assert newest.with_suffix(".damaged").is_dir()


def test_a_walk_without_a_sound_checkpoint_does_not_begin_again(tmp_path: Path) -> None:
    long_walk(ENERGY, start(), steps=100, step_size=0.1, folder=tmp_path)
    (checkpoint.path(tmp_path, 100) / "state.json").unlink()
    with pytest.raises(BadInput, match="no checkpoint before it is intact; start again in another folder"):
        long_walk(ENERGY, start(), steps=300, step_size=0.1, folder=tmp_path)


def test_states_that_diverge_are_not_hidden() -> None:
    shots = Snapshots([0, 10, 10_000])
    with pytest.raises(Diverged, match="not finite"):
        long_walk(lambda x: -x.pow(4).sum(1), start(), steps=10_000, step_size=0.5, watchers=[shots])
    assert shots.steps[0] == 0


def test_nonsense_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1 chain"):
        long_walk(ENERGY, torch.empty(0, 2), steps=3, step_size=0.1)
    with pytest.raises(BadInput, match="step_size above 0"):
        long_walk(ENERGY, start(), steps=3, step_size=0)


SCRIPT = """
import sys
from pathlib import Path
import torch
from ebmlife.sampling.energy import gaussian
from ebmlife.sampling.long_run import Snapshots, log_spaced, long_walk
torch.set_num_threads(1)
shots = Snapshots(log_spaced(100_000), chains=2)
start = torch.linspace(-1, 1, 8).view(4, 2)
long_walk(gaussian(0.5), start, steps=100_000, step_size=0.05, batch=4, watchers=[shots], folder=Path(sys.argv[1]),
          save_every=0.05)
"""


def test_a_killed_walk_of_100_000_steps_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL wherever it hits, also while a checkpoint is written."""
    whole = Snapshots(log_spaced(100_000), chains=2)
    four = torch.linspace(-1, 1, 8).view(4, 2)
    expected, _ = long_walk(gaussian(0.5), four, steps=100_000, step_size=0.05, batch=4, watchers=[whole])
    chance, hits = random.Random(0), 0
    for _ in range(40):
        before = max(checkpoint.updates(tmp_path), default=0)
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=os.environ)
        while process.poll() is None and max(checkpoint.updates(tmp_path), default=0) <= before:
            time.sleep(0.01)
        if hits < 3:
            time.sleep(chance.uniform(0, 0.5))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                hits += 1
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL
    assert hits == 3  # else nothing was shown
    state, _ = checkpoint.load(checkpoint.path(tmp_path, 100_000))
    walk, shots = state["parts"]
    assert torch.equal(walk["x"], expected)
    assert shots["steps"] == whole.steps
    assert all(torch.equal(a, b) for a, b in zip(shots["states"], whole.states, strict=True))
