"""Samples of a model whose training left no pictures here: one of the zoo, or from the hub."""

from pathlib import Path

from ebmlife.plots import pictures
from ebmlife.runs import build, locate
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.storage import checkpoint


def draw(run: str | Path, *, device: str = "auto", trust: Trust = NOTHING) -> None:
    """Keeps a picture of fresh samples, as training would have drawn it; nothing where training did."""
    source = locate.find(run)
    file = folder(locate.own(run)) / f"samples-{checkpoint.choose(source, None):09d}.png"
    if file.is_file() or any((source / "pictures").glob("samples-*.png")):
        return
    model = build.load(run, device=device, trust_code=trust)
    pictures.save(file, pictures.draw(model.sample(model.recipe.watch.pictures, scope="picture")))


def folder(own: Path) -> Path:
    return own / "report" / "pictures"
