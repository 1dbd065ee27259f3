from pathlib import Path

import numpy as np
import pytest
import torch

from ebmlife.errors import BadInput
from ebmlife.sharing.importers.tensorflow import read_checkpoint

from .foreign import write_checkpoint


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "block2/conv_1/kernel": rng.normal(size=(3, 3, 2, 4)).astype(np.float32),
        "block2/conv_1/bias": rng.normal(size=4).astype(np.float32),
        "block2/conv_10/bias": rng.normal(size=300).astype(np.float64),
        "half": rng.normal(size=(2, 2)).astype(np.float16),
        "count": np.array(7, dtype=np.int64),
        "none": np.zeros((0, 3), dtype=np.float32),
    }


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("block", [1, 100, 4096])
@pytest.mark.parametrize("given", ["weights.ckpt", "weights.ckpt.index"])
def test_what_was_written_is_read(tmp_path: Path, shards: int, block: int, given: str) -> None:
    write_checkpoint(tmp_path / "weights.ckpt", arrays(), shards=shards, block=block)
    read = read_checkpoint(tmp_path / given)
    assert sorted(read) == sorted(arrays())
    for name, array in arrays().items():
        assert torch.equal(read[name], torch.from_numpy(array))
        assert read[name].dtype == torch.from_numpy(array).dtype


def test_what_optimizers_keep_is_left_out(tmp_path: Path) -> None:
    weight = {"a/kernel": np.ones(2, np.float32), "a/kernel/.OPTIMIZER_SLOT/adam/m": np.ones(2, np.float32)}
    write_checkpoint(tmp_path / "x", weight)
    assert list(read_checkpoint(tmp_path / "x")) == ["a/kernel"]


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_any_changed_or_missing_byte_is_noticed(tmp_path: Path, suffix: str) -> None:
    """Padding and entries that are not read may change; nothing that is read may come out different."""
    prefix = tmp_path / "weights.ckpt"
    write_checkpoint(prefix, arrays())
    file = Path(f"{prefix}{suffix}")
    whole, expected = file.read_bytes(), read_checkpoint(prefix)
    places = range(0, len(whole), max(1, len(whole) // 60))
    changed = [whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :] for i in places]
    messages = []
    for content in (*changed, *(whole[:i] for i in places)):
        file.write_bytes(content)
        try:
            read = read_checkpoint(prefix)
            assert all(torch.equal(read[name], value) for name, value in expected.items())
        except BadInput as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all(str(file) in message and "\n" not in message for message in messages)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no weights\.ckpt\.index there"):
        read_checkpoint(tmp_path / "weights.ckpt")
    write_checkpoint(tmp_path / "weights.ckpt", arrays())
    (tmp_path / "weights.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(BadInput, match=r"needs weights\.ckpt\.data-00000-of-00001 beside it"):
        read_checkpoint(tmp_path / "weights.ckpt")


@pytest.mark.parametrize("content", [b"", b"not a table", bytes(1000)])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.index").write_bytes(content)
    with pytest.raises(BadInput, match=r"x\.index is damaged or no file of a TensorFlow checkpoint"):
        read_checkpoint(tmp_path / "x")
