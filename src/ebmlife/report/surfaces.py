"""The density of a run on two-dimensional toy data, beside the exact density."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from ebmlife.data import TOYS
from ebmlife.errors import BadInput
from ebmlife.exam.density import HALF, Comparison, Surface, compare, exact, normalized
from ebmlife.plots.pictures import save
from ebmlife.report.images import embedded_file
from ebmlife.report.safe_files import SafeFolder
from ebmlife.runs import build, locate
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write

_SHOWN = 1.5  # the square [-1.5, 1.5]^2 is drawn


@dataclass(frozen=True)
class Surfaces:
    """Two densities as images, and the distance between them."""

    model: str  # an image as a data URL
    truth: str
    update: int
    comparison: Comparison


def draw(run: str | Path, *, device: str = "auto", trust: Trust = NOTHING) -> None:
    """Computes the density of a run's newest model and saves images and the comparison, if its data are a toy."""
    model = build.load(run, device=device, trust_code=trust)
    name = str(model.recipe.data.options.get("name"))
    if model.recipe.data.kind != "toy" or name not in TOYS:
        return
    toy, place = TOYS[name](), locate.own(run) / "report" / "surfaces"
    about = {"update": checkpoint.choose(locate.find(run), None), "comparison": asdict(compare(model.energy, toy))}
    found, truth = normalized(model.energy), exact(toy)
    top = truth.log_density.exp().max()
    save(place / "model.png", _picture(found, top))
    save(place / "truth.png", _picture(truth, top))
    with atomic_write(place / "surfaces.json") as unfinished:
        unfinished.write_text(json.dumps(about))


def read(own: Path) -> Surfaces | None:
    """Returns the saved comparison in the folder of a run's results, or None."""
    place, inside = own / "report" / "surfaces", SafeFolder(own)
    text = inside.content(place / "surfaces.json")
    if text is None:
        return None
    about = json.loads(text)
    comparison = Comparison(**about["comparison"])
    if not (type(about["update"]) is int and math.isfinite(comparison.total_variation) and comparison.kl >= -1):
        raise BadInput("surfaces.json holds no comparison of two densities; remove it")
    model, truth = (embedded_file(place / name, inside) for name in ("model.png", "truth.png"))
    return Surfaces(model, truth, about["update"], comparison)


def _picture(surface: Surface, top: Tensor) -> Image.Image:
    """Draws a density in colors from 0 to `top`, the highest exact density."""
    cells = len(surface.log_density)
    rim = round(cells * (1 - _SHOWN / HALF) / 2)
    shown = (surface.log_density.exp() / top).clamp(0, 1)[rim : cells - rim, rim : cells - rim]
    colors = colormaps["magma"](shown.T.flip(0).numpy())  # y upwards
    return Image.fromarray((colors[..., :3] * 255).round().astype(np.uint8))
