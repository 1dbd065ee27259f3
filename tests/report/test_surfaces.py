import base64
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from ebmlife import recipes
from ebmlife.data import TOYS
from ebmlife.exam.density import compare
from ebmlife.recipes.schema import override
from ebmlife.report import surfaces
from ebmlife.runs import build
from ebmlife.runs import run as runs

FIELDS = {"updates": "3", "batch": "16", "langevin.steps": "2", "chains.size": "50", "net.width": "8", "workers": "0"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surfaces") / "plane"
    recipe = build.resolve(override(build.resolve(recipes.get("toy-rings-midrun")), FIELDS | {"watch.pictures": "50"}))
    runs.begin(recipe, folder, console=Console(quiet=True))
    surfaces.draw(folder)
    return folder


def opened(source: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(base64.b64decode(source.partition(",")[2])))).astype(float)


def test_the_surface_is_compared_with_the_truth(plane: Path) -> None:
    found = surfaces.read(plane)
    assert found is not None
    assert found.update == 3
    expected = compare(build.load(plane).energy, TOYS["rings"]())
    assert found.comparison.total_variation == pytest.approx(expected.total_variation)
    assert found.comparison.kl == pytest.approx(expected.kl)


def test_the_picture_of_the_truth_is_bright_on_its_rings(plane: Path) -> None:
    found = surfaces.read(plane)
    assert found is not None
    truth, model = opened(found.truth).sum(2), opened(found.model).sum(2)
    assert truth.shape == model.shape
    size = len(truth)
    assert truth[size // 2, size // 2] < 0.2 * truth.max()  # no ring passes through the middle
    assert truth[0].max() < 0.2 * truth.max()  # nor along the rim
    assert np.abs(truth - truth.T).mean() < 0.05 * truth.max()  # rings are symmetric
    assert np.abs(truth - model).mean() > 0.05 * truth.max()  # three updates have learned nothing


def test_runs_of_images_have_no_surface(run: Path) -> None:
    surfaces.draw(run)
    assert surfaces.read(run) is None
