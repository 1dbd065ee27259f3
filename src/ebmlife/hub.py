"""Where models are shared: the Hugging Face hub, or a folder that stands in for it."""

import os
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

from ebmlife.errors import BadInput
from ebmlife.files import whole

PREFIX = "hf:"
_LOCAL = "EBMLIFE_HUB"  # the environment's name for a folder in place of the hub
_FILES = ["recipe.json", "checkpoints/**"]  # what is fetched: no pickle, no code
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class Hub(Protocol):
    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        """Makes `repository` hold what the folder does, and says where it can be seen."""
        ...

    def download(self, repository: str, revision: str | None) -> Path:
        """A folder with the repository's files."""
        ...


def is_shared(name: str | Path) -> bool:
    return str(name).startswith(PREFIX)


def parse(name: str) -> tuple[str, str | None]:
    """'hf:user/model' or 'hf:user/model@revision' -> repository, revision."""
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    if not is_shared(name) or not _NAME.fullmatch(repository):
        raise BadInput(f"{name!r} is no model on the hub; expected hf:user/model or hf:user/model@revision")
    return repository, revision or None


def find_hub() -> Hub:
    """The Hugging Face hub; the folder that EBMLIFE_HUB names, where it does."""
    local = os.environ.get(_LOCAL)
    return LocalHub(Path(local).expanduser()) if local else HuggingFace()


class LocalHub:
    """Repositories as folders: for tests, and for a group that shares a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def upload(self, folder: Path, repository: str, *, private: bool) -> str:
        target = self.root / repository
        with whole(target) as unfinished:
            shutil.copytree(folder, unfinished)
        return str(target)

    def download(self, repository: str, revision: str | None) -> Path:
        if revision is not None:
            raise BadInput(f"{self.root} keeps no revisions; leave @{revision} away")
        if not (self.root / repository).is_dir():
            raise BadInput(f"hf:{repository} is not there; looked in {self.root}, which {_LOCAL} names")
        return self.root / repository


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

    def download(self, repository: str, revision: str | None) -> Path:
        try:
            return Path(self._library.snapshot_download(repository, revision=revision, allow_patterns=_FILES))
        except (OSError, ValueError) as error:
            raise _unreachable(repository, error, "is its name right, and is there a network?") from error


def _unreachable(repository: str, error: Exception, hint: str) -> BadInput:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return BadInput(f"hf:{repository}: {type(error).__name__}: {reason}; {hint}")
