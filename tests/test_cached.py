"""What the cache holds is used as it was written, or made again."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ebmlife.data import webdataset
from ebmlife.exam import digits, reference
from ebmlife.storage import cache as kept_tensors

MADE = {"a": torch.arange(600.0).reshape(30, 20), "b": torch.tensor(7)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ebmlife"


def _half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _one_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-50] ^= 4
    file.write_bytes(data)


def _other_values(file: Path) -> None:
    """As tidy as a file can be, but for its checksum."""
    save_file({name: value + 1 for name, value in load_file(file).items()}, file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = [
    _half,
    _one_bit,
    _other_values,
    _folder,
    lambda file: file.write_bytes(b""),
    lambda file: file.write_bytes(b"<html>404</html>"),
    lambda file: file.write_bytes(b"\xff" * 8 + b"{" * 100),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_made_again(cache: Path, damage, capsys: pytest.CaptureFixture[str]) -> None:
    made = []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return MADE

    for _ in range(2):
        held = kept_tensors.tensors("deep/name", make)
        assert len(made) == 1
        assert all(torch.equal(held[name], MADE[name]) for name in MADE)
    damage(cache / "deep" / "name.safetensors")
    for _ in range(2):
        held = kept_tensors.tensors("deep/name", make)
        assert len(made) == 2
        assert all(torch.equal(held[name], MADE[name]) for name in MADE)
    assert capsys.readouterr().err.count("\n") <= 1


def test_a_cache_that_cannot_be_written_costs_no_result(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.parent.mkdir()
    cache.write_text("in the way")
    assert torch.equal(kept_tensors.tensors("name", lambda: MADE)["a"], MADE["a"])
    assert "nothing was cached: cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [_half, _one_bit])
def test_tar_indices_features_and_classifiers_are_made_again(cache: Path, tmp_path: Path, damage, monkeypatch) -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parent / "torture"))
    import bad_files

    (tmp_path / "a.tar").write_bytes(bad_files.archive())
    rows = torch.arange(2)
    trained = digits.DigitsClassifier()
    monkeypatch.setattr(digits, "_trained", lambda: trained)
    asked = {
        "tars": lambda: webdataset(shards=str(tmp_path / "a.tar"), size=4).take(rows),
        "features": lambda: reference.cached_features("features", lambda: MADE["a"]),
        "digits": lambda: digits.digits_classifier.__wrapped__().hidden.weight,
    }
    for ask in asked.values():
        before = ask()
        (file,) = cache.rglob("*.safetensors")
        damage(file)
        assert torch.equal(ask(), before)
        assert kept_tensors.find(str(file.relative_to(cache).with_suffix(""))) is not None
        file.unlink()
