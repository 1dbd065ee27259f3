from io import StringIO
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from PIL import Image
from rich.console import Console

import ebmlife
from ebmlife.cli import demo, main
from ebmlife.data import digits
from ebmlife.errors import BadInput


@pytest.fixture(autouse=True)
def shrunken(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_digits()
    monkeypatch.setattr(demo.recipes, "get", lambda name: recipe)
    monkeypatch.setattr(demo, "STEPS", 20)


def test_the_demo_makes_what_it_names_and_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, screen = tmp_path / "demo", StringIO()
    outcome = demo.demo(folder, Console(file=screen, width=250))
    assert outcome.finished
    shortrun = folder / "shortrun"
    assert outcome.folder == shortrun
    text = screen.getvalue()
    for name in ("samples.png", "diagnostics.png", "log.jsonl", "checkpoints/000000006"):
        assert (shortrun / name).exists()
        assert str(shortrun / name) in text
    with Image.open(shortrun / "samples.png") as grid:
        assert grid.size == (502, 502)  # 10 x 10
    rows = ["mean pixel", "contrast", "diversity", "classes", "of classes 0 to 9", "energy difference"]
    assert all(row in text for row in rows)
    assert f"ebmlife sample {shortrun} --n 400" in text
    assert "five minutes" in text.splitlines()[0]
    assert "Train a shortrun model" in text
    assert "zoo:digits-longrun" in text
    assert (folder / "midrun" / "checkpoints" / "000000006").exists()
    assert ebmlife.load(folder / "longrun").prior is not None
    assert all(f"{name}: stable until step" in text for name in ("shortrun", "midrun", "longrun"))
    with Image.open(folder / "life-cycles.png") as picture:
        assert picture.height > picture.width / 2
    assert text.splitlines()[-1].endswith(str(folder / "report.html"))
    page = (folder / "report.html").read_text()
    assert "Life cycle" in page
    assert 'id="age"' in page

    before = (shortrun / "log.jsonl").read_bytes()
    assert main(["demo", "--out", str(folder)]) == 0
    assert capsys.readouterr().out.rstrip().endswith(str(tmp_path / "demo-2" / "report.html"))
    assert (tmp_path / "demo-2" / "shortrun" / "samples.png").exists()
    assert (shortrun / "log.jsonl").read_bytes() == before


def test_real_digits_are_nearest_to_themselves() -> None:
    data = digits()
    real = data.take(torch.arange(len(data)))
    assert data.labels is not None
    assert demo.nearest_classes(real[100:150], real, data.labels) == data.labels[100:150].tolist()


def test_without_the_packages_of_the_exam_there_is_still_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> bool:
        raise BadInput("ArviZ is not here")

    monkeypatch.setattr(demo, "prepare", missing)
    screen = StringIO()
    demo.demo(tmp_path / "demo", Console(file=screen, width=250))
    assert "ArviZ is not here" in screen.getvalue()
    assert "ebmlife report" in (tmp_path / "demo" / "report.html").read_text()
