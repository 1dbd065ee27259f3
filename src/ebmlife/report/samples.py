"""Samples of models without pictures from training, such as those of the zoo or the hub."""

from pathlib import Path

from ebmlife.plots import pictures
from ebmlife.runs import build, locate
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.storage import checkpoint


def draw(run: str | Path, *, device: str = "auto", trust: Trust = NOTHING) -> None:
    """Stores a picture of new samples as training draws it, unless there is one."""
    source = locate.find(run)
    file = folder(locate.own(run)) / f"samples-{checkpoint.choose(source, None):09d}.png"
    if file.is_file() or any((source / "pictures").glob("samples-*.png")):
        return
    model = build.load(run, device=device, trust_code=trust)
    pictures.save(file, pictures.draw(model.sample(model.recipe.watch.pictures, scope="picture")))


def folder(own: Path) -> Path:
    """Returns where the picture is stored."""
    return own / "report" / "pictures"
