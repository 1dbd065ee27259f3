"""Where a model is that somebody names: the folder of a run, `zoo:NAME` in the package, `hf:user/model` on the hub."""

from pathlib import Path

from ebmlife.runs import hub, zoo


def find(name: str | Path, *, update: int | None = None) -> Path:
    """The folder to read it from; `update`: the checkpoint that is wanted of it, where it must be fetched."""
    text = str(name)
    if hub.is_shared(text):
        return hub.find_hub().download(*hub.parse(text), update=update)
    return zoo.folder(text) if text.startswith(zoo.PREFIX) else Path(name)


def own(name: str | Path) -> Path:
    """The folder for what is measured of it: the run's own, or one of the model's name where the command is called."""
    text = str(name)
    if hub.is_shared(text) or text.startswith(zoo.PREFIX):
        return Path(text.rpartition("/")[2].removeprefix(zoo.PREFIX))
    return Path(name)
