"""A tiny run with all that a page shows: samples, a walk, an attack. Made once; tests that change it take a copy."""

import shutil
from pathlib import Path

import pytest
from conftest import small_digits
from rich.console import Console
from test_cli import works

from ebmlife.report import prepare
from ebmlife.runs import run as runs

CLASSIFIER = "ebmlife.exam.digits:digits_classifier"
ATTACK = ["--steps", "2", "--replicas", "2", "--verify", "3", "--evaluations", "2", "--n", "12", "--sweep-k", "0,1,2"]
STEPS, CHAINS = 120, 4


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "tiny"
    recipe = small_digits(updates="12", data__train="true", watch__pictures_every="6", checkpoint__every="6")
    runs.begin(recipe, folder, console=Console(quiet=True))
    works(
        "attack", folder, "--classifier", CLASSIFIER, "--threat", "linf:30/255", "--gradient", "transfer,bpda", *ATTACK
    )
    assert prepare(folder, steps=STEPS, chains=CHAINS)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "tiny"))
