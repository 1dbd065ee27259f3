from pathlib import Path

import pytest
import torch

from ebmlife.errors import BadInput
from ebmlife.storage import checkpoint

STATE = {
    "a": {"x": torch.arange(6.0).view(2, 3).T, "n": 3, "none": None},
    "list": [torch.ones(2, dtype=torch.int64), "text", 1.5],
    "bytes": torch.arange(5, dtype=torch.uint8),
    "scalar": torch.tensor(2.5),
}


def save(run: Path, update: int) -> Path:
    checkpoint.save(checkpoint.path(run, update), STATE, about={"update": update})
    return checkpoint.path(run, update)


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    state, manifest = checkpoint.load(save(tmp_path, 7))
    assert manifest["update"] == 7
    assert torch.equal(state["a"]["x"], STATE["a"]["x"])  # type: ignore[index]
    assert state["a"]["n"] == 3
    assert state["a"]["none"] is None
    assert torch.equal(state["list"][0], torch.ones(2, dtype=torch.int64))
    assert state["list"][1:] == ["text", 1.5]
    assert state["bytes"].dtype == torch.uint8
    assert state["scalar"] == 2.5


def test_nothing_in_it_is_a_pickle(tmp_path: Path) -> None:
    names = sorted(file.name for file in save(tmp_path, 1).iterdir())
    assert names == ["manifest.json", "state.json", "tensors.safetensors"]


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json"])
def test_a_changed_byte_is_noticed(tmp_path: Path, file: str) -> None:
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(BadInput, match=rf"{file} has changed.*; .*add --update 1, or type: ebmlife resume "):
        checkpoint.load(folder)


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_missing_file_is_noticed(tmp_path: Path, file: str) -> None:
    folder = save(tmp_path, 1)
    (folder / file).unlink()
    with pytest.raises(BadInput, match="damaged"):
        checkpoint.load(folder)


def test_another_format_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    (folder / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(BadInput, match="its format is 99, not one of 1, 2"):
        checkpoint.load(folder)


def test_the_newest_and_every_mth_are_kept(tmp_path: Path) -> None:
    for update in range(10, 110, 10):
        save(tmp_path, update)
        checkpoint.prune(tmp_path, keep=2, keep_every=40)
    assert checkpoint.updates(tmp_path) == [40, 80, 90, 100]


def test_an_unfinished_checkpoint_is_none(tmp_path: Path) -> None:
    save(tmp_path, 1)
    checkpoint.path(tmp_path, 2).with_name(".000000002.unfinished").mkdir()
    assert checkpoint.updates(tmp_path) == [1]
    save(tmp_path, 2)  # what a kill left behind is no obstacle
    assert checkpoint.updates(tmp_path) == [1, 2]


def test_abandoned_checkpoints_are_set_aside_not_deleted(tmp_path: Path) -> None:
    for update in (1, 2, 3):
        save(tmp_path, update)
    checkpoint.abandon(tmp_path, after=1)
    assert checkpoint.updates(tmp_path) == [1]
    assert len(list((tmp_path / "checkpoints").glob("*.abandoned"))) == 2


def test_a_failed_write_does_not_change_earlier_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(BadInput, match="000000002: No space left on device"):
        save(tmp_path, 2)
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["000000001"]
