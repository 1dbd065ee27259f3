"""No file runs code: hostile models, through every command that loads one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import small, small_digits
from rich.console import Console
from test_cli import Capture, fails, words, works

from ebmlife import load
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import part, validate
from ebmlife.runs import build, run
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sharing.push import push
from ebmlife.storage import checkpoint

QUIET = Console(quiet=True)
CALL = "evil_code:make"
CODE = """
from pathlib import Path
from types import SimpleNamespace
Path(__file__).with_name("marker").touch()
from torch import nn

class make(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent, self.linear = 3, nn.Linear(3, 64)

    def forward(self, z):
        return self.linear(z).tanh().view(-1, 1, 8, 8)
"""
NET = {"kind": "python", "call": CALL}
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that name no code, by their methods."""
    place = tmp_path_factory.mktemp("plain")
    recipes = {"ebm": small_digits(updates="2"), "gan": small("digits-gan", updates="2")}
    recipes["start"] = small("digits-midrun", updates="2", data__train="true")
    for name, recipe in recipes.items():
        run.begin(recipe, place / name, console=QUIET)
    return {name: place / name for name in recipes}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with code in it that a model can name."""
    (tmp_path / "evil_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "evil_code", raising=False)
    return tmp_path


def tampered(source: Path, target: Path, change: Change) -> Path:
    """A copy of a run whose recipe, in its checkpoint and beside it, is another; its checksums are right."""
    shutil.copytree(source, target)
    at = checkpoint.choose(target, None)
    assert at is not None
    place = checkpoint.path(target, at)
    state, manifest = checkpoint.load(place)
    change(state["recipe"])
    about = {name: value for name, value in manifest.items() if name not in ("format", "ranks", "sha256")}
    checkpoint.save(place, state, about=about)
    (target / "recipe.json").write_text(json.dumps(state["recipe"]))
    return target


def python_generator(recipe: dict[str, Any]) -> None:
    recipe["generator"]["net"] = NET


def hostile(plain: dict[str, Path], place: Path) -> dict[str, Path]:
    """Models that lead to code by every field that could."""
    generator = tampered(plain["ebm"], place / "generator", python_generator)
    return {
        "generator": generator,
        "gan": tampered(plain["gan"], place / "gan", python_generator),
        "start": tampered(
            plain["start"],
            place / "start",
            lambda recipe: recipe.update(start={"kind": "coarse", "size": 4, "run": str(generator)}),
        ),
        "trusting": tampered(
            plain["ebm"],
            place / "trusting",
            lambda recipe: recipe["generator"].update(net=NET | {"trust": {"calls": [CALL]}}),
        ),
    }


ATTACK = ["--classifier", "attacks.small:digits_net", "--threat", "linf:8/255", "--n", "2", "--steps", "1", "--k", "1"]
VERBS: dict[str, list[str]] = {
    "sample": ["{run}", "--n", "2", "--steps", "1", "--out", "{here}/x.png"],
    "fid": ["{run}", "--n", "20", "--steps", "1"],
    "exam": ["{run}", "--steps", "2", "--chains", "2", "--out", "{here}/exam"],
    "attack": ["{run}", *ATTACK, "--replicas", "1", "--verify", "1", "--split", "test", "--on-training-data"],
    "purify": ["{run}", "--split", "test", "--n", "2", "--steps", "1", "--out", "{here}/clean"],
    "report": ["{run}", "--steps", "2", "--chains", "2", "--out", "{here}/r.html"],
    "watch": ["{run}", "--port", "0", "--classifier", "attacks.small:digits_net"],
    "push": ["{run}", "hf:someone/copy"],
    "resume": ["{run}", "--updates", "3"],
}
NO_START = {"exam", "attack", "purify", "push"}  # these draw no states of the model's start, which is made only then


@pytest.mark.parametrize("verb", VERBS)
def test_no_command_runs_code_that_a_model_names(
    plain: dict[str, Path], here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("EBMLIFE_HUB", str(here / "hub"))
    for name, model in hostile(plain, here / "models").items():
        if name == "start" and verb == "watch":
            continue  # it would serve the page, without that start
        if name == "start" and verb in NO_START:
            works(verb, *_filled(VERBS[verb], model, here))
        else:
            line = fails(capsys, verb, *_filled(VERBS[verb], model, here))
            expected = "unknown field 'generator.net.trust'" if name == "trusting" else f"--trust-code {CALL}"
            assert expected in line, name
        assert not (here / "marker").exists(), name


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "resume"])
def test_nor_does_one_from_the_hub(
    plain: dict[str, Path], here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("EBMLIFE_HUB", str(here / "hub"))
    push(plain["ebm"], "hf:someone/digits")
    pushed = here / "hub" / "someone"
    tampered(pushed / "digits", pushed / "evil", python_generator)
    (pushed / "evil" / "evil_code.py").write_text(CODE)
    line = fails(capsys, verb, *_filled(VERBS[verb], "hf:someone/evil", here))
    assert f"generator.net.call names the function {CALL}" in line
    assert not list(here.rglob("marker"))


def _filled(arguments: list[str], model: Path | str, here: Path) -> list[str]:
    return [word.replace("{run}", str(model)).replace("{here}", str(here)) for word in arguments]


def test_a_classifier_that_is_a_run_is_loaded_like_any_other(
    plain: dict[str, Path], here: Path, capsys: Capture
) -> None:
    model = hostile(plain, here / "models")["generator"]
    line = fails(capsys, "attack", plain["start"], "--classifier", model, *ATTACK[2:])
    assert f"--trust-code {CALL}" in line
    line = fails(capsys, "exam", plain["start"], "--classifier", model, "--steps", "2", "--chains", "2")
    assert f"--trust-code {CALL}" in line
    assert not (here / "marker").exists()


@pytest.mark.parametrize("field", ["generator.run", "prior.run"])
def test_runs_that_a_training_takes_from_are_loaded_too(
    plain: dict[str, Path], here: Path, capsys: Capture, field: str
) -> None:
    model = hostile(plain, here / "models")["generator"]
    if field == "prior.run":
        recipe = plain["start"] / "recipe.json"
        changed = json.loads(recipe.read_text()) | {"prior": {"run": str(model)}}
        with pytest.raises(BadInput, match=f"--trust-code {CALL}"):
            build.training(build.resolve(validate(changed)))
    else:
        line = fails(capsys, "train", "digits-shortrun", "--out", here / "new", *words(), f"--{field}", model)
        assert f"--trust-code {CALL}" in line
        assert not (here / "new").exists()
    assert not (here / "marker").exists()


def test_a_call_that_is_repeated_is_made(plain: dict[str, Path], here: Path, capsys: Capture) -> None:
    given = words(generator__net__kind="python", generator__net__call=CALL, generator__optimizer="none")
    fields = dict(zip(given[::2], given[1::2], strict=True))
    for of_another_kind in ("--generator.net.width", "--generator.net.latent"):
        del fields[of_another_kind]
    typed = [word for pair in fields.items() for word in pair]
    works("train", "digits-shortrun", "--out", here / "mine", *typed)  # the user names the function here
    assert (here / "marker").exists()
    assert f"add --trust-code {CALL}" in fails(capsys, "sample", here / "mine", "--out", here / "x.png")
    line = fails(capsys, "sample", here / "mine", "--out", here / "x.png", "--trust-code", "evil_code:other")
    assert f"add --trust-code {CALL}" in line
    trust = ["--trust-code", "evil_code:other", "--trust-code", CALL]
    works("sample", here / "mine", "--n", "2", "--out", here / "x.png", *trust)
    works("resume", here / "mine", "--updates", "7", *trust)
    works("exam", here / "mine", "--steps", "2", "--chains", "2", *trust)
    works("report", here / "mine", "--no-walk", "--out", here / "r.html")
    assert load(here / "mine", trust_code=CALL).sample(1).shape == (1, 1, 8, 8)


def test_only_names_of_functions_can_be_trusted(capsys: Capture, here: Path) -> None:
    line = fails(capsys, "sample", "zoo:digits-midrun", "--out", here / "x.png", "--trust-code", "*")
    assert "package.module:function, got '*'" in line
    with pytest.raises(BadInput, match="got 'evil_code'"):
        Trust.of(["evil_code"])


def test_names_that_are_no_functions_are_refused_before_they_are_trusted(plain: dict[str, Path], here: Path) -> None:
    strange = tampered(
        plain["ebm"],
        here / "model",
        lambda recipe: recipe["generator"].update(net={"kind": "python", "call": "a b\x1b"}),
    )
    with pytest.raises(BadInput, match=r"generator\.net\.call is 'a b\\x1b'; expected package\.module:function"):
        load(strange)


def test_installed_modules_come_before_those_of_the_working_directory(here: Path) -> None:
    """Whoever trusts `tomllib:loads` while in a downloaded folder does not trust that folder."""
    (here / "tomllib.py").write_text(CODE)
    sys.modules.pop("tomllib", None)
    found = Trust.of("tomllib:loads").find("tomllib:loads", "field")
    assert found("a = 1") == {"a": 1}
    assert not (here / "marker").exists()
    assert sys.path.index(str(here)) == len(sys.path) - 1


def test_a_library_that_runs_code_of_data_sets_is_refused(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """A recipe names its data too; `datasets` ran a script of theirs before its version 4."""
    made = here / "evil"
    made.mkdir()
    (made / "evil.py").write_text(CODE)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(__version__="3.6.0"))
    with pytest.raises(BadInput, match=r"datasets 3\.6\.0 may run code .* pip install 'datasets>=4'"):
        build.DATA.make(part("huggingface", name=str(made), size=8))


def test_nothing_is_trusted_by_default() -> None:
    with pytest.raises(BadInput, match="field names the function json:loads"):
        NOTHING.find("json:loads", "field")


def test_a_process_in_the_folder_of_a_hostile_model(plain: dict[str, Path], here: Path) -> None:
    """As a user would: inside the folder, whose code has the names of modules that Python may look for."""
    model = tampered(plain["ebm"], here / "model", python_generator)
    for name in ("evil_code", "timm", "datasets", "arviz", "sitecustomize", "torch_fidelity"):
        (model / f"{name}.py").write_text(CODE)
    code = (
        "from ebmlife.cli import main; import sys; sys.path = [p for p in sys.path if p]; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-P", "-c", code, "sample", ".", "--out", "x.png"]
    ended = subprocess.run(command, cwd=model, env=os.environ, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert f"--trust-code {CALL}" in ended.stderr
    assert not list(here.rglob("marker"))
