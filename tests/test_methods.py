"""What holds of every method of training: resuming, loading, sampling, watching, the command line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import METHODS, small
from PIL import Image
from rich.console import Console
from test_run import assert_same, extended, shortened

from ebmlife import langevin, recipes
from ebmlife.cli import main
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput, Diverged
from ebmlife.exam import record
from ebmlife.recipes.schema import EBMRecipe, override
from ebmlife.runs import build, logging, run
from ebmlife.sampling.energy import gradient
from ebmlife.storage import checkpoint

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of every method, in a folder of the recipe's name."""
    folder = tmp_path_factory.mktemp("methods")
    for name in METHODS:
        run.begin(small(name), folder / name, console=QUIET)
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_resumed_equals_uninterrupted_bit_for_bit(name: str, trained: Path, tmp_path: Path) -> None:
    run.begin(shortened(small(name), 3), tmp_path / "parts", console=QUIET)
    torch.manual_seed(99)  # nothing may hang on the global generator
    run.resume(tmp_path / "parts", change=extended(6), console=QUIET)
    assert_same(trained / name, tmp_path / "parts")
    logs = [logging.read_log(folder / "log.jsonl") for folder in (trained / name, tmp_path / "parts")]
    strip = [[{k: v for k, v in line.items() if k not in logging.TIMES} for line in log] for log in logs]
    assert strip[0] == strip[1]


@pytest.mark.parametrize("name", METHODS)
def test_seeds_differ_and_watching_changes_nothing(name: str, trained: Path, tmp_path: Path) -> None:
    run.begin(small(name, watch__pictures_every="1"), tmp_path / "watched", console=QUIET)
    run.begin(small(name, seed="1"), tmp_path / "other", console=QUIET)
    assert_same_weights = [tmp_path / "watched", trained / name]
    a, b = (build.load(folder).net.state_dict() for folder in assert_same_weights)
    assert all(torch.equal(a[key], b[key]) for key in a)
    c = build.load(tmp_path / "other").net.state_dict()
    assert any(not torch.equal(a[key], c[key]) for key in a)


@pytest.mark.parametrize("name", METHODS)
def test_a_loaded_model_is_walked_on_and_sampled_like_any(name: str, trained: Path) -> None:
    model = build.load(trained / name)
    assert (model.recipe.name, model.shape) == (name, (1, 8, 8))
    x = model.sample(3, seed=1)
    assert x.shape == (3, 1, 8, 8)
    assert torch.equal(x, model.sample(3, seed=1))
    assert not torch.equal(x, model.sample(3, seed=2))
    assert model.energy(x).shape == (3,)
    grad = gradient(model.energy, x)
    assert grad.shape == x.shape
    assert grad.isfinite().all()
    walked, info = langevin(model.energy, x, steps=2, step_size=model.recipe.langevin.step_size)
    assert walked.isfinite().all()
    assert info.gradient > 0


@pytest.mark.parametrize("name", METHODS)
def test_raw_and_averaged_weights_are_both_saved(name: str, trained: Path) -> None:
    a, b = (build.load(trained / name, averaged=averaged).net.state_dict() for averaged in (True, False))
    assert any(not torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", METHODS)
def test_the_run_is_logged_and_drawn_whatever_its_method(name: str, trained: Path) -> None:
    lines = logging.read_log(trained / name / "log.jsonl")
    assert [line["update"] for line in lines] == [1, 2, 3, 4, 5, 6]
    headline = type(build.training(small(name)).trainer.step()).headline
    assert all(isinstance(line[headline], float) for line in lines)
    with Image.open(trained / name / "diagnostics.png") as plot:
        assert plot.width > 500
    assert (trained / name / "pictures" / "samples-000000006.png").is_file()


@pytest.mark.parametrize("name", METHODS)
def test_a_checkpoint_of_another_network_is_refused(name: str, trained: Path, tmp_path: Path) -> None:
    state, _ = checkpoint.load(checkpoint.path(trained / name, 6))
    state["recipe"] = small(name, net__width="8").model_dump(mode="json")
    checkpoint.save(checkpoint.path(tmp_path / "run", 6), state, about={})
    with pytest.raises(BadInput, match=r"run: the weights of the checkpoint do not fit"):
        build.load(tmp_path / "run")


@pytest.mark.parametrize("name", [name for name in METHODS if name != "digits-midrun"])
def test_divergence_says_what_helps_this_method(name: str, tmp_path: Path) -> None:
    change = {"optimizer.learning_rate": "1e30", "optimizer.clip": "none"}
    recipe = build.resolve(override(small(name, updates="40"), change))
    with pytest.raises(Diverged, match=r"at update \d+; no checkpoint yet; what usually helps: a lower learning rate"):
        run.begin(recipe, tmp_path / "run", console=QUIET)


@pytest.mark.parametrize("name", METHODS)
def test_the_command_line_trains_resumes_and_samples_every_method(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = small(name, updates="2")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text(recipe.model_dump_json())  # as begun, and killed at once
    assert main(["resume", str(tmp_path / "run"), "--updates", "3"]) == 0
    assert main(["sample", str(tmp_path / "run"), "--n", "2", "--steps", "1", "--out", str(tmp_path / "a.npy")]) == 0
    assert main(["show", name]) == 0
    assert json.loads(capsys.readouterr().out.split("hash")[0].split("a.npy")[-1])["method"] == recipe.method


@pytest.mark.parametrize("name", METHODS)
def test_a_page_is_written_of_every_method(name: str, trained: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(trained / name, tmp_path / name))
    assert main(["report", str(copy), "--steps", "2", "--chains", "4", "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert 'id="age"' in page  # all of them have an energy, or imply one, on which chains grow old
    figures = logging.read_log(copy / "log.jsonl")[0]
    shown = {"energy_difference"} if "gradient" in figures else set(figures) - {"update", *logging.TIMES}
    assert all(figure.replace("_", " ").capitalize() in page for figure in shown)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "digits-midrun"])
def test_what_only_ebms_have_is_refused(name: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["estimate", name], ["push", str(trained / name), "hf:someone/model"]):
        assert main(command) == 2
        assert "works for 'ebm' only" in capsys.readouterr().err
    with pytest.raises(BadInput, match="works for 'ebm' only"):
        build.load(trained / name, evaluation_temperature=1.005)
    with pytest.raises(BadInput, match=r"one process, not 2; .*without torchrun"):
        build.training(small(name), ranks=Ranks(0, 2))


def test_fid_takes_a_gan(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fid", str(trained / "digits-gan"), "--n", "20"]) == 0
    assert "fd_digits_20" in capsys.readouterr().out


def test_all_named_recipes_of_small_data_build() -> None:
    for name in recipes.names():
        recipe = build.resolve(recipes.get(name))
        if recipe.data.kind == "digits":
            recipe = override(recipe, {"prior": "none"}) if isinstance(recipe, EBMRecipe) else recipe
            assert build.training(recipe).model.shape == (1, 8, 8)


@pytest.mark.parametrize("name", ["digits-glow", "digits-score", "digits-recovery"])
def test_every_density_sits_the_same_exam(name: str, trained: Path, tmp_path: Path) -> None:
    """From data, which are of the kind that it learned: what they are at first is no fault."""
    size = ["--steps", "3", "--chains", "64", "--start", "data", "--step-size", "1e-4"]
    assert main(["exam", str(trained / name), "--out", str(tmp_path), *size]) == 0
    cycle = record.load(tmp_path)
    assert cycle.stable_until > 0, cycle.reasons
