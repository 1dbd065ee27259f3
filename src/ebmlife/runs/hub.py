"""Where models are shared: the Hugging Face hub, or a folder that stands in for it.

Only the files that a model is made of are fetched: its recipe, its card, and the three files of one checkpoint.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from ebmlife.errors import BadInput
from ebmlife.storage.atomic import atomic_write

PREFIX = "hf:"
_LOCAL = "EBMLIFE_HUB"  # the environment's name for a folder in place of the hub
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"  # never a dot first: neither '..' nor a hidden folder
_NAME, _REVISION = re.compile(f"{_WORD}/{_WORD}"), re.compile(f"{_WORD}(/{_WORD})*")
_CHECKPOINT = re.compile(r"checkpoints/([0-9]{9,12})/manifest\.json")
_MEGABYTE = 2**20
_LIMITS = {  # the largest file of each name, far above what any model has
    "recipe.json": _MEGABYTE,
    "README.md": _MEGABYTE,
    "manifest.json": _MEGABYTE,
    "state.json": 64 * _MEGABYTE,
    "tensors.safetensors": 32 * 1024 * _MEGABYTE,
}
_OF_MODEL, _OF_CHECKPOINT = ("recipe.json", "README.md"), ("manifest.json", "state.json", "tensors.safetensors")

_PATTERNS = [*_OF_MODEL, *(f"checkpoints/*/{name}" for name in _OF_CHECKPOINT)]


class Hub(Protocol):
    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        """Makes `repository` hold what the folder does, and says where it can be seen."""
        ...

    def download(self, repository: str, revision: str | None, *, update: int | None = None) -> Path:
        """A folder with the model's files, those of its newest checkpoint or of the one at an update."""
        ...


def is_shared(name: str | Path) -> bool:
    return str(name).startswith(PREFIX)


def parse(name: str) -> tuple[str, str | None]:
    """'hf:user/model' or 'hf:user/model@revision' -> repository, revision."""
    repository, at, revision = name.removeprefix(PREFIX).partition("@")
    right = _NAME.fullmatch(repository) and (not at or _REVISION.fullmatch(revision))
    if not is_shared(name) or not right:
        raise BadInput(f"{name!r} is no model on the hub; expected hf:user/model or hf:user/model@revision")
    return repository, revision or None


def find_hub() -> Hub:
    """The Hugging Face hub; the folder that EBMLIFE_HUB names, where it does."""
    local = os.environ.get(_LOCAL)
    return LocalHub(Path(local).expanduser()) if local else HuggingFace()


def files_of_model(sizes: Mapping[str, int | None], repository: str, *, update: int | None) -> list[str]:
    """The names, among the files of a repository, of those that a model is made of. `sizes`: bytes by name, where they
    are known; BadInput if one is larger than any model's."""
    checkpoints = {int(match[1]): name for name in sizes if (match := _CHECKPOINT.fullmatch(name))}
    chosen = max(checkpoints, default=None) if update is None else update
    names = [name for name in _OF_MODEL if name in sizes]
    if chosen in checkpoints:
        folder = checkpoints[chosen].rpartition("/")[0]
        names += [f"{folder}/{name}" for name in _OF_CHECKPOINT if f"{folder}/{name}" in sizes]
    for name in names:
        size, limit = sizes[name], _LIMITS[name.rpartition("/")[2]]
        if size is not None and size > limit:
            raise BadInput(f"hf:{repository}: {name} has {size:,} bytes; expected at most {limit:,}, it is not fetched")
    return names


class LocalHub:
    """Repositories as folders: for tests, and for a group that shares a disk. No link in them is followed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        target = self.root / repository
        self._refuse_links(target)
        with atomic_write(target) as unfinished:
            shutil.copytree(folder, unfinished)
        return str(target)

    def download(self, repository: str, revision: str | None, *, update: int | None = None) -> Path:
        if revision is not None:
            raise BadInput(f"{self.root} keeps no revisions; leave @{revision} away")
        place = self.root / repository
        self._refuse_links(place)
        if not place.is_dir():
            raise BadInput(f"hf:{repository} is not there; looked in {self.root}, which {_LOCAL} names")
        there = [place / name for name in _OF_MODEL]
        there += [file for name in _OF_CHECKPOINT for file in sorted(place.glob(f"checkpoints/*/{name}"))]
        for file in there:
            self._refuse_links(file)
        sizes = {file.relative_to(place).as_posix(): file.stat().st_size for file in there if file.is_file()}
        files_of_model(sizes, repository, update=update)
        return place

    def _refuse_links(self, path: Path) -> None:
        for part in (path, *path.parents):
            if part == self.root:
                return
            if part.is_symlink():
                raise BadInput(f"{part} is a link, and links in {self.root} are not followed; put the files there")
            if part.exists() and not (part.is_file() or part.is_dir()):
                raise BadInput(f"{part} is neither a file nor a folder; a model is made of files")


class HuggingFace:
    """The hub itself, with the login of `hf auth login` for what is private or written."""

    def __init__(self) -> None:
        try:
            import huggingface_hub
        except ImportError as error:
            raise BadInput("hf: models need huggingface_hub: pip install ebmlife[hub]") from error
        self._library: Any = huggingface_hub

    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        try:
            self._library.create_repo(repository, private=private, exist_ok=True)
            # Checkpoints of before would be found first: what is not pushed now goes.
            self._library.upload_folder(repo_id=repository, folder_path=folder, delete_patterns=["checkpoints/**"])
        except (OSError, ValueError) as error:
            raise _unreachable(repository, error, "log in with `hf auth login`") from error
        return f"https://huggingface.co/{repository}"

    def download(self, repository: str, revision: str | None, *, update: int | None = None) -> Path:
        try:
            about = self._library.model_info(repository, revision=revision, files_metadata=True)
        except Exception as error:  # of the hub, or of the library beneath that speaks to it
            return self._cached(repository, revision, error)
        sizes = {file.rfilename: file.size for file in about.siblings}
        names = files_of_model(sizes, repository, update=update)
        try:  # these names are exact: none has a wildcard in it
            return Path(self._library.snapshot_download(repository, revision=revision, allow_patterns=names))
        except (OSError, ValueError) as error:
            raise _unreachable(repository, error, "is there a network?") from error

    def _cached(self, repository: str, revision: str | None, error: Exception) -> Path:
        """What was fetched before, where the hub cannot be asked."""
        try:
            return Path(
                self._library.snapshot_download(
                    repository, revision=revision, allow_patterns=_PATTERNS, local_files_only=True
                )
            )
        except (OSError, ValueError):
            raise _unreachable(repository, error, "is its name right, and is there a network?") from error


def _unreachable(repository: str, error: Exception, hint: str) -> BadInput:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return BadInput(f"hf:{repository}: {type(error).__name__}: {reason}; {hint}")
