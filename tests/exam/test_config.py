"""The settings of an exam, and what a run or a function adds to them."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from rich.console import Console

from ebmlife.errors import BadInput
from ebmlife.exam import ExamConfig, of_function, of_run
from ebmlife.exam.features import DIGITS, PLAIN, default_features, find_features
from ebmlife.recipes.schema import part
from ebmlife.runs import run as runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config") / "run"
    runs.begin(small_digits(updates="2"), folder, console=Console(quiet=True))
    return folder


def two_points() -> tuple[object, torch.Tensor]:
    return lambda x: x.square().sum(1), torch.tensor([[0.0, 1.0], [1.0, 0.0]])


def test_settings_are_frozen_and_all_of_them_are_saved() -> None:
    config = ExamConfig(steps=7, chains=3)
    with pytest.raises(FrozenInstanceError):
        config.steps = 8  # type: ignore[misc]
    names = set(ExamConfig.__dataclass_fields__)
    assert set(config.saved()) == names - {"shown", "sampler"}  # older files have no sampler: it is Langevin
    assert set(ExamConfig(sampler="mala").saved()) == names - {"shown"}
    assert (config.saved()["steps"], config.saved()["chains"]) == (7, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "at least 1 step"),
        ({"batch": 0}, "batches of at least 1"),
        ({"chains": 1}, "--chains must be at least 2"),
        ({"step_size": 0.0}, "step_size above 0"),
        ({"step_size": float("nan")}, "step_size above 0"),
        ({"start": "dta"}, "unknown start 'dta'; did you mean 'data'"),
    ],
)
def test_settings_are_validated_on_creation(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ExamConfig(**changes)  # type: ignore[arg-type]


def test_a_run_decides_what_the_settings_leave_open(trained: Path) -> None:
    exam = of_run(trained)
    assert exam.folder == trained / "exam"
    assert (exam.config.chains, exam.subject.x0.shape) == (64, (64, 1, 8, 8))
    assert exam.subject.features is DIGITS
    assert exam.subject.classifier is not None
    assert exam.settings["update"] == 2
    assert exam.settings["step_size"] == exam.step_size > 0


def test_settings_override_what_a_run_decides(trained: Path, tmp_path: Path) -> None:
    config = ExamConfig(chains=4, step_size=0.5, start="data", features="moments", classifier="none", steps=20)
    exam = of_run(trained, config, folder=tmp_path)
    assert exam.folder == tmp_path
    assert (exam.step_size, len(exam.subject.x0)) == (0.5, 4)
    assert exam.subject.features is PLAIN
    assert exam.subject.classifier is None
    cycle = exam.run()
    assert "agreement" not in cycle.metrics
    assert cycle.settings["distance"] == "moments_4"


def test_a_function_decides_on_its_start_itself(tmp_path: Path) -> None:
    exam = of_function(f"{__name__}:two_points", folder=tmp_path)
    assert (exam.config.chains, exam.step_size) == (2, 0.01)
    with pytest.raises(BadInput, match="--start is only for runs"):
        of_function(f"{__name__}:two_points", ExamConfig(start="noise"), folder=tmp_path)


def test_the_default_features_are_decided_in_one_place() -> None:
    assert default_features(None, part("digits"), (1, 8, 8)) == "digits"
    assert default_features(None, part("cifar10"), (3, 32, 32)) == "fid"
    assert default_features("fast", part("cifar10"), (3, 32, 32)) == "moments"
    assert default_features(None, part("toy", name="rings"), (2,)) == "moments"
    assert default_features("moments", part("digits"), (1, 8, 8)) == "moments"
    with pytest.raises(BadInput, match="unknown features 'digts'; did you mean 'digits'"):
        find_features("digts", (1, 8, 8))
