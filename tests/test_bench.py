import json
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ebmlife import bench, langevin, prepare
from ebmlife.bench import measuring, writing
from ebmlife.bench.cases import FOLDED, PLAIN, STEP_SIZE, TEMPERATURE, Case, contestants, plain_energy, plain_walk
from ebmlife.bench.measuring import flops

TINY = Case("tiny", 8, 4, channels=1, batch=16)


def test_all_walk_the_same_way() -> None:
    net, x = TINY.net(), torch.linspace(-1, 1, 16 * 64).view(16, 1, 8, 8)
    printed = plain_walk(lambda x: plain_energy(net)(x) / TEMPERATURE, x, 5, noise=torch.zeros_like)
    energy = prepare(net, temperature=TEMPERATURE)
    ours, _ = langevin(energy, x, steps=5, step_size=STEP_SIZE, noise=torch.zeros_like)
    torch.testing.assert_close(ours, printed)
    assert {PLAIN, FOLDED} <= contestants(TINY).keys()


def test_folded_operations_are_counted() -> None:
    """By hand, for 8x8 and width 4: products of each layer, twice for multiply and add, twice for both passes."""
    first = 9 * 4 * 64 + 16 * 4 * 4 * 16 + 4 * 16
    others = 4 * 9 * 4 * 4 * 16
    assert flops(TINY) == 4 * (first + others + 4)


def test_it_writes_a_table_a_record_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CASES", (TINY,))
    for module in (measuring, writing):
        monkeypatch.setattr(module, "matrix_rate", lambda *_: 1e9)
    console = Console(file=StringIO(), width=120)
    bench.bench(tmp_path / "out", console, rounds=2, seconds=0.001)
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    ratios = {entry["contestant"]: entry["ratio"] for entry in record["results"][0]["measured"]}
    assert ratios[PLAIN] == 1
    assert "| tiny | 16 | plain PyTorch | 1.00 |" in (tmp_path / "out" / "bench.md").read_text()
    assert record["growth"].keys() == {"steps", "batch", "width", "size", "bank"}
    assert (tmp_path / "out" / "bench.png").stat().st_size > 1000
    assert "plain PyTorch" in console.file.getvalue()  # type: ignore[attr-defined]
