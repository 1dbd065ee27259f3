from io import StringIO
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from PIL import Image
from rich.console import Console

from ebmlife import demo
from ebmlife.cli import main
from ebmlife.data import digits


@pytest.fixture(autouse=True)
def shrunken(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_digits()
    monkeypatch.setattr(demo.recipes, "get", lambda name: recipe)


def test_the_demo_makes_what_it_names_and_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, screen = tmp_path / "demo", StringIO()
    outcome = demo.demo(folder, Console(file=screen, width=250))
    assert outcome.finished
    assert outcome.folder == folder
    text = screen.getvalue()
    for name in ("samples.png", "diagnostics.png", "log.jsonl", "checkpoints/000000006"):
        assert (folder / name).exists()
        assert str(folder / name) in text
    with Image.open(folder / "samples.png") as grid:
        assert grid.size == (502, 502)  # 10 x 10
    rows = ["mean pixel", "contrast", "diversity", "kinds of digit", "of each kind", "energy difference"]
    assert all(row in text for row in rows)
    assert f"ebmlife sample {folder} --n 400" in text

    before = (folder / "log.jsonl").read_bytes()
    assert main(["demo", "--out", str(folder)]) == 0
    assert "done: 6 updates" in capsys.readouterr().out
    assert (tmp_path / "demo-2" / "samples.png").exists()
    assert (folder / "log.jsonl").read_bytes() == before


def test_real_digits_are_nearest_to_themselves() -> None:
    data = digits()
    real = data.take(torch.arange(len(data)))
    assert data.labels is not None
    assert demo.nearest_kinds(real[100:150], real, data.labels) == data.labels[100:150].tolist()
