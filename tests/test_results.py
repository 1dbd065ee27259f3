"""What the scripts in results/ share: runs that are made once, and never taken for those of another recipe."""

import sys
from pathlib import Path

import pytest
from conftest import small
from rich.console import Console
from test_run import shortened

from ebmlife.runs import run
from ebmlife.storage import checkpoint

sys.path.append(str(Path(__file__).parent.parent / "results"))

from training import trained

QUIET = Console(quiet=True)


def test_a_run_is_made_gone_on_with_and_then_left_alone(tmp_path: Path) -> None:
    recipe = small("digits-score")
    run.begin(shortened(recipe, 3), tmp_path / "run", console=QUIET)
    assert checkpoint.choose(trained(tmp_path / "run", recipe, QUIET), None) == recipe.updates
    log = (tmp_path / "run" / "log.jsonl").read_bytes()
    assert trained(tmp_path / "run", recipe, QUIET) == tmp_path / "run"
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == log
    assert checkpoint.choose(trained(tmp_path / "new", recipe, QUIET), None) == recipe.updates


def test_a_run_of_another_recipe_is_not_taken_for_this_one(tmp_path: Path) -> None:
    trained(tmp_path / "run", small("digits-score"), QUIET)
    with pytest.raises(SystemExit, match="is a run of another recipe"):
        trained(tmp_path / "run", small("digits-score", seed="1"), QUIET)
