"""Samples of a model whose training left no pictures here: one of the zoo, or from the hub."""

from pathlib import Path

from ebmlife import build, checkpoint, pictures, places
from ebmlife.calls import NOTHING, Trust


def draw(run: str | Path, *, device: str = "auto", trust: Trust = NOTHING) -> None:
    """Keeps a picture of fresh samples, as training would have drawn it; nothing where training did."""
    source = places.find(run)
    file = folder(places.own(run)) / f"samples-{checkpoint.choose(source, None):09d}.png"
    if file.is_file() or any((source / "pictures").glob("samples-*.png")):
        return
    model = build.load(run, device=device, trust_code=trust)
    pictures.save(file, pictures.draw(model.sample(model.recipe.watch.pictures, scope="picture")))


def folder(own: Path) -> Path:
    return own / "report" / "pictures"
