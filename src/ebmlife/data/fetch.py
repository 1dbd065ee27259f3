"""Downloads data sets through libraries that only this module needs."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebmlife.data import images
from ebmlife.data.libraries import encoded, library
from ebmlife.errors import BadInput, nearest
from ebmlife.storage.atomic import located


def download(name: str, folder: str | Path) -> Path:
    """Downloads a data set into a folder.

    CIFAR-10 is downloaded in its official Python version, which `cifar10` reads, and MNIST as its official files, which
    `mnist` reads; the others become image files, which `folder` reads. Files are collected in a hidden folder next to
    the target, which is renamed when it is complete. A folder that is not empty is therefore complete and is left
    unchanged, without access to the network.

    Args:
        name: 'cifar10', 'mnist', 'celeba' or 'hf:user/name' (a Hugging Face data set of images).
        folder: The folder to download into.

    Returns:
        The folder.
    """
    fetch = {"cifar10": _cifar10, "mnist": _mnist, "celeba": _celeba}.get(name)
    repository = name.removeprefix("hf:")
    if fetch is None and (repository == name or not repository):
        known = ["cifar10", "mnist", "celeba", "hf:user/name"]
        raise BadInput(f"no data set {name!r} to download{nearest(name, known)}")
    target = located(folder)
    if target.exists() and not target.is_dir():
        raise BadInput(f"{target}: a file, expected a folder to download into")
    if target.exists() and any(target.iterdir()):
        return target
    with _complete_or_nothing(name, target) as part:
        if fetch is None:
            _hugging_face(repository, part)
        else:
            fetch(part)
    return target


@contextmanager
def _complete_or_nothing(name: str, target: Path) -> Iterator[Path]:
    """A folder that becomes `target` if the block succeeds and is deleted otherwise."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise BadInput(f"{target}: cannot write there ({error})") from error
    try:
        yield part
        part.chmod(0o755)  # mkdtemp makes it private
        if target.exists():
            target.rmdir()
        part.rename(target)
    except BadInput:
        raise
    except Exception as error:  # urllib, gdown, requests and httpx raise different exceptions
        reason = (str(error).splitlines() or [""])[0]
        raise BadInput(
            f"could not download {name} ({type(error).__name__}: {reason}); try again, or download it by hand"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _cifar10(part: Path) -> None:
    """Downloads the archive and checks its MD5. Constructing torchvision's data set would unpickle the files."""
    archive = library("torchvision.datasets").CIFAR10
    fetch = library("torchvision.datasets.utils").download_and_extract_archive
    fetch(archive.url, str(part), filename=archive.filename, md5=archive.tgz_md5, remove_finished=True)


def _mnist(part: Path) -> None:
    """Downloads the four files, whose MD5 torchvision checks, as part/MNIST/raw/*, compressed and plain."""
    library("torchvision.datasets").MNIST(str(part), download=True)


def _celeba(part: Path) -> None:
    """202,599 aligned faces, 178x218, as part/celeba/img_align_celeba/*.jpg, with the attribute lists."""
    library("gdown")  # torchvision fetches CelebA from Google Drive through it
    library("torchvision.datasets").CelebA(str(part), split="all", target_type=[], download=True)
    (part / "celeba" / "img_align_celeba.zip").unlink(missing_ok=True)


def _hugging_face(repository: str, part: Path) -> None:
    """The images of the first image column of the training split, as 0000000.png and so on."""
    datasets = library("datasets")
    rows = datasets.load_dataset(repository, split="train")
    columns = [column for column, kind in rows.features.items() if isinstance(kind, datasets.Image)]
    if not columns:
        raise BadInput(f"hf:{repository} has no column of images; its columns are {', '.join(rows.features)}")
    # The library itself would open whatever format it finds.
    cells = rows.select_columns(columns[:1]).cast_column(columns[0], datasets.Image(decode=False))
    for number, row in enumerate(cells):
        try:
            _save_png(encoded(row[columns[0]]), part / f"{number:07d}.png")
        except BadInput as error:
            raise BadInput(f"hf:{repository}, row {number}: {error}") from error


def _save_png(data: bytes, file: Path) -> None:
    with images.opened(data) as image:
        writable = image.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
        # PNG has no CMYK, YCbCr or float pixels
        (image if writable else image.convert("RGB")).save(file, format="PNG")
