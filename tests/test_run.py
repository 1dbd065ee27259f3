"""A run that was stopped and resumed gives the same bits as one that was not."""

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from rich.console import Console
from torch import Tensor

from ebmlife import Diverged
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, override
from ebmlife.runs import build, logging, machine, run
from ebmlife.runs.folder import read_recipe
from ebmlife.runs.saving import last_good
from ebmlife.storage import checkpoint, contents
from ebmlife.storage.locking import locked
from ebmlife.training.divergence import Divergence
from ebmlife.training.ebm import Trainer

QUIET = Console(quiet=True)
KINDS = {
    "noise": {"start__kind": "uniform", "chains__kind": "fresh"},
    "contrastive divergence": {"start__kind": "data", "chains__kind": "fresh"},
    "cooperative": {"chains__kind": "fresh"},
    "multigrid": {"start__kind": "coarse", "chains__kind": "fresh"},
    "persistent": {"start__kind": "uniform", "chains__rejuvenate": "0.1"},
    "persistent from data": {"start__kind": "data", "chains__rejuvenate": "0.1"},
    "persistent, augmented": {"start__kind": "augmented", "chains__rejuvenate": "0.9"},
    "midrun": {"generator__optimizer": "none", "chains__rejuvenate": "0.1"},
    "hybrid": {},
    "hybrid, SGD, tau, schedules": {
        "optimizer__kind": "sgd",
        "tau": "0.5",
        "optimizer__learning_rate": "1e-3, 1e-4@3",
        "chains__rejuvenate": "0.9, 0.1@2",
        "flip": "true",
    },
    "longrun": {
        "generator__optimizer": "none",
        "chains__kind": "maturing",
        "chains__size": "20",
        "chains__burn_in_size": "20",
        "chains__mature": "3",
    },
    "walks with a Metropolis test": {"langevin__sampler": "underdamped"},
}


def tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the newest checkpoint, by name."""
    state, _ = checkpoint.load(checkpoint.path(folder, checkpoint.updates(folder)[-1]))
    flat: dict[str, Tensor] = {}

    def collect(value: object, name: str) -> None:
        if isinstance(value, Tensor):
            flat[name] = value
        elif isinstance(value, dict):
            for key, item in value.items():
                collect(item, f"{name}/{key}")

    collect(state, "")
    return flat


def assert_same(one: Path, other: Path) -> None:
    a, b = tensors(one), tensors(other)
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


def shortened(recipe: Recipe, updates: int) -> Recipe:
    return recipe.model_copy(update={"updates": updates})


def extended(updates: int) -> Callable[[Recipe], Recipe]:
    return lambda recipe: shortened(recipe, updates)


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_equals_uninterrupted_bit_for_bit(kind: str, tmp_path: Path) -> None:
    recipe = small_digits(**KINDS[kind])
    run.begin(recipe, tmp_path / "whole", console=QUIET)
    run.begin(shortened(recipe, 3), tmp_path / "parts", console=QUIET)
    run.resume(tmp_path / "parts", change=extended(recipe.updates), console=QUIET)
    assert_same(tmp_path / "whole", tmp_path / "parts")
    logs = [logging.read_log(tmp_path / name / "log.jsonl") for name in ("whole", "parts")]
    strip = [[{k: v for k, v in line.items() if k not in logging.TIMES} for line in log] for log in logs]
    assert strip[0] == strip[1]


def test_going_back_to_an_older_checkpoint_repeats_the_work(tmp_path: Path) -> None:
    recipe = override(small_digits(), {"checkpoint.every": "2", "checkpoint.keep": "9"})
    folder = tmp_path / "run"
    run.begin(recipe, folder, console=QUIET)
    first = tensors(folder)
    run.resume(folder, from_update=2, console=QUIET)
    assert checkpoint.updates(folder) == [2, 4, 6]
    assert all(torch.equal(value, first[name]) for name, value in tensors(folder).items())
    assert [line["update"] for line in logging.read_log(folder / "log.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    recipe = small_digits()
    run.begin(recipe, tmp_path / "whole", console=QUIET)
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "recipe.json").write_text(recipe.model_dump_json())
    run.resume(tmp_path / "young", console=QUIET)
    assert_same(tmp_path / "whole", tmp_path / "young")


def test_a_finished_run_resumed_is_left_as_it_is(tmp_path: Path) -> None:
    run.begin(small_digits(), tmp_path / "run", console=QUIET)
    before = tensors(tmp_path / "run")
    outcome = run.resume(tmp_path / "run", console=QUIET)
    assert outcome.finished
    assert all(torch.equal(value, before[name]) for name, value in tensors(tmp_path / "run").items())


def test_two_processes_cannot_share_a_run(tmp_path: Path) -> None:
    run.begin(small_digits(), tmp_path / "run", console=QUIET)
    with locked(tmp_path / "run"), pytest.raises(BadInput, match="in use by another process"):
        run.resume(tmp_path / "run", console=QUIET)


def test_divergence_names_the_last_good_checkpoint_and_what_helps(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run.begin(small_digits(), folder, console=QUIET)
    with pytest.raises(Diverged, match=r"at update 6.*000000006.*more Langevin steps.*learning rate.*noise"):
        run.resume(
            folder,
            change=lambda recipe: override(recipe, {"updates": "9", "explosion": "1e-12"}),
            allow_changes=True,
            console=QUIET,
        )
    assert checkpoint.updates(folder) == [6]
    build.load(folder)


def test_divergence_names_no_checkpoint_that_was_saved_during_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Energies are far from normal since update 3, which is certain at update 5; updates 1 to 5 are saved."""
    folder, often = tmp_path / "run", {"checkpoint__every": "1", "checkpoint__keep": "9"}

    def check(self: Divergence, *, update: int, **_: float) -> None:
        if update == 5:
            raise Diverged("far since update 3", since=3)

    monkeypatch.setattr(Divergence, "check", check)
    with pytest.raises(
        Diverged, match=r"000000002; resume .*: ebmlife resume .*run --from-update 2; what usually helps"
    ):
        run.begin(small_digits(**often), folder, console=QUIET)
    assert checkpoint.updates(folder) == [1, 2, 3, 4, 5]
    monkeypatch.undo()
    assert run.resume(folder, from_update=2, console=QUIET).finished


def test_divergence_says_so_if_every_checkpoint_was_saved_during_it(tmp_path: Path) -> None:
    for update in (4, 5):
        checkpoint.path(tmp_path, update).mkdir(parents=True)
    assert last_good(tmp_path, before=3).startswith("no checkpoint from before update 3 is kept; the oldest one is")
    assert last_good(tmp_path, before=5).endswith("--from-update 4")
    assert last_good(tmp_path, before=6) == last_good(tmp_path)


def test_the_moving_average_is_saved_beside_the_raw_weights_and_sampled_by_default(tmp_path: Path) -> None:
    run.begin(small_digits(optimizer__learning_rate="0.1"), tmp_path / "run", console=QUIET)
    state, _ = checkpoint.load(checkpoint.path(tmp_path / "run", 6))
    averaged, raw = (build.load(tmp_path / "run", averaged=a).net.state_dict() for a in (True, False))
    assert all(torch.equal(averaged[name], value) for name, value in state["trainer"]["ebm"]["ema"].items())
    assert all(torch.equal(raw[name], value) for name, value in state["trainer"]["ebm"]["net"].items())
    assert any(not torch.equal(averaged[name], raw[name]) for name in raw)


def test_an_allowed_change_is_in_the_checkpoint_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill right after it leaves a run that plain `resume` takes."""
    folder = tmp_path / "run"
    run.begin(small_digits(), folder, console=QUIET)

    def killed(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Trainer, "fit", killed)
    changed = {"updates": "8", "data_noise": "0.2"}
    with pytest.raises(MemoryError):
        run.resume(folder, change=lambda recipe: override(recipe, changed), allow_changes=True, console=QUIET)
    monkeypatch.undo()
    assert run.resume(folder, console=QUIET).update == 8


def test_a_frozen_generator_travels_with_the_run(tmp_path: Path) -> None:
    run.begin(small_digits(), tmp_path / "teacher", console=QUIET)
    recipe = small_digits(generator__run=str(tmp_path / "teacher"), generator__optimizer="none")
    run.begin(recipe, tmp_path / "pupil", console=QUIET)
    teacher = build.load(tmp_path / "teacher").sample(4, steps=0)
    (tmp_path / "teacher").rename(tmp_path / "gone")
    assert torch.equal(build.load(tmp_path / "pupil").sample(4, steps=0), teacher)


def test_a_coarser_model_is_a_start(tmp_path: Path) -> None:
    run.begin(small_digits(start__kind="uniform"), tmp_path / "coarse", console=QUIET)
    fine = {"start__kind": "coarse", "start__run": str(tmp_path / "coarse"), "chains__kind": "fresh"}
    assert run.begin(small_digits(**fine), tmp_path / "fine", console=QUIET).finished


def test_samples_do_not_depend_on_how_they_are_batched_in_number(tmp_path: Path) -> None:
    run.begin(small_digits(), tmp_path / "run", console=QUIET)
    model = build.load(tmp_path / "run")
    assert model.sample(5, seed=3, batch=2).shape == (5, 1, 8, 8)
    assert torch.equal(model.sample(5, seed=3), model.sample(5, seed=3))
    assert not torch.equal(model.sample(5, seed=3), model.sample(5, seed=4))


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer__kind": "sgd", "optimizer__learning_rate": "1e38"},
        {"optimizer__weight_decay": "1e38"},
        {"generator__optimizer__learning_rate": "1e38"},
    ],
)
def test_what_is_saved_is_finite(changes: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    often = {"checkpoint__every": "1", "checkpoint__keep": "9", "explosion": "1e30", "watch__pictures_every": "99"}
    with pytest.raises(
        Diverged, match=r"(not finite|nan|inf).* update \d+.*; (no checkpoint yet|last good checkpoint)"
    ):
        run.begin(small_digits(**changes, **often), folder, console=QUIET)
    for update in checkpoint.updates(folder):
        state, _ = checkpoint.load(checkpoint.path(folder, update))
        assert contents.not_finite(state) is None


def test_a_model_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run.begin(small_digits(), folder, console=QUIET)
    state, _ = checkpoint.load(checkpoint.path(folder, 6))
    next(iter(state["trainer"]["ebm"]["ema"].values())).view(-1)[0] = float("nan")
    checkpoint.save(checkpoint.path(folder, 6), state, about={"update": 6})
    with pytest.raises(BadInput, match=r"weights of the checkpoint cannot be used: .* is not finite"):
        build.load(folder)
    build.load(folder, averaged=False)  # what is not used may be anything
    with pytest.raises(BadInput, match=r"000000006 cannot be used: trainer/ebm/ema/.* is not finite"):
        run.resume(folder, console=QUIET)


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(tmp_path: Path) -> None:
    recipe = override(small_digits(), {"checkpoint.every": "2", "checkpoint.keep": "9"})
    run.begin(recipe, tmp_path / "whole", console=QUIET)
    folder = Path(shutil.copytree(tmp_path / "whole", tmp_path / "run"))
    (checkpoint.path(folder, 6) / "tensors.safetensors").write_bytes(b"torn")
    with pytest.raises(BadInput, match=r"add --update 4, or type: ebmlife resume "):
        build.load(folder)
    console = Console(record=True, width=500, file=io.StringIO())
    assert run.resume(folder, console=console).update == 6
    assert "000000006 is damaged: tensors.safetensors has changed" in console.export_text()
    assert (checkpoint.path(folder, 6).with_suffix(".damaged") / "tensors.safetensors").read_bytes() == b"torn"
    assert_same(tmp_path / "whole", folder)


def test_a_run_whose_checkpoints_are_all_damaged_is_not_changed(tmp_path: Path) -> None:
    run.begin(small_digits(), tmp_path / "run", console=QUIET)
    (checkpoint.path(tmp_path / "run", 6) / "manifest.json").write_text("{}")
    with pytest.raises(BadInput, match="no checkpoint before it is intact; start again in another folder"):
        run.resume(tmp_path / "run", console=QUIET)
    assert checkpoint.updates(tmp_path / "run") == [6]


def test_a_run_that_lost_its_checkpoints_does_not_begin_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run.begin(small_digits(), folder, console=QUIET)
    before = (folder / "log.jsonl").read_bytes()
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(BadInput, match=r"has no checkpoint, but its log.jsonl.*remove log.jsonl"):
        run.resume(folder, console=QUIET)
    assert (folder / "log.jsonl").read_bytes() == before
    (folder / "log.jsonl").unlink()  # the advice
    assert run.resume(folder, console=QUIET).update == 6


def test_a_run_killed_with_a_log_and_no_checkpoint_yet_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise MemoryError

    run.begin(small_digits(), tmp_path / "whole", console=QUIET)
    with monkeypatch.context() as dying:
        dying.setattr(checkpoint, "save", killed)
        with pytest.raises(MemoryError):
            run.begin(small_digits(), tmp_path / "run", console=QUIET)
    assert logging.read_log(tmp_path / "run" / "log.jsonl")
    run.resume(tmp_path / "run", console=QUIET)
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("damage", ["{", "[]", '{"method": []}', None])
def test_a_damaged_recipe_is_taken_from_the_checkpoint(damage: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run.begin(small_digits(), folder, console=QUIET)
    before, file = read_recipe(folder), folder / "recipe.json"
    file.unlink()
    if damage is not None:
        file.write_text(damage)
    console = Console(record=True, width=500, file=io.StringIO())
    assert run.resume(folder, console=console).update == 6
    assert "the checkpoint's recipe is used" in console.export_text()
    assert read_recipe(folder) == before


def test_a_resume_under_other_conditions_says_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.begin(small_digits(), tmp_path / "run", console=QUIET)
    manifest = checkpoint.read_manifest(checkpoint.path(tmp_path / "run", 6))
    assert manifest["machine"].keys() >= {"threads", "walks by", "processor", "processor features"}
    threads, console = torch.get_num_threads(), Console(record=True, width=900, file=io.StringIO())
    run.resume(tmp_path / "run", console=console)
    assert "conditions" not in console.export_text()
    monkeypatch.setattr(machine, "library", lambda: None)
    torch.set_num_threads(threads + 1)
    try:
        run.resume(tmp_path / "run", console=console)
    finally:
        torch.set_num_threads(threads)
    said = console.export_text()
    assert f"threads {threads} -> {threads + 1}" in said
    assert "its bits will differ" in said
    if manifest["machine"]["walks by"].startswith("compiled"):
        assert "walks by compiled program, f32 -> PyTorch, f32" in said


def test_another_optimizer_begins_without_the_moments_of_the_old_one(tmp_path: Path) -> None:
    run.begin(small_digits(), tmp_path / "run", console=QUIET)
    changed = {"optimizer.kind": "sgd", "updates": "8"}
    run.resume(tmp_path / "run", change=lambda recipe: override(recipe, changed), allow_changes=True, console=QUIET)
    moments = checkpoint.load(checkpoint.path(tmp_path / "run", 8))[0]["trainer"]["ebm"]["optimizer"]
    assert {name for kept in moments.values() for name in kept} == {"momentum_buffer"}


def test_begin_or_resume_begins_continues_and_knows_when_it_is_done(tmp_path: Path) -> None:
    recipe, folder = small_digits(), tmp_path / "run"
    run.begin(recipe, tmp_path / "whole", console=QUIET)
    run.begin_or_resume(shortened(recipe, 3), folder, console=QUIET)
    assert run.begin_or_resume(recipe, folder, console=QUIET).last is not None
    assert_same(tmp_path / "whole", folder)
    again = run.begin_or_resume(recipe, folder, console=QUIET)
    assert (again.finished, again.last, again.update) == (True, None, 6)
    with pytest.raises(BadInput, match="holds another run"):
        run.begin_or_resume(small_digits(data_noise="0.3"), folder, console=QUIET)


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, step = tmp_path / "run", Trainer.step

    def vanish(self: Trainer) -> object:
        if self.update == 3:
            shutil.rmtree(folder)
        return step(self)

    monkeypatch.setattr(Trainer, "step", vanish)
    recipe = small_digits(checkpoint__every="2", watch__tensorboard_every="1", watch__pictures_every="1")
    with pytest.raises(BadInput, match="run has been removed, or is no longer the folder of a run"):
        run.begin(recipe, folder, console=QUIET)
    assert not folder.exists()


FIELDS = [
    *("--updates", "400", "--checkpoint.every", "5", "--batch", "16", "--data.n", "200", "--chains.size", "50"),
    *("--net.width", "8", "--langevin.steps", "5", "--watch.pictures_every", "40", "--watch.pictures", "50"),
]


def test_killed_at_random_moments_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL, many times, wherever it hits: importing, learning, in the middle of writing a checkpoint."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ebmlife"]
    train = [*command, "train", "toy-mixture-midrun", *FIELDS, "--out"]
    subprocess.run([*train, str(tmp_path / "whole")], check=True, env=environment, capture_output=True)
    folder, chance, hits = tmp_path / "killed", random.Random(0), 0
    for _ in range(30):
        action = [*command, "resume", str(folder)] if folder.exists() else [*train, str(folder)]
        before = _logged(folder)
        process = subprocess.Popen(action, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if chance.random() < 0.7:  # the others may hit the start, before a single update
            _wait_for_progress(process, folder, before)
            time.sleep(chance.uniform(0, 0.4))
        else:
            time.sleep(chance.uniform(0, 4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            hits += 1
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors.decode()
    else:
        subprocess.run([*command, "resume", str(folder)], check=True, env=environment, capture_output=True)
    assert hits >= 5  # else nothing was shown
    assert_same(tmp_path / "whole", folder)


def _logged(folder: Path) -> int:
    return len(logging.read_log(folder / "log.jsonl")) if (folder / "log.jsonl").exists() else 0


def _wait_for_progress(process: subprocess.Popen[bytes], folder: Path, before: int) -> None:
    """Until the log grows beyond what it was."""
    while process.poll() is None and _logged(folder) <= before:
        time.sleep(0.01)
