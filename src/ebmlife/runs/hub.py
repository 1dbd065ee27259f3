"""The Hugging Face hub, or a local folder in its place.

Only the files of a model are downloaded: its recipe, its card, and the three files of one checkpoint.
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
_LOCAL = "EBMLIFE_HUB"  # environment variable: a folder to use instead of the hub
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"  # no leading dot: neither '..' nor a hidden folder
_NAME, _REVISION = re.compile(f"{_WORD}/{_WORD}"), re.compile(f"{_WORD}(/{_WORD})*")
_CHECKPOINT = re.compile(r"checkpoints/([0-9]{9,12})/manifest\.json")
_MEGABYTE = 2**20
_LIMITS = {  # largest size by name, far above that of any model
    "recipe.json": _MEGABYTE,
    "README.md": _MEGABYTE,
    "manifest.json": _MEGABYTE,
    "state.json": 64 * _MEGABYTE,
    "tensors.safetensors": 32 * 1024 * _MEGABYTE,
}
_OF_MODEL, _OF_CHECKPOINT = ("recipe.json", "README.md"), ("manifest.json", "state.json", "tensors.safetensors")

_PATTERNS = [*_OF_MODEL, *(f"checkpoints/*/{name}" for name in _OF_CHECKPOINT)]


class Hub(Protocol):
    """Where models are shared."""

    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        """Replaces the content of the repository by that of the folder; returns its address."""
        ...

    def download(self, repository: str, revision: str | None, *, update: int | None = None) -> Path:
        """Returns a folder with the files of the model, at its newest checkpoint or at that of an update."""
        ...


def is_shared(name: str | Path) -> bool:
    """Whether the name is that of a model on the hub."""
    return str(name).startswith(PREFIX)


def parse(name: str) -> tuple[str, str | None]:
    """'hf:user/model' or 'hf:user/model@revision' -> repository, revision."""
    repository, at, revision = name.removeprefix(PREFIX).partition("@")
    right = _NAME.fullmatch(repository) and (not at or _REVISION.fullmatch(revision))
    if not is_shared(name) or not right:
        raise BadInput(
            f"{name!r} is not the name of a model on the hub; expected hf:user/model or hf:user/model@revision"
        )
    return repository, revision or None


def find_hub() -> Hub:
    """Returns the folder named by EBMLIFE_HUB, if that is set; else the Hugging Face hub."""
    local = os.environ.get(_LOCAL)
    return LocalHub(Path(local).expanduser()) if local else HuggingFace()


def files_of_model(sizes: Mapping[str, int | None], repository: str, *, update: int | None) -> list[str]:
    """Returns the names of the files of a model, among all files of a repository.

    `sizes` has bytes by name, where they are known. Raises BadInput for a file that is larger than in any model.
    """
    checkpoints = {int(match[1]): name for name in sizes if (match := _CHECKPOINT.fullmatch(name))}
    chosen = max(checkpoints, default=None) if update is None else update
    names = [name for name in _OF_MODEL if name in sizes]
    if chosen in checkpoints:
        folder = checkpoints[chosen].rpartition("/")[0]
        names += [f"{folder}/{name}" for name in _OF_CHECKPOINT if f"{folder}/{name}" in sizes]
    for name in names:
        size, limit = sizes[name], _LIMITS[name.rpartition("/")[2]]
        if size is not None and size > limit:
            raise BadInput(
                f"hf:{repository}: {name} has {size:,} bytes; expected at most {limit:,}; it is not downloaded"
            )
    return names


class LocalHub:
    """Repositories in a folder, for tests and for groups that share a disk. Links in it are not followed."""

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
            raise BadInput(f"{self.root} has no revisions; remove @{revision}")
        folder = self.root / repository
        self._refuse_links(folder)
        if not folder.is_dir():
            raise BadInput(f"hf:{repository} does not exist in {self.root}, the folder that {_LOCAL} names")
        files = [folder / name for name in _OF_MODEL]
        files += [file for name in _OF_CHECKPOINT for file in sorted(folder.glob(f"checkpoints/*/{name}"))]
        for file in files:
            self._refuse_links(file)
        sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files if file.is_file()}
        files_of_model(sizes, repository, update=update)
        return folder

    def _refuse_links(self, path: Path) -> None:
        for part in (path, *path.parents):
            if part == self.root:
                return
            if part.is_symlink():
                raise BadInput(f"{part} is a link, and links in {self.root} are not followed; copy the files there")
            if part.exists() and not (part.is_file() or part.is_dir()):
                raise BadInput(f"{part} is neither a file nor a folder; remove it")


class HuggingFace:
    """The hub itself. Private models and uploads use the login of `hf auth login`."""

    def __init__(self) -> None:
        try:
            import huggingface_hub
        except ImportError as error:
            raise BadInput("hf: models need huggingface_hub: pip install ebmlife[hub]") from error
        self._library: Any = huggingface_hub

    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        try:
            self._library.create_repo(repository, private=private, exist_ok=True)
            # Older checkpoints would be found first, so they are deleted.
            self._library.upload_folder(repo_id=repository, folder_path=folder, delete_patterns=["checkpoints/**"])
        except (OSError, ValueError) as error:
            raise _unreachable(repository, error, "log in with `hf auth login`") from error
        return f"https://huggingface.co/{repository}"

    def download(self, repository: str, revision: str | None, *, update: int | None = None) -> Path:
        try:
            about = self._library.model_info(repository, revision=revision, files_metadata=True)
        except Exception as error:  # an exception of the hub or of the HTTP library
            return self._cached(repository, revision, error)
        sizes = {file.rfilename: file.size for file in about.siblings}
        names = files_of_model(sizes, repository, update=update)
        try:  # these names contain no wildcard
            return Path(self._library.snapshot_download(repository, revision=revision, allow_patterns=names))
        except (OSError, ValueError) as error:
            raise _unreachable(repository, error, "check the network connection") from error

    def _cached(self, repository: str, revision: str | None, error: Exception) -> Path:
        """Returns what was downloaded before, if the hub cannot be reached."""
        try:
            return Path(
                self._library.snapshot_download(
                    repository, revision=revision, allow_patterns=_PATTERNS, local_files_only=True
                )
            )
        except (OSError, ValueError):
            raise _unreachable(repository, error, "check the name and the network connection") from error


def _unreachable(repository: str, error: Exception, hint: str) -> BadInput:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return BadInput(f"hf:{repository}: {type(error).__name__}: {reason}; {hint}")
