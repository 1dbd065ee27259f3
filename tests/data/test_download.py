import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from ebmlife.data import download, folder
from ebmlife.errors import BadInput


def stub(monkeypatch, name: str, **contents) -> None:
    """Put a module of this name, real or not, in place for one test."""
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def torchvision(monkeypatch):
    """torchvision as far as it is used; `fetched` holds the arguments of its downloader."""
    fetched = []

    def fetch(url, root, *, filename, md5, remove_finished):
        fetched.append((url, filename, md5, remove_finished))
        inside = Path(root) / "cifar-10-batches-py"
        inside.mkdir()
        (inside / "test_batch").write_bytes(b"bytes")

    archive = SimpleNamespace(url="https://there", filename="cifar.tar.gz", tgz_md5="0123")
    stub(monkeypatch, "torchvision")
    stub(monkeypatch, "torchvision.datasets", CIFAR10=archive)
    stub(monkeypatch, "torchvision.datasets.utils", download_and_extract_archive=fetch)
    return fetched


class Rows:
    """A Hugging Face data set as far as it is used."""

    def __init__(self, images, features) -> None:
        self._images, self.features = images, features

    def select_columns(self, names):
        assert names == ["photo"]
        return self

    def cast_column(self, name, kind):
        assert not kind.decode
        for image in self._images:
            stream = io.BytesIO()
            image.save(stream, "TIFF" if image.mode == "CMYK" else image.format or "PNG")
            yield {name: {"bytes": stream.getvalue(), "path": None}}


def hugging_face(monkeypatch, images, *, column: bool = True) -> None:
    class Kind:
        def __init__(self, *, decode: bool = True) -> None:
            self.decode = decode

    features = {"label": object()} | ({"photo": Kind()} if column else {})
    stub(monkeypatch, "datasets", Image=Kind, load_dataset=lambda name, *, split: Rows(images, features))


def test_cifar10_is_fetched_once_and_checked_by_md5(tmp_path, torchvision):
    place = download("cifar10", tmp_path / "deep" / "cifar")
    assert place == tmp_path / "deep" / "cifar"
    assert (place / "cifar-10-batches-py" / "test_batch").read_bytes() == b"bytes"
    assert torchvision == [("https://there", "cifar.tar.gz", "0123", True)]
    assert download("cifar10", place) == place
    assert len(torchvision) == 1
    assert [path.name for path in place.parent.iterdir()] == ["cifar"]


def test_an_empty_folder_is_filled(tmp_path, torchvision):
    (tmp_path / "cifar").mkdir()
    assert any(download("cifar10", tmp_path / "cifar").iterdir())


def test_the_arguments_suit_the_real_torchvision(tmp_path, monkeypatch):
    """Everything but the network, which is refused: names and parameters of torchvision change between versions."""
    utils = pytest.importorskip("torchvision.datasets.utils", reason="torchvision is not installed")

    def refuse(*_, **__):
        raise OSError("no network\nin tests")

    monkeypatch.setattr(utils, "_urlretrieve", refuse)
    monkeypatch.setattr(utils, "_get_redirect_url", lambda url, **_: url)
    with pytest.raises(BadInput, match=r"^could not download cifar10 \(OSError: no network\); [^\n]*$"):
        download("cifar10", tmp_path / "cifar")
    assert list(tmp_path.iterdir()) == []


def test_celeba_drops_the_archive(tmp_path, monkeypatch):
    def celeba(root, *, split, target_type, download):
        assert (split, target_type, download) == ("all", [], True)
        inside = Path(root) / "celeba" / "img_align_celeba"
        inside.mkdir(parents=True)
        Image.new("RGB", (178, 218)).save(inside / "000001.jpg")
        (inside.parent / "img_align_celeba.zip").write_bytes(b"zip")

    stub(monkeypatch, "gdown")
    stub(monkeypatch, "torchvision")
    stub(monkeypatch, "torchvision.datasets", CelebA=celeba)
    place = download("celeba", tmp_path / "faces")
    assert not list(place.rglob("*.zip"))
    assert len(folder(place, size=8)) == 1


def test_hugging_face_images_become_numbered_files(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(256, size=(3, 5, 5, 3), dtype=np.uint8)
    images = [Image.fromarray(p) for p in pixels] + [Image.new("CMYK", (5, 5))]
    hugging_face(monkeypatch, images)
    place = download("hf:somebody/something", tmp_path / "set")
    assert sorted(path.name for path in place.iterdir()) == [f"000000{i}.png" for i in range(4)]
    assert np.array_equal(folder(place, size=5).items[:3].numpy(), pixels.transpose(0, 3, 1, 2))


def test_a_format_that_starts_programs_is_refused(tmp_path, monkeypatch):
    image = Image.new("RGB", (5, 5))
    image.format = "EPS"
    hugging_face(monkeypatch, [Image.new("L", (4, 4)), image])
    with pytest.raises(BadInput, match="hf:a/b, row 1: not a PNG, JPEG, WEBP, BMP, GIF, TIFF or PPM image"):
        download("hf:a/b", tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing(tmp_path, monkeypatch):
    def cut():
        yield Image.new("L", (4, 4))
        raise ConnectionError("gone")

    hugging_face(monkeypatch, cut())
    with pytest.raises(BadInput, match=r"hf:a/b .*ConnectionError: gone"):
        download("hf:a/b", tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_set_without_images_is_refused(tmp_path, monkeypatch):
    hugging_face(monkeypatch, [], column=False)
    with pytest.raises(BadInput, match="no column of images; its columns are label"):
        download("hf:a/b", tmp_path / "set")


@pytest.mark.parametrize(("name", "library"), [("cifar10", "torchvision"), ("celeba", "gdown"), ("hf:a/b", "datasets")])
def test_a_missing_library_names_the_extra(tmp_path, monkeypatch, name, library):
    for module in [m for m in sys.modules if m.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BadInput, match=rf"needs {library}: pip install ebmlife\[download\]"):
        download(name, tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_bad_names_and_places(tmp_path):
    with pytest.raises(BadInput, match="did you mean 'cifar10'"):
        download("cifar-10", tmp_path)
    with pytest.raises(BadInput, match="no data set 'hf:'"):
        download("hf:", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="expected a folder"):
        download("cifar10", tmp_path / "file")
    with pytest.raises(BadInput, match="cannot write there"):
        download("cifar10", tmp_path / "file" / "below")
