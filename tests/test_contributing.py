"""What CONTRIBUTING shows by example, done: one short file and one line in `build`."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import small_digits
from rich.console import Console

from ebmlife.runs import build, run
from ebmlife.storage import checkpoint

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
QUIET = Console(quiet=True)


def example(title: str, name: str) -> Any:
    """The class of that name in the example under that title."""
    match = re.search(rf"<!-- {title} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    assert match[1].count("\n") < 60
    names: dict[str, Any] = {}
    exec(compile(match[1], title, "exec"), names)
    return names[name]


def test_a_new_chain_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(build.CHAINS.makers, "seasonal", example("new chain", "Seasonal"))
    recipe = small_digits(chains__kind="seasonal", chains__size="20", chains__period="2")
    assert recipe.chains.options == {"size": 20, "period": 2}
    run.begin(recipe, tmp_path / "whole", console=QUIET)
    run.begin(recipe.model_copy(update={"updates": 3}), tmp_path / "parts", console=QUIET)
    run.resume(tmp_path / "parts", change=lambda r: r.model_copy(update={"updates": 6}), console=QUIET)
    states = [checkpoint.load(checkpoint.path(tmp_path / name, 6))[0] for name in ("whole", "parts")]
    a, b = (state["trainer"]["ebm"]["net"] for state in states)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_new_start_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(build.STARTS.makers, "noisy-data", example("new start", "NoisyData"))
    recipe = small_digits(start__kind="noisy-data", start__noise="0.25", chains__kind="fresh")
    assert run.begin(recipe, tmp_path / "run", console=QUIET).finished
    assert build.load(tmp_path / "run").sample(3).shape == (3, 1, 8, 8)
