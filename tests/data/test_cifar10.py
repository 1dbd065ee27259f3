import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from ebmlife.data import cifar10
from ebmlife.errors import BadInput

NAMES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
N = 1203  # images a file in these tests; more than cPickle's 1000 to a list of items


@pytest.fixture(autouse=True)
def _small_files(request, monkeypatch):
    if "official_cifar10" not in request.fixturenames:
        monkeypatch.setattr(importlib.import_module("ebmlife.data.cifar"), "IMAGES_PER_FILE", N)


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(0)
    return {name: (rng.integers(256, size=(N, 3072), dtype=np.uint8), rng.integers(10, size=N)) for name in NAMES}


class CPickle:
    """Python 2's cPickle at protocol 2, as far as the official files need it: every opcode written by hand."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self._memo = 0

    def put(self) -> None:
        self._memo += 1
        self.out += b"q%c" % self._memo if self._memo < 256 else b"r" + self._memo.to_bytes(4, "little")

    def string(self, value: bytes, *, memo: bool = True) -> None:
        short = len(value) < 256
        self.out += (b"U%c" % len(value) if short else b"T" + len(value).to_bytes(4, "little")) + value
        if memo:
            self.put()

    def items(self, values, write) -> None:
        self.out += b"]"
        self.put()
        for start in range(0, len(values), 1000):
            self.out += b"("
            for value in values[start : start + 1000]:
                write(value)
            self.out += b"e"

    def number(self, value: int) -> None:
        self.out += b"K%c" % value if value < 256 else b"M" + int(value).to_bytes(2, "little")

    def array(self, values: np.ndarray, *, fortran: bool) -> None:
        self.out += b"cnumpy.core.multiarray\n_reconstruct\n"
        self.put()
        self.out += b"cnumpy\nndarray\n"
        self.put()
        self.out += b"K\x00\x85U\x01b\x87R"
        self.put()
        self.out += b"(K\x01"
        self.number(values.shape[0])
        self.number(values.shape[1])
        self.out += b"\x86cnumpy\ndtype\n"
        self.put()
        self.out += b"U\x02u1K\x00K\x01\x87R"
        self.put()
        self.out += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb" + (b"\x88" if fortran else b"\x89")
        self.string(values.tobytes("F" if fortran else "C"))
        self.out += b"tb"


def python_file(images, labels, *, fortran: bool = False, key: bytes = b"labels") -> bytes:
    stream = CPickle()
    stream.out += b"}"
    stream.put()
    stream.out += b"("
    stream.string(b"batch_label")
    stream.string(b"training batch 1 of 5")
    stream.string(key)
    stream.items(labels, stream.number)
    stream.string(b"data")
    stream.array(images, fortran=fortran)
    stream.string(b"filenames")
    stream.items([b"camion_s_%06d.png" % i for i in range(len(images))], stream.string)
    return bytes(stream.out + b"u.")


def write_binary(folder: Path, batches) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in batches.items():
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None].astype(np.uint8), images], 1).tobytes())


def write_python(folder: Path, batches) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in batches.items():
        (folder / name).write_bytes(python_file(images, labels))


def check(data, names, batches) -> None:
    assert data.shape == (3, 32, 32)
    assert len(data) == N * len(names)
    expected = np.concatenate([batches[name][0] for name in names]).reshape(-1, 3, 32, 32)
    assert np.array_equal(data.items.numpy(), expected)
    assert np.array_equal(data.labels.numpy(), np.concatenate([batches[name][1] for name in names]))
    assert data.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("write", "inside"), [(write_binary, "cifar-10-batches-bin"), (write_python, "cifar-10-batches-py")]
)
def test_both_layouts_are_read_from_the_folder_and_from_its_parent(tmp_path, batches, write, inside):
    write(tmp_path / inside, batches)
    for place in (tmp_path, tmp_path / inside, str(tmp_path)):
        check(cifar10(place), NAMES[:5], batches)
        check(cifar10(place, train=False), NAMES[5:], batches)


def test_a_column_major_array_is_read_alike(tmp_path, batches):
    (tmp_path / "test_batch").write_bytes(python_file(*batches["test_batch"], fortran=True))
    check(cifar10(tmp_path, train=False), ["test_batch"], batches)


@pytest.mark.parametrize("write", [write_binary, write_python])
def test_a_cut_off_file_is_named(tmp_path, batches, write):
    write(tmp_path, batches)
    path = next(path for path in tmp_path.iterdir() if path.stem == "data_batch_3")
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(BadInput, match=path.name) as refusal:
        cifar10(tmp_path)
    assert "\n" not in str(refusal.value)
    assert len(cifar10(tmp_path, train=False)) == N


def test_a_missing_folder_file_or_layout_says_what_was_expected(tmp_path, batches):
    with pytest.raises(BadInput, match=r"nowhere: no such folder; .*--data.download true"):
        cifar10(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"expected data_batch_1 to data_batch_5 .*--data.download true"):
        cifar10(tmp_path)
    write_binary(tmp_path, batches)
    (tmp_path / "data_batch_2.bin").unlink()
    with pytest.raises(BadInput, match=r"data_batch_2.bin missing"):
        cifar10(tmp_path)


def test_impossible_labels_are_refused(tmp_path, batches):
    images, labels = batches["test_batch"]
    write_binary(tmp_path / "bin", {"test_batch": (images, labels + 1)})
    write_python(tmp_path / "py", {"test_batch": (images, labels + 1)})
    for place in ("bin", "py"):
        with pytest.raises(BadInput, match="0 to 9"):
            cifar10(tmp_path / place, train=False)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda good: good.replace(b"cnumpy\ndtype\n", b"cos\nsystem\n"), "unexpected GLOBAL"),
        (lambda good: good.replace(b"U\x02u1", b"U\x02i1"), "not a uint8 array"),
        (lambda good: good.replace(b"U\x06labels", b"U\x06babels"), "not a dict of"),
        (lambda good: b"\x80\x02]q\x01.", "not a dict of"),
    ],
)
def test_other_pickles_are_refused(tmp_path, batches, bad, reason):
    (tmp_path / "test_batch").write_bytes(bad(python_file(*batches["test_batch"])))
    with pytest.raises(BadInput, match=f"test_batch: .*{reason}.*binary version"):
        cifar10(tmp_path, train=False)


def test_the_official_files(official_cifar10):
    data = cifar10(official_cifar10, train=False)
    assert len(data) == 10_000
    assert torch.equal(torch.bincount(data.labels), torch.full((10,), 1000))
    assert data.labels[:5].tolist() == [3, 8, 8, 0, 6]  # cat, ship, ship, airplane, frog
    # The published channel means of CIFAR-10, which a permuted layout would not give.
    train = cifar10(official_cifar10)
    assert len(train) == 50_000
    means = train.items.double().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
