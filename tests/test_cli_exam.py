"""`ebmlife exam`: its files, how it resumes, and its errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from ebmlife.cli import main
from ebmlife.exam import record
from ebmlife.runs import run as runs

Capture = pytest.CaptureFixture[str]
SHORT = ["--steps", "150", "--chains", "8"]
SUBJECTS = """
import os
import torch
from ebmlife.energy import Score, gaussian
torch.set_num_threads(1)

START = torch.linspace(-1, 1, 16).view(8, 2)

def narrow():
    return gaussian(0.5), START

def with_data():
    return gaussian(0.5), START, torch.randn(100, 2, generator=torch.Generator().manual_seed(0)) / 2

def score():
    return Score(lambda x: -x / 0.25), START

def nothing():
    return 3, START

def number():
    return 3

def column():
    return lambda x: x.sum(1, keepdim=True), START

def of_numpy():
    return gaussian(0.5), START, START.numpy()

def by_chance():
    return gaussian(0.5), torch.randn(8, 2)

def learned():
    return torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0)), START

def broken():
    return 1 / 0

class Bright(torch.nn.Module):
    classes = 2

    def forward(self, x):
        mean = x.mean((1, 2, 3))
        return torch.stack([-mean, mean], 1)

def images():
    return gaussian(0.5), torch.linspace(-1, 1, 8).view(8, 1, 1, 1).expand(8, 1, 8, 8).contiguous()

value = 7

SCALE = float(os.environ.get("SCALE", 1))

def closure():
    return lambda x: SCALE * x.square().sum(1), START

def other_data():
    return gaussian(0.5), START, SCALE * START

def raises():
    def energy(x):
        raise ValueError("two\\nlines")
    return energy, START

def detached():
    return lambda x: x.detach().sum(1), START

def halves():
    return gaussian(0.5), START.half()

def data_of_nan():
    return gaussian(0.5), START, START * float("nan")

def two_channels():
    return gaussian(0.5), torch.zeros(8, 2, 8, 8)

def blows_up():
    return lambda x: (x.square().sum(1) * 1e30).square(), START

class GradientOnly:
    net = torch.nn.Linear(2, 2)

    def gradient(self, x):
        return self.net(x)[:, :]

def gradient_only():
    return GradientOnly(), START

def double():
    return gaussian(0.5), torch.randn(8, 1, 8, 8).double()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exam") / "run"
    runs.begin(small_digits(updates="3", tau="0.5"), folder, console=Console(quiet=True))
    return folder


@pytest.fixture
def subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of subjects in the current folder."""
    name = f"subjects_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SUBJECTS)
    monkeypatch.chdir(tmp_path)
    return name


def fails(capsys: Capture, *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main(["exam", *map(str, arguments)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_the_exam_of_a_run_leaves_verdict_curves_and_strip(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "exam"
    assert main(["exam", str(trained), "--out", str(out), *SHORT]) == 0
    said = capsys.readouterr().out
    cycle = record.load(out)
    assert f"verdict: {cycle.verdict}, stable until step {cycle.stable_until}" in said
    assert all(str(out / name) in said for name in ("strip.png", "life-cycle.png", "life-cycle.json"))
    assert cycle.settings["distance"] == "fd_digits_8"
    assert {"distance", "contrast", "outside", "variation", "diversity", "energy", "gradient", "agreement"} <= set(
        cycle.metrics
    )
    assert (out / "strip.png").stat().st_size > 0
    before = (out / "life-cycle.json").read_bytes()
    assert main(["exam", str(trained), "--out", str(out), *SHORT]) == 0  # at once: it is done
    assert (out / "life-cycle.json").read_bytes() == before
    assert f"verdict: {cycle.verdict}" in capsys.readouterr().out


def test_exams_with_other_samplers_record_how_they_ran(subjects: str, tmp_path: Path, capsys: Capture) -> None:
    """Acceptance counts after the warm-up of 500 steps."""
    command = ["exam", f"{subjects}:narrow", "--steps", "600", "--sampler"]
    for name in ("mala", "replica-exchange"):
        out = tmp_path / name
        assert main([*command, name, "--out", str(out)]) == 0
        sampler = record.load(out).settings["sampler"]
        assert sampler["name"] == name
        assert 0.4 < sampler["acceptance"] < 0.75  # 8 chains adapt to 0.574 with some error
        assert f"sampler {name}: step size {sampler['step_size']:.3g}" in capsys.readouterr().out
    assert len(sampler["swap_rates"]) == len(sampler["temperatures"]) - 1
    assert main([*command, "langevin", "--out", str(out)]) == 2
    assert "sampler: replica-exchange -> langevin" in capsys.readouterr().err
    assert main([*command, "langevin", "--out", str(tmp_path / "langevin")]) == 0
    assert "sampler" not in record.load(tmp_path / "langevin").settings
    assert main([*command, "mala", "--out", str(tmp_path / "langevin")]) == 2
    assert "sampler: langevin -> mala" in capsys.readouterr().err
    assert main(["exam", f"{subjects}:score", "--sampler", "mala", "--out", str(tmp_path / "score")]) == 2
    assert "mala needs an energy" in capsys.readouterr().err


def test_chains_begin_where_they_are_told(trained: Path, tmp_path: Path) -> None:
    strips = {}
    for start in ("data", "noise", "generator"):
        assert main(["exam", str(trained), "--start", start, "--out", str(tmp_path / start), *SHORT]) == 0
        strips[start] = load_file(tmp_path / start / "life-cycle.safetensors")["strip"][0]
    assert strips["data"].min() == -1
    assert strips["noise"].unique().numel() == strips["noise"].numel()
    assert not torch.equal(strips["generator"], strips["data"])
    assert main(["exam", str(trained), "--out", str(tmp_path / "default"), *SHORT]) == 0
    default = load_file(tmp_path / "default" / "life-cycle.safetensors")["strip"][0]
    assert torch.equal(default, strips["generator"])


def test_the_evaluation_temperature_changes_the_walk(trained: Path, tmp_path: Path) -> None:
    states = []
    for temperature in ("1", "1.5"):
        out = tmp_path / temperature
        arguments = ["--evaluation-temperature", temperature, "--out", str(out), *SHORT]
        assert main(["exam", str(trained), *arguments]) == 0
        states.append(load_file(out / "life-cycle.safetensors")["states"])
    assert not torch.equal(*states)


@pytest.mark.parametrize("name", ["narrow", "with_data", "score"])
def test_anything_that_a_function_returns_can_sit_it(subjects: str, tmp_path: Path, name: str) -> None:
    assert main(["exam", f"{subjects}:{name}", "--out", "out", "--steps", "200", "--step-size", "0.1"]) == 0
    cycle = record.load(tmp_path / "out")
    assert cycle.settings["step_size"] == 0.1
    assert cycle.settings["data"] == (100 if name == "with_data" else 8)
    assert ("energy" in cycle.metrics) == (name != "score")


def test_classes_by_any_classifier_and_distances_in_other_features(subjects: str, tmp_path: Path) -> None:
    command = ["exam", f"{subjects}:images", "--out", "out", "--steps", "400", "--step-size", "0.3"]
    assert main([*command, "--features", "digits", "--classifier", f"{subjects}:Bright"]) == 0
    cycle = record.load(tmp_path / "out")
    assert cycle.settings["distance"] == "fd_digits_8"
    assert cycle.metrics["agreement"][0] == 1
    assert cycle.metrics["agreement"][-1] < 1  # the walk forgets whether its start was dark or bright
    assert main([*command, "--out", "plain"]) == 0
    assert record.load(tmp_path / "plain").settings["distance"] == "moments_8"
    assert "agreement" not in record.load(tmp_path / "plain").metrics


def test_a_score_that_was_trained_has_no_energy(tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    small = ["--updates", "1", "--net.width", "8", "--noise.count", "2"]
    assert main(["train", "digits-score", "--out", str(run), *small]) == 0
    assert "need an energy" in fails(capsys, run, *SHORT, "--outliers")
    assert main(["exam", str(run), *SHORT]) == 0
    assert not {"energy", "energy_spread", "rhat_energy"} & {
        name for name, values in record.load(run / "exam").metrics.items() if any(v is not None for v in values)
    }


def test_chains_of_recovery_likelihood_can_be_given_noisier_images(tmp_path: Path, capsys: Capture) -> None:
    """Before it has learned, the energy is nearly flat: free chains diffuse without an end, held ones do not."""
    run = tmp_path / "run"
    assert main(["train", "digits-recovery", "--out", str(run), "--updates", "1", "--net.width", "8"]) == 0
    spread = {}
    for name, more in (("free", []), ("held", ["--conditional"])):
        size = ["--steps", "400", "--chains", "8", "--step-size", "0.2", "--start", "data"]
        assert main(["exam", str(run), "--out", str(tmp_path / name), *size, *more]) == 0
        spread[name] = record.load(tmp_path / name).metrics["contrast"][-1]
    assert spread["held"] < spread["free"] / 3
    assert "8 images needs as many states in one batch, got 4" in fails(
        capsys, run, "--out", tmp_path / "parts", *SHORT, "--conditional", "--batch", "4"
    )
    assert not (tmp_path / "parts").exists()
    assert "omit --conditional" in fails(capsys, run, *SHORT, "--conditional", "--basins")


def test_basins_of_many_chains_are_those_of_some(
    trained: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ebmlife.cli.energies.MOST", 5)
    assert main(["exam", str(trained), "--out", str(tmp_path), *SHORT, "--basins"]) == 0
    assert "5 of 8 chains lie in" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "basins.json").read_text())["basin"]) == 5


def test_basins_and_outliers_follow_an_exam_that_is_there(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    command = ["exam", str(trained), "--out", str(tmp_path), *SHORT]
    assert main(command) == 0
    before = (tmp_path / "life-cycle.json").stat().st_mtime_ns
    assert main([*command, "--basins", "--basin-depth", "5", "--outliers"]) == 0
    assert (tmp_path / "life-cycle.json").stat().st_mtime_ns == before
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "basins.json").read_text())
    assert sum(found["sizes"]) == len(found["basin"]) == 8
    assert len(found["merges"]) == len(found["energies"]) - 1
    assert f"8 chains lie in {len(found['sizes'])} basins" in said
    assert (tmp_path / "basins.png").stat().st_size > 0
    detected = json.loads((tmp_path / "outliers.json").read_text())
    assert (detected["data"], detected["unseen"]) == (1000, False)  # trained on all digits
    scores = detected["auroc"]
    assert set(scores) == {"noise", "constant", "shuffled", "blended"}
    assert f"noise {scores['noise']:.3f}" in said


def test_images_of_other_folders_are_outliers_too(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    for name in ("white", "others/white"):
        (tmp_path / name).mkdir(parents=True)
        Image.new("L", (20, 30), 255).save(tmp_path / name / "one.png")
    command = ["exam", str(trained), "--out", str(tmp_path / "exam"), *SHORT]
    assert main([*command, "--outliers", "--others", str(tmp_path / "white")]) == 0
    assert set(json.loads((tmp_path / "exam" / "outliers.json").read_text())["auroc"]) == {
        *("noise", "constant", "shuffled", "blended", "white")
    }
    assert "add --outliers" in fails(capsys, *command[1:], "--others", tmp_path / "white")
    two = ["--outliers", "--others", tmp_path / "white", tmp_path / "others" / "white"]
    assert "different names" in fails(capsys, *command[1:], *two)


def test_outliers_stand_beside_data_that_were_not_learned(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["train", "digits-shortrun", "--out", str(run), "--updates", "1", "--data.train", "true"]) == 0
    assert main(["exam", str(run), "--out", str(tmp_path / "exam"), *SHORT, "--outliers"]) == 0
    detected = json.loads((tmp_path / "exam" / "outliers.json").read_text())
    assert (detected["data"], detected["unseen"]) == (297, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{module}:narow", "--out", "out"], "has no function 'narow'; did you mean 'narrow'?"),
        (["{module}:value", "--out", "out"], "no function 'value'"),
        (["{module}:number", "--out", "out"], "must return an energy and a tensor of start states"),
        (["{module}:nothing", "--out", "out"], "returned a int as its energy"),
        (["no.such.module:f", "--out", "out"], "no.such.module:f: No module named"),
        (["{module}:narrow"], "--out is needed"),
        (["{module}:narrow", "--out", "out", "--steps", "0"], "at least 1 step"),
        (["{module}:narrow", "--out", "out", "--batch", "0"], "batches of at least 1"),
        (["{module}:column", "--out", "out"], "must be a tensor of the shape (8,), got (8, 1)"),
        (["{module}:of_numpy", "--out", "out"], "ndarray as its data; expected a tensor"),
        (["{module}:narrow", "--out", "out", "--chains", "9"], "--chains is only for runs"),
        (["{module}:narrow", "--out", "out", "--evaluation-temperature", "2"], "--evaluation-temperature is only"),
        (["{module}:broken", "--out", "out"], "broken failed with ZeroDivisionError: division by zero; --debug"),
        (["{module}:narrow", "--out", "out", "--features", "fid"], "fid needs gray or color images"),
        (["{module}:narrow", "--out", "out", "--features", "digits"], "needs images of shape (1, 8, 8)"),
        (["{module}:narrow", "--out", "out", "--classifier", "{module}:Bright"], "does not take images of shape (2,)"),
        (["{module}:narrow", "--out", "out", "--conditional"], "--conditional is only for runs"),
        (["{run}", "--out", "out", "--conditional"], "only for models of recovery likelihood"),
        (["nowhere"], "nowhere holds no checkpoint"),
        (["{run}", "--out", "out", "--chains", "1"], "--chains must be at least 2 and at most 1000000, got 1"),
        (["{run}", "--out", "out", "--start", "dta"], "--start"),
        (["{run}", "--out", "out", "--update", "9"], "no checkpoint at update 9"),
        (["{run}", "--out", "out", "--evaluation-temperature", "0"], "evaluation temperature must be above 0"),
        (["{run}", "--out", "out", "--step-size", "-1"], "step_size above 0"),
        (["{module}:narrow", "--out", "out", "--outliers"], "--outliers needs images"),
        (["{module}:score", "--out", "out", "--basins"], "need an energy"),
        (["{run}", "--out", "out", "--basins", "--basin-depth", "0"], "--basin-depth must be above 0, got 0.0"),
        (["{run}", "--chians", "3"], "did you mean '--chains'"),
    ],
)
def test_mistakes(
    capsys: Capture, subjects: str, trained: Path, arguments: list[str], said: str, tmp_path: Path
) -> None:
    words = [word.format(module=subjects, run=trained) for word in arguments]
    assert said in fails(capsys, *words)
    assert not (tmp_path / "out").exists()  # where another exam would be refused


def test_a_start_by_chance_is_the_same_when_the_exam_goes_on(subjects: str, tmp_path: Path) -> None:
    command = ["exam", f"{subjects}:by_chance", "--out", "out", "--steps", "50"]
    assert main(command) == 0
    before = record.load(tmp_path / "out").strip[0]
    torch.rand(3)
    assert main(command) == 0
    assert main([*command, "--seed", "1", "--out", "out-1"]) == 0
    assert torch.equal(record.load(tmp_path / "out").strip[0], before)
    assert not torch.equal(record.load(tmp_path / "out-1").strip[0], before)


def test_an_exam_is_not_taken_for_that_of_other_weights(subjects: str, capsys: Capture) -> None:
    command = ["exam", f"{subjects}:learned", "--out", "out", "--steps", "20"]
    assert main(command) == 0
    module = sys.modules[subjects]
    learned = module.learned
    net, start = module.learned()
    module.learned = lambda: (net, start)  # other weights than those that the seed gives
    assert "energy: " in fails(capsys, *command[1:])
    module.learned, module.START = learned, start + 1
    line = fails(capsys, *command[1:])
    assert "out holds another exam (" in line
    assert "states: " in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--steps", "160"], "(steps: 150 -> 160); choose another --out"),
        (["--chains", "9"], "(chains: 8 -> 9)"),
        (["--seed", "1"], "(seed: 0 -> 1)"),
        (["--start", "noise"], "(start: None -> noise)"),
    ],
)
def test_a_different_exam_is_refused_in_a_folder_that_holds_one(
    capsys: Capture, trained: Path, tmp_path: Path, change: list[str], said: str
) -> None:
    (tmp_path / "exam.json").write_text(
        json.dumps({"steps": 150, "chains": 8, "step_size": 0.03, "start": None, "seed": 0})
    )
    assert said in fails(capsys, trained, "--out", tmp_path, *SHORT, *change)


def test_an_exam_that_cannot_be_read_is_said(capsys: Capture, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "exam.json").write_text("{")
    assert "exam.json cannot be read" in fails(capsys, trained, "--out", tmp_path, *SHORT)


def test_stopped_the_same_command_goes_on(subjects: str, tmp_path: Path) -> None:
    arguments = [f"{subjects}:narrow", "--steps", "40000", "--step-size", "0.1"]
    assert main(["exam", *arguments, "--out", "whole"]) == 0
    command = [sys.executable, "-m", "ebmlife", "exam", *arguments, "--out", "parts"]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "parts" / ".lock").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert "stopped and saved at step" in out
    assert not (tmp_path / "parts" / "life-cycle.json").exists()
    assert main(["exam", *arguments, "--out", "parts"]) == 0
    whole, parts = record.load(tmp_path / "whole"), record.load(tmp_path / "parts")
    assert torch.equal(whole.states, parts.states)
    assert whole.metrics == parts.metrics


@pytest.mark.parametrize("subject", ["closure", "other_data"])
def test_what_has_changed_inside_a_function_is_seen(
    subjects: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    command = [sys.executable, "-m", "ebmlife", "exam", f"{subjects}:{subject}", "--steps", "50", "--out", "out"]
    assert subprocess.run(command, check=False).returncode == 0
    assert subprocess.run(command, check=False).returncode == 0
    monkeypatch.setenv("SCALE", "3")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "out holds another exam (" in refused.stderr


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("raises", r"the energy of states \(8, 2\) failed with ValueError: two; --debug"),
        ("detached", r"the gradient of states \(8, 2\) failed with RuntimeError"),
        ("halves", "float32 or float64, got torch.float16"),
        ("data_of_nan", "the data .* are not finite"),
    ],
)
def test_what_a_function_does_wrong_is_one_line_and_leaves_nothing(
    subjects: str, capsys: Capture, tmp_path: Path, subject: str, said: str
) -> None:
    assert re.search(said, fails(capsys, f"{subjects}:{subject}", "--steps", "50", "--out", "out"))
    assert not (tmp_path / "out").exists()


def test_options_of_functions(subjects: str, capsys: Capture) -> None:
    def said(subject: str, *more: str) -> str:
        return fails(capsys, f"{subjects}:{subject}", "--steps", "50", "--out", "out", *more)

    assert "--step-size must be a finite number, got inf" in said("narrow", "--step-size", "inf")
    assert "--seed must be at least 0 and below 2**63" in said("narrow", "--seed", str(10**30))
    assert "shape (2, 8, 8); use moments" in said("two_channels", "--features", "fid")


def test_a_module_that_fails_is_one_line(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("not_python", "def :"), ("fails_at_once", "1 / 0")):
        (tmp_path / f"{name}_{tmp_path.name}.py".replace("-", "_")).write_text(text)
        target = f"{name}_{tmp_path.name}:f".replace("-", "_")
        assert re.search("fails with (SyntaxError|ZeroDivisionError)", fails(capsys, target, "--out", "out"))


def test_a_failed_exam_does_not_claim_its_folder(subjects: str, tmp_path: Path) -> None:
    assert main(["exam", f"{subjects}:blows_up", "--steps", "50", "--step-size", "1", "--out", "out"]) != 0
    assert not (tmp_path / "out" / "exam.json").exists()
    assert main(["exam", f"{subjects}:narrow", "--steps", "50", "--out", "out"]) == 0


def test_a_network_may_be_the_gradient_itself(subjects: str) -> None:
    assert main(["exam", f"{subjects}:gradient_only", "--steps", "50", "--out", "out"]) == 0


def test_double_precision_has_basins_and_outliers(subjects: str) -> None:
    more = ["--basins", "--outliers", "--step-size", "0.1"]
    assert main(["exam", f"{subjects}:double", "--steps", "50", "--out", "out", *more]) == 0


def test_the_folder_of_a_run_is_no_place_for_an_exam(trained: Path, capsys: Capture) -> None:
    assert "is the folder of a run; choose another --out" in fails(capsys, trained, "--out", trained, *SHORT)
    assert not (trained / "exam.json").exists()
