"""Finds models by name: the folder of a run, `zoo:NAME` in the package, `hf:user/model` on the hub."""

from pathlib import Path

from ebmlife.runs import hub, zoo


def find(name: str | Path, *, update: int | None = None) -> Path:
    """Returns the folder of a model. `update` chooses the checkpoint to download, if the model is on the hub."""
    text = str(name)
    if hub.is_shared(text):
        return hub.find_hub().download(*hub.parse(text), update=update)
    return zoo.folder(text) if text.startswith(zoo.PREFIX) else Path(name)


def own(name: str | Path) -> Path:
    """Returns the folder for results of a model: its run, or a folder with its name in the working directory."""
    text = str(name)
    if hub.is_shared(text) or text.startswith(zoo.PREFIX):
        return Path(text.rpartition("/")[2].removeprefix(zoo.PREFIX))
    return Path(name)
