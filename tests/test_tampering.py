"""Checkpoints whose checksums are right and whose contents are not: refused in one line, or no different."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import small_digits
from rich.console import Console
from test_run import tensors
from torch import Tensor
from torture.tampering import Change, tampered

from ebmlife import attacks
from ebmlife.attacks.record import Record
from ebmlife.errors import BadInput
from ebmlife.runs import build, logging, run
from ebmlife.sampling.long_run import Snapshots, long_walk
from ebmlife.storage import checkpoint

QUIET = Console(quiet=True)
CASES = 150  # of thousands, for each kind of checkpoint
LONGRUN = {"generator__optimizer": "none", "chains__kind": "maturing", "chains__size": "20"}
LONGRUN |= {"chains__burn_in_size": "20", "chains__mature": "3"}


def chosen(folder: Path, seed: int = 0) -> list[tuple[str, Change]]:
    every = list(tampered(folder))
    return random.Random(seed).sample(every, min(CASES, len(every)))


def assert_refused_or_alike(
    folder: Path,
    within: str,
    use: Callable[[Path], dict[str, Tensor]],
    place: Path,
    cases: list[tuple[str, Change]],
    allowed: tuple[str, ...] = (),
) -> None:
    """Each of the changes, made to the checkpoint `within` a copy of the folder, is a BadInput of one line in `use`, or
    leaves what it gives as it is. Those whose names begin as `allowed` may also give something else."""
    right, wrong, refused = use(shutil.copytree(folder, place / "right")), [], 0
    for number, (name, change) in enumerate(cases):
        copy = Path(shutil.copytree(folder, place / str(number)))
        change(copy / within)
        try:
            found = use(copy)
        except BadInput as error:
            refused += 1
            wrong += [f"{name}: {error}"] if "\n" in str(error) or str(place) not in str(error) else []
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        else:
            same = found.keys() == right.keys() and all(torch.equal(found[key], right[key]) for key in right)
            if not same and not name.startswith(allowed):
                wrong.append(f"{name}: accepted, and different")
        shutil.rmtree(copy)
    assert not wrong, "\n".join(wrong)
    assert refused > len(cases) / 4


@pytest.mark.parametrize("changes", [{}, LONGRUN, {"optimizer__kind": "sgd"}], ids=["hybrid", "longrun", "sgd"])
def test_a_tampered_run(changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.begin(small_digits(updates="2", **changes), tmp_path / "run", console=QUIET)
    monkeypatch.setattr(run, "watchers", lambda *_: [])  # boards and pictures take longer than the rest
    monkeypatch.setattr(logging.Pictures, "draw", lambda *_: None)

    def use(folder: Path) -> dict[str, Tensor]:
        run.resume(folder, change=lambda recipe: recipe.model_copy(update={"updates": 3}), console=QUIET)
        return tensors(folder)

    place = checkpoint.path(tmp_path / "run", 2)
    within = str(place.relative_to(tmp_path / "run"))
    assert_refused_or_alike(tmp_path / "run", within, use, tmp_path, chosen(place))


def test_a_tampered_model(tmp_path: Path) -> None:
    run.begin(small_digits(updates="2"), tmp_path / "run", console=QUIET)
    place = checkpoint.path(tmp_path / "run", 2)

    def use(folder: Path) -> dict[str, Tensor]:
        return {"samples": build.load(folder).sample(2, steps=1)}

    cases = [(name, change) for name, change in tampered(place) if not name.startswith("tensor") or "/ema/" in name]
    within, sampled = str(place.relative_to(tmp_path / "run")), random.Random(0).sample(cases, CASES)
    # A valid recipe with other values is that of another model: nothing here says which was meant.
    assert_refused_or_alike(tmp_path / "run", within, use, tmp_path, sampled, allowed=("state recipe/",))


def _energy(x: Tensor) -> Tensor:
    return x.square().sum(1) / 2


def test_a_tampered_walk(tmp_path: Path) -> None:
    def walk(folder: Path, steps: int = 200) -> dict[str, Tensor]:
        shots, x = Snapshots([0, 50, 150], chains=2), torch.ones(6, 2)
        options: dict[str, Any] = {"step_size": 0.1, "watchers": [shots], "batch": 4, "folder": folder}
        return {"x": long_walk(_energy, x, steps=steps, **options)[0], "seen": torch.stack(shots.states)}

    walk(tmp_path / "walk", 100)
    cases = chosen(checkpoint.path(tmp_path / "walk", 100))
    assert_refused_or_alike(tmp_path / "walk", "checkpoints/000000100", walk, tmp_path, cases)


class _Linear(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.flatten(1).sum(1), -x.flatten(1).sum(1)], 1)


def test_a_tampered_record_of_an_attack(tmp_path: Path) -> None:
    x = torch.linspace(-0.5, 0.5, 12).view(6, 1, 1, 2)
    attacks.evaluate(_Linear(), x, torch.zeros(6).long(), threat="linf:8/255", steps=2, folder=tmp_path / "attack")
    place = tmp_path / "attack" / "record"

    def use(folder: Path) -> dict[str, Tensor]:
        record = Record.load(folder)
        str(record)
        return {name: torch.as_tensor(value) for name, value in record.tally.state_dict().items()}

    assert_refused_or_alike(tmp_path / "attack", "record", use, tmp_path, chosen(place), allowed=("state settings",))


def test_a_damaged_part_of_an_attack_is_set_aside_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.linspace(-0.5, 0.5, 12).view(6, 1, 1, 2)
    options: dict[str, Any] = {"threat": "linf:8/255", "steps": 2, "group": 2, "save_every": 0}
    right = attacks.evaluate(_Linear(), x, torch.zeros(6).long(), **options)
    monkeypatch.setattr("ebmlife.attacks.workspace.Storage.finish", _killed)
    with pytest.raises(MemoryError):
        attacks.evaluate(_Linear(), x, torch.zeros(6).long(), folder=tmp_path / "a", **options)
    part = tmp_path / "a" / "parts" / "000001"
    (part / "state.json").write_text("{}")
    monkeypatch.undo()
    found = attacks.evaluate(_Linear(), x, torch.zeros(6).long(), folder=tmp_path / "a", **options)
    assert "000001.damaged" in caplog.text
    assert torch.equal(found.tally.adversaries, right.tally.adversaries)


def _killed(*_: object) -> None:
    raise MemoryError
