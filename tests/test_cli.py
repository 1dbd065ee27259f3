"""The command line: what commands leave behind, the messages of mistakes, and what interrupted commands keep intact."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from ebmlife import recipes
from ebmlife.cli import main
from ebmlife.errors import BadInput
from ebmlife.runs import logging

FIELDS = {
    **SMALL,
    "generator.net.width": "4",
    "generator.net.latent": "3",
    "chains.size": "20",
    "sampling_steps": "2",
    "updates": "6",
    "checkpoint.every": "3",
}
Capture = pytest.CaptureFixture[str]


def words(**changes: str) -> list[str]:
    """The fields of a tiny run as arguments; field__name='value' changes field.name."""
    fields = FIELDS | {name.replace("__", "."): value for name, value in changes.items()}
    return [word for name, value in fields.items() for word in (f"--{name}", value)]


def fails(capsys: Capture, *arguments: str | Path) -> str:
    """The one line with which a command says what is wrong."""
    capsys.readouterr()
    code = main([str(word) for word in arguments])
    line = capsys.readouterr().err
    assert code == 2
    assert line.startswith("ebmlife: error: ")
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert "Traceback" not in line
    return line


def works(*arguments: str | Path) -> None:
    assert main([str(word) for word in arguments]) == 0


def tree(folder: Path) -> dict[str, bytes | None]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: path.read_bytes() if path.is_file() else None for name, path in files.items()}


def newest(run: Path) -> Path:
    return max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def tensors(run: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = load_file(newest(run) / "tensors.safetensors")
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 updates with checkpoints at 3 and 6."""
    run = tmp_path_factory.mktemp("trained") / "run"
    works("train", "digits-shortrun", "--out", run, *words())
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("images", "broken", "empty"):
        (tmp_path / name).mkdir()
    for i in range(12):
        Image.new("RGB", (12, 12), (20 * i, 0, 0)).save(tmp_path / "images" / f"{i}.png")
    (tmp_path / "broken" / "torn.png").write_bytes((tmp_path / "images" / "0.png").read_bytes()[:40])
    (tmp_path / "empty" / "notes.txt").write_text("no image")
    return tmp_path


def test_recipes_lists_every_name_with_what_it_is(capsys: Capture) -> None:
    works("recipes")
    lines = capsys.readouterr().out.splitlines()
    for name in recipes.names():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        said = line.removeprefix(name).strip()
        assert recipes.get(name).summary.startswith(said)
        assert said


@pytest.mark.parametrize(
    ("name", "flag"), [("digits-midrun", "no-anneal"), ("digits-longrun", "one-bank"), ("digits-shortrun", "coop")]
)
def test_a_variant_is_a_flag_of_its_recipe(capsys: Capture, name: str, flag: str) -> None:
    shown = []
    for words in ([name, f"--{flag}", "--seed", "3"], [f"{name}-{flag}", "--seed", "3"]):
        works("show", *words)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_show_prints_the_whole_recipe_and_its_hash(capsys: Capture) -> None:
    works("show", "digits-shortrun", "--langevin.steps", "50", "--flip", "--optimizer.ema=0.5", "--data-noise", "0.25")
    text, code = capsys.readouterr().out.rsplit("\nhash ", 1)
    values = json.loads(text)
    assert values["langevin"] == {
        "step_size": 0.03,
        "steps": 50,
        "clip": None,
        "precision": "f32",
        "sampler": "langevin",
    }
    assert (values["flip"], values["optimizer"]["ema"], values["data_noise"]) == (True, 0.5, 0.25)
    assert len(code.strip()) == 12
    works("show", "digits-shortrun", "--updates", "9")
    changed = capsys.readouterr().out.rsplit("\nhash ", 1)[1]
    works("show", "digits-shortrun")
    assert capsys.readouterr().out.endswith(changed)
    assert changed != code


def test_training_leaves_a_complete_run(trained: Path) -> None:
    log = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    assert [line["update"] for line in log] == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in (trained / "checkpoints").iterdir()) == ["000000003", "000000006"]
    names = sorted(path.name for path in (trained / "pictures").iterdir())
    assert names == ["bank-000000006.png", "generator-000000006.png", "samples-000000006.png"]
    assert json.loads((trained / "recipe.json").read_text())["net"] == {
        "kind": "sngan",
        "width": 4,
        "activation": "relu",
    }
    assert (trained / "diagnostics.png").is_file()
    assert list((trained / "tensorboard").iterdir())


def test_samples_come_in_every_form_and_are_the_same(trained: Path, tmp_path: Path) -> None:
    for name in ("a.png", "a.npy", "a.safetensors", "a"):
        works("sample", trained, "--n", "5", "--out", tmp_path / name)
    array = np.load(tmp_path / "a.npy")
    assert array.shape == (5, 1, 8, 8)
    assert torch.equal(load_file(tmp_path / "a.safetensors")["images"], torch.from_numpy(array))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [f"{i:06d}.png" for i in range(5)]
    with Image.open(tmp_path / "a.png") as grid:
        assert grid.size == (2 + 3 * 50, 2 + 2 * 50)


def test_samples_depend_on_seed_steps_update_and_weights(trained: Path, tmp_path: Path) -> None:
    def sample(*options: str) -> bytes:
        works("sample", trained, "--n", "2", "--out", tmp_path / "a.npy", *options)
        return (tmp_path / "a.npy").read_bytes()

    ways = [[], ["--seed", "1"], ["--steps", "0"], ["--update", "3"], ["--raw"]]
    ways += [["--sampler", name] for name in ("mala", "underdamped", "replica-exchange")]
    assert len({sample(*way) for way in ways}) == len(ways)
    assert sample() == sample(
        "--seed", "0", "--steps", "2", "--update", "6", "--device", "cpu", "--sampler", "langevin"
    )


def test_resume_goes_on_as_if_never_stopped(run: Path, tmp_path: Path, capsys: Capture) -> None:
    works("resume", run, "--updates", "9")
    assert "done: 9 updates" in capsys.readouterr().out
    assert len((run / "log.jsonl").read_text().splitlines()) == 9
    works("train", "digits-shortrun", "--out", tmp_path / "whole", *words(updates="9"))
    assert equal(tensors(run), tensors(tmp_path / "whole"))
    works("sample", run, "--update", "9", "--n", "1", "--out", tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "digits-shortrum", "--out", "{tmp}/r"], ["digits-shortrum", "did you mean 'digits-shortrun'"]),
        (["show", "zzz"], ["unknown recipe 'zzz'", "ebmlife recipes"]),
        (["train", "digits-shortrun"], ["--out"]),
        (["trian"], ["'trian'", "train"]),
        ([], ["COMMAND"]),
        (["recipes", "--all"], ["--all"]),
        (["resume", "{tmp}/nothing"], ["{tmp}/nothing is not the folder of a run"]),
        (["resume", "{tmp}/empty"], ["no recipe.json"]),
        (["sample", "{tmp}/empty", "--out", "{tmp}/a.png"], ["{tmp}/empty holds no checkpoint"]),
        (["show", "digits-shortrun", "stray"], ["'stray'", "--field value"]),
    ],
)
def test_mistakes_in_commands(capsys: Capture, folders: Path, arguments: list[str], said: list[str]) -> None:
    before = tree(folders)
    line = fails(capsys, *(word.format(tmp=folders) for word in arguments))
    assert all(part.format(tmp=folders) in line for part in said), line
    assert tree(folders) == before


IMAGES = {"data.kind": "folder", "data.folder": "{tmp}/images", "data.size": "8"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"langevin.step": "3"}, ["unknown field 'langevin.step'", "did you mean 'steps'"]),
        ({"zzz": "3"}, ["unknown field 'zzz'"]),
        ({"batch": "many"}, ["field 'batch'", "integer", "'many'"]),
        ({"langevin.step_size": "-0.02"}, ["field 'langevin.step_size'", "greater than 0", "-0.02"]),
        ({"net.kind": "sgan"}, ["unknown net.kind 'sgan'", "did you mean 'sngan'"]),
        ({**IMAGES, "data.folder": "/nope"}, ["/nope", "no such folder"]),
        ({**IMAGES, "data.folder": "{tmp}/empty"}, ["{tmp}/empty", "no image"]),
        ({**IMAGES, "data.folder": "{tmp}/broken"}, ["{tmp}/broken/torn.png", "cannot be read"]),
        ({**IMAGES, "data.size": "10"}, ["8, 16, 28, 32, 64, 128", "not 10"]),
        ({**IMAGES, "batch": "13"}, ["12 items", "batch of 13"]),
        ({"data.kind": "folder"}, ["'data.folder' is missing"]),
        ({"chains.size": "7"}, ["8", "7", "chains.size"]),
        ({"chains.kind": "maturing", "chains.burn_in_size": "7"}, ["8", "7", "chains.burn_in_size"]),
        ({"device": "cuda:7"}, ["device 'cuda:7' is not available", "--device cpu"]),
        ({"device": "tpu"}, ["device 'tpu' is not available"]),
        ({"device": "meta"}, ["device 'meta'"]),
        ({"generator": "none"}, ["start.kind 'generator' needs"]),
        (
            {"generator.run": "{tmp}/nope"},
            ["generator.run {tmp}/nope holds no checkpoint", "make it first", "--start.kind data"],
        ),
        ({"generator.net.latent": "-1"}, ["latent"]),
        ({"net.kind": "perceptron", "net.depth": "0"}, ["depth"]),
        ({"start.kind": "coarse", "start.size": "0"}, ["size"]),
        ({"chains.size": "0"}, ["chains.size", "at least", "0"]),
    ],
)
def test_mistakes_in_fields(capsys: Capture, folders: Path, fields: dict[str, str], said: list[str]) -> None:
    before = tree(folders)
    changes = {name: value.format(tmp=folders) for name, value in fields.items()}
    line = fails(capsys, "train", "digits-shortrun", "--out", folders / "r", *words(**changes))
    assert all(part.format(tmp=folders) in line for part in said), line
    assert tree(folders) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "{tmp}/a.jpg"], ["{tmp}/a.jpg", ".png, .npy or .safetensors"]),
        (["--out", "{tmp}/a.png", "--n", "0"], ["number of samples", "at least 1", "0"]),
        (["--out", "{tmp}/a.npy", "--n", "0"], ["number of samples", "at least 1", "0"]),
        (["--out", "{tmp}/a.npy", "--n", "-1"], ["number of samples", "-1"]),
        (["--out", "{tmp}/a.png", "--steps", "-1"], ["Langevin steps", "negative", "-1"]),
        (["--out", "{tmp}/a.png", "--stpes", "3"], ["'--stpes'", "did you mean '--steps'"]),
        (["--out", "{tmp}/a.png", "--n", "some"], ["--n", "'some'"]),
        (["--out", "{tmp}/a.png", "--update", "4"], ["no checkpoint at update 4", "3, 6"]),
        (["--out", "{tmp}/a.png", "--device", "cuda:7"], ["device 'cuda:7' is not available"]),
        (["--out", "{tmp}/run"], ["{tmp}/run is a folder that exists"]),
        (["--n", "3"], ["--out"]),
    ],
)
def test_mistakes_in_sampling(capsys: Capture, run: Path, options: list[str], said: list[str]) -> None:
    before = tree(run.parent)
    line = fails(capsys, "sample", run, *(word.format(tmp=run.parent) for word in options))
    assert all(part.format(tmp=run.parent) in line for part in said), line
    assert tree(run.parent) == before


def test_a_run_is_not_overwritten(capsys: Capture, run: Path) -> None:
    before = tree(run)
    line = fails(capsys, "train", "digits-shortrun", "--out", run, *words())
    assert f"{run} exists already" in line
    assert f"ebmlife resume {run}" in line
    assert tree(run) == before


def test_a_run_in_use_is_not_changed(capsys: Capture, run: Path) -> None:
    with (run / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert f"{run} is in use" in fails(capsys, "resume", run)


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(BadInput, match="unknown recipe"):
        main(["show", "zzz", "--debug"])


def test_a_divergence_says_when_and_what_helps(capsys: Capture, tmp_path: Path) -> None:
    assert main(["train", "digits-shortrun", "--out", str(tmp_path / "r"), *words(explosion="1e-9")]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith("ebmlife: diverged: the energy difference")
    assert "at update 0" in line
    assert "--langevin.steps" in line


def test_the_runs_folder_is_printed_as_it_is(capsys: Capture, tmp_path: Path) -> None:
    run = tmp_path / f"[b]{'long' * 20}"
    works("train", "digits-shortrun", "--out", run, *words(updates="1"))
    assert f"done: 1 updates in {run}\n" in capsys.readouterr().out


def flip(checkpoint: Path) -> None:
    file = checkpoint / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)


def truncate(checkpoint: Path) -> None:
    file = checkpoint / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def unlist(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").unlink()


def forget(checkpoint: Path) -> None:
    (checkpoint / "state.json").unlink()


def empty_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_text("{}")


def short_manifest(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_text('{"format": 1}')


DAMAGES = [flip, truncate, unlist, forget, short_manifest, empty_manifest]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_torn_checkpoint_is_set_aside_and_the_one_before_it_leads_on(
    capsys: Capture, run: Path, trained: Path, damage: Callable[[Path], None]
) -> None:
    torn = newest(run)
    damage(torn)
    before = tree(run)
    assert f"{torn} is damaged" in fails(capsys, "resume", run, "--from-update", torn.name)  # it was asked for
    assert tree(run) == before
    works("resume", run)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{torn} is damaged" in said
    assert "it is kept as 000000006.damaged, and 3 is used instead" in said
    assert torn.with_suffix(".damaged").is_dir()
    assert equal(tensors(run), tensors(trained))


def test_a_torn_checkpoint_without_another_is_refused(capsys: Capture, run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "000000003")
    flip(newest(run))
    line = fails(capsys, "resume", run)
    assert f"{newest(run)} is damaged" in line
    assert "--from-update" not in line
    assert "no checkpoint at update 3; there are 6" in fails(capsys, "resume", run, "--from-update", "3")


def test_samples_of_a_torn_checkpoint_are_refused(capsys: Capture, run: Path, tmp_path: Path) -> None:
    flip(newest(run))
    line = fails(capsys, "sample", run, "--out", tmp_path / "a.npy")
    assert f"{newest(run)} is damaged" in line
    assert "update 3" in line
    works("sample", run, "--n", "2", "--out", tmp_path / "a.npy", "--update", "3")


def test_samples_of_a_torn_checkpoint_name_their_own_option(capsys: Capture, run: Path, tmp_path: Path) -> None:
    flip(newest(run))
    assert " --update 3" in fails(capsys, "sample", run, "--out", tmp_path / "a.npy")


def test_a_changed_recipe_is_refused_unless_asked_for(capsys: Capture, run: Path) -> None:
    before = tree(run)
    changes = ["--langevin.steps", "4", "--data_noise", "0.5", "--updates", "8"]
    line = fails(capsys, "resume", run, *changes)
    assert "data_noise: 0.05 -> 0.5; langevin.steps: 3 -> 4" in line
    assert "updates" not in line
    assert "--allow-changes" in line
    assert tree(run) == before
    works("resume", run, *changes, "--allow-changes")
    assert json.loads((run / "recipe.json").read_text())["langevin"]["steps"] == 4
    assert newest(run).name == "000000008"
    works("resume", run, "--updates", "9")  # the change is the run's own now


@pytest.mark.parametrize(
    "changes",
    [
        ["--net.width", "8"],
        ["--chains.kind", "maturing", "--chains.burn_in_size", "20"],
    ],
)
def test_changes_that_the_checkpoint_does_not_fit_are_refused(capsys: Capture, run: Path, changes: list[str]) -> None:
    before = tree(run)
    assert changes[0].strip("-").split(".")[0] in fails(capsys, "resume", run, *changes, "--allow-changes")
    assert tree(run) == before


def test_a_frozen_generator_is_that_of_the_checkpoint(run: Path, tmp_path: Path) -> None:
    frozen = words(generator__optimizer="none", generator__run=str(run), updates="3")
    works("train", "digits-shortrun", "--out", tmp_path / "whole", *frozen, "--updates", "6")
    works("train", "digits-shortrun", "--out", tmp_path / "halves", *frozen)
    works("resume", run, "--updates", "8")  # the other run learns on meanwhile
    works("resume", tmp_path / "halves", "--updates", "6")
    assert equal(tensors(tmp_path / "halves"), tensors(tmp_path / "whole"))


def environment() -> dict[str, str]:
    """As many threads as here: sums of floats depend on it."""
    return os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}


def test_a_full_disk_leaves_the_earlier_checkpoints(run: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys; from ebmlife.cli import main; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "resume", str(run), "--updates", "8"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=100)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"ebmlife: error: cannot write {run / 'checkpoints' / '000000008'}: ")
    assert "File too large" in ended.stderr
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["000000003", "000000006"]
    works("sample", run, "--n", "2", "--out", tmp_path / "a.npy")
    works("resume", run)
    assert newest(run).name == "000000008"


LONGER = words(updates="150", checkpoint__every="1000", watch__pictures_every="1000")


@pytest.fixture(scope="module")
def unstopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("unstopped") / "run"
    works("train", "digits-shortrun", "--out", run, *LONGER)
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_saved_and_goes_on_bit_for_bit(
    tmp_path: Path, unstopped: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "ebmlife", "train", "digits-shortrun", "--out", str(run), *LONGER]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            log = run / "log.jsonl"
            while process.poll() is None and not (log.exists() and log.read_text().count("\n") > 2):
                time.sleep(0.01)
            process.send_signal(number)
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert err == ""
    done = int(newest(run).name)
    assert 2 < done < 150
    assert f"stopped and saved at update {done}; resume with: ebmlife resume" in " ".join(out.split())
    works("resume", run)
    assert equal(tensors(run), tensors(unstopped))
    assert metrics(run) == metrics(unstopped)


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in logging.TIMES} for line in lines]
