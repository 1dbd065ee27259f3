"""Safe access to the files of a run: only regular files whose real path is inside its folder are read."""

import os
import stat
from pathlib import Path

from ebmlife.errors import BadInput

LARGEST = 2**26  # bytes of a file of text or of a picture
_MANY = 10_000  # largest number of entries of a folder


class SafeFolder:
    """A folder whose files can be read safely. Links are followed, but not out of the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._roots = [Path(os.path.realpath(place)) for place in (folder, *_blobs(folder))]

    def file(self, path: Path, *, largest: int | None = None) -> Path | None:
        """Returns the path if it is a regular file, None if nothing exists, and raises BadInput otherwise."""
        if not os.path.lexists(path):
            return None
        self._opened(path, largest, close=True)
        return path

    def content(self, path: Path, *, largest: int = LARGEST) -> bytes | None:
        """Returns the bytes of a regular file, None if nothing exists, and raises BadInput otherwise."""
        if not os.path.lexists(path):
            return None
        with os.fdopen(self._opened(path, largest), "rb") as stream:
            return stream.read(largest)

    def tree(self, folder: Path) -> None:
        """Raises BadInput unless a folder holds only regular files and folders inside of this one."""
        self._real(folder)
        seen = 0
        for place, folders, names in os.walk(folder):
            for name in (*folders, *names):
                path, seen = Path(place) / name, seen + 1
                if seen > _MANY:
                    raise BadInput(f"{self.name(folder)} holds more than {_MANY:,} files")
                if path.is_symlink() or not path.is_dir():
                    self.file(path)

    def _opened(self, path: Path, largest: int | None, *, close: bool = False) -> int:
        """Opens a regular file. A FIFO does not block, and a link that was created meanwhile is refused."""
        try:
            real = self._real(path, strict=True)
            if not stat.S_ISREG(real.lstat().st_mode):  # opening a device can have side effects
                raise BadInput(f"{self.name(path)} is not a regular file")
            descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise BadInput(f"{self.name(path)} cannot be read: {error.strerror}") from error
        status = os.fstat(descriptor)
        fits = largest is None or status.st_size <= largest
        if close or not fits or not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{self.name(path)} is not a regular file")
        if not fits:
            raise BadInput(f"{self.name(path)} is larger than {(largest or 0) / 2**20:,.0f} MB")
        return descriptor

    def _real(self, path: Path, *, strict: bool = False) -> Path:
        real = Path(os.path.realpath(path, strict=strict))
        if not any(real.is_relative_to(root) for root in self._roots):
            raise BadInput(f"{self.name(path)} is a link to something outside of the run's folder")
        return real

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)


def _blobs(folder: Path) -> list[Path]:
    """Returns where the hub's cache keeps the files to which a snapshot links."""
    model = folder.parent.parent
    return [model / "blobs"] if folder.parent.name == "snapshots" and model.name.startswith("models--") else []
