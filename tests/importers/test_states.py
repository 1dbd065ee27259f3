"""Expected outputs were computed with torch-mimicry 0.1.16 and pytorch-pretrained-biggan 0.1.1 on these state dicts."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ebmlife.errors import BadInput
from ebmlife.sharing.importers import load_biggan_deep, load_mimicry
from ebmlife.sharing.importers.states import read_state_dict

from . import foreign
from .test_authors import generated, some

MIMICRY = {
    32: [0.06803, -0.37176, -0.21095, 0.03368, 0.06139, 0.09176, 0.04347, -0.44689],
    64: [-0.45794, 0.2292, -0.39933, 0.69354, -0.98816, 0.39674, -0.37194, 0.25731],
    128: [-0.96265, -0.4771, 0.9655, -0.99999, -0.97938, -1.0, -0.69695, -0.03255],
}
BIGGAN_DEEP = {  # by size and truncation
    (128, 1.0): [0.34287, 0.02998, 0.57176, 0.56938, 0.26567, 0.45566, -0.13022, 0.0356],
    (128, 0.4): [0.36749, -0.00849, 0.31791, 0.4951, 0.30122, 0.2318, -0.13068, 0.04297],
    (256, 1.0): [0.39596, 0.04394, 0.62755, 0.04835, -0.0833, 0.22721, -0.0214, -0.05261],
    (256, 0.4): [0.33546, -0.09323, 0.50255, 0.09813, -0.16153, 0.18281, 0.05185, -0.10883],
}


def mimicry_state(size: int) -> dict[str, torch.Tensor]:
    arrays = foreign.filled(foreign.mimicry_generator(size, 8 if size == 32 else 32))
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def saved(folder: Path, state: dict[str, torch.Tensor], *, form: str) -> Path:
    if form == "safetensors":
        save_file(state, folder / "x.safetensors")
        return folder / "x.safetensors"
    trained = {"model_state_dict": state, "optimizer_state_dict": None, "global_step": 100_000}
    torch.save(trained if form == "training" else state, folder / "x.pth")
    return folder / "x.pth"


@pytest.mark.parametrize("size", MIMICRY)
@pytest.mark.parametrize("form", ["safetensors", "training", "weights"])
def test_mimicry(size: int, form: str, tmp_path: Path) -> None:
    """The epsilon of their batch norm is another, which would show in the third digit."""
    net = load_mimicry(saved(tmp_path, mimicry_state(size), form=form), net=f"gen-sngan{size}")
    assert some(generated(net)) == pytest.approx(MIMICRY[size], abs=1e-4)


@pytest.mark.parametrize(("size", "truncation"), BIGGAN_DEEP)
def test_biggan_deep(size: int, truncation: float, tmp_path: Path) -> None:
    state = foreign.with_singular_vectors(foreign.filled(foreign.biggan_deep(size, 8)))
    net = load_biggan_deep(saved(tmp_path, state, form="weights"), net=f"gen-biggan{size}")
    net.truncation = truncation
    assert some(generated(net)) == pytest.approx(BIGGAN_DEEP[size, truncation], abs=1e-4)


def test_the_other_one_s_weights(tmp_path: Path) -> None:
    file = saved(tmp_path, mimicry_state(32), form="weights")
    with pytest.raises(BadInput, match=r"is not gen-sngan64: it has no tensor 'c6\.weight'; it looks like gen-sngan32"):
        load_mimicry(file, net="gen-sngan64")
    with pytest.raises(BadInput, match=r"is not gen-biggan128: it has no tensor 'embeddings\.weight'"):
        load_biggan_deep(file, net="gen-biggan128")


class Harmful:
    def __reduce__(self) -> tuple:
        return print, ("this must not run",)


def test_a_file_that_would_run_something_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model_state_dict": Harmful()}, tmp_path / "x.pth")
    with pytest.raises(BadInput, match="cannot be read as weights"):
        read_state_dict(tmp_path / "x.pth")
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x.pth", "x.safetensors"])
@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(100)])
def test_damaged_files(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match="cannot be read as weights"):
        read_state_dict(tmp_path / name)


def test_files_without_tensors(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_state_dict(tmp_path / "x.pth")
    torch.save([1, 2], tmp_path / "x.pth")
    with pytest.raises(BadInput, match="holds no tensors by name"):
        read_state_dict(tmp_path / "x.pth")
