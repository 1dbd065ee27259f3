"""Finds models by name: the folder of a run, `zoo:NAME` in the package, `hf:user/model` on the hub."""

from pathlib import Path

from ebmlife.runs import hub, zoo


def find(name: str | Path, *, update: int | None = None) -> Path:
    """The folder to read a model from. `update` chooses the checkpoint that is downloaded, where one must be."""
    text = str(name)
    if hub.is_shared(text):
        return hub.find_hub().download(*hub.parse(text), update=update)
    return zoo.folder(text) if text.startswith(zoo.PREFIX) else Path(name)


def own(name: str | Path) -> Path:
    """The folder for measurements of a model: that of the run, or one with the model's name in the current folder."""
    text = str(name)
    if hub.is_shared(text) or text.startswith(zoo.PREFIX):
        return Path(text.rpartition("/")[2].removeprefix(zoo.PREFIX))
    return Path(name)
