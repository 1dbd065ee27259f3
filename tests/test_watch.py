import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import small_digits
from rich.console import Console
from torch import Tensor

from ebmlife.runs import build, logging, progress
from ebmlife.training.chains import BurnIn, Chains
from ebmlife.training.ebm import EBMMetrics


def metrics(update: int, data_seconds: float = 0.0) -> EBMMetrics:
    return EBMMetrics(
        update=update,
        energy_difference=-1.5,
        energy_data=0.5,
        energy_samples=2.0,
        gradient=float(update),
        generator_loss=None,
        data_seconds=data_seconds,
    )


@pytest.fixture(scope="module")
def chains() -> Chains:
    trainer = build.training(small_digits()).trainer
    trainer.step()
    return trainer.chains


def test_the_log_holds_the_metrics_the_speed_and_the_ages(tmp_path: Path, chains: Chains) -> None:
    log = logging.Log(tmp_path / "log.jsonl", chains, after=0)
    for update in (1, 2):
        log(metrics(update))
    lines = logging.read_log(tmp_path / "log.jsonl")  # before it is closed: a run is read while it trains
    log.close()
    assert [line["update"] for line in lines] == [1, 2]
    assert lines[0]["energy_difference"] == -1.5
    assert lines[0]["generator_loss"] is None
    assert lines[1]["gradient"] == 2
    assert lines[0]["updates_per_second"] > 0
    assert lines[0]["age_mean"] == 8 / 20  # one batch of 8 from a bank of 20
    assert lines[0]["age_max"] == 1


def test_a_log_that_goes_on_drops_what_is_done_again_and_a_torn_line(tmp_path: Path, chains: Chains) -> None:
    file = tmp_path / "log.jsonl"
    lines = [json.dumps({"update": update, "gradient": 0.1}) for update in (1, 2, 3, 4)]
    file.write_text("\n".join([*lines, '{"update": 5, "grad']))
    log = logging.Log(file, chains, after=2)
    assert [line["update"] for line in logging.read_log(file)] == [1, 2]
    log(metrics(3))
    log.close()
    assert [line["update"] for line in logging.read_log(file)] == [1, 2, 3]
    assert file.read_text().splitlines()[:2] == lines[:2]
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_reading_a_log_leaves_out_a_torn_last_line(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"update": 1}\n{"update": 2}\n{"upda')
    assert logging.read_log(file) == [{"update": 1}, {"update": 2}]
    file.write_text("")
    assert logging.read_log(file) == []


def test_ages_are_of_the_bank_if_there_is_one(chains: Chains) -> None:
    assert logging.ages(chains) == {"age_mean": 0.4, "age_max": 1.0}
    fresh = build.training(small_digits(chains__kind="fresh")).trainer.chains
    assert logging.ages(fresh) == {}


def test_a_starving_loader_is_seen(tmp_path: Path, chains: Chains, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each update takes a second, of which it waits 0.6 for its data."""
    console, now = Console(file=StringIO(), width=120), [0.0]
    for module in (logging, progress):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    log = logging.Log(tmp_path / "log.jsonl", chains, after=0)
    with progress.ProgressDisplay("update", console=console) as display:
        shown = progress.TrainingProgress(display, updates=60)
        for update in range(1, 61):
            now[0] += 1.0
            log(metrics(update, data_seconds=0.6))
            shown(metrics(update, data_seconds=0.6))
    log.close()
    assert {line["data_seconds"] for line in logging.read_log(tmp_path / "log.jsonl")} == {0.6}
    assert isinstance(console.file, StringIO)
    last = console.file.getvalue().splitlines()[-1]
    assert last.startswith("update: 60/60, 100%, 0:01:00 elapsed, 0:00:00 left")
    assert last.endswith("energy difference -1.500, 1.0/s, 60% waiting for data")


def test_pictures_are_drawn_at_their_interval_only(tmp_path: Path, chains: Chains) -> None:
    drawn: list[str] = []

    def source(name: str) -> Tensor:
        drawn.append(name)
        return torch.zeros(4, 1, 8, 8)

    log = logging.Log(tmp_path / "log.jsonl", chains, after=0)
    sources = {name: lambda name=name: source(name) for name in ("samples", "bank")}
    look = logging.Pictures(tmp_path, sources, chains, every=3)
    for update in (1, 2):
        log(metrics(update))
        look(metrics(update))
    assert drawn == []
    for update in range(3, 8):
        log(metrics(update))
        look(metrics(update))
    log.close()
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == [f"{name}-{update:09d}.png" for name in ("bank", "samples") for update in (3, 6)]
    assert (tmp_path / "diagnostics.png").exists()
    assert not (tmp_path / "burn-in.png").exists()  # these chains have none


def test_there_is_no_diagnostic_plot_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    assert not logging.draw_diagnostics(tmp_path).exists()


def test_tensorboard_gets_every_nth_update(tmp_path: Path, chains: Chains) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = logging.Board(tmp_path, chains, every=5, after=0)
    for update in range(1, 13):
        board(metrics(update))
    board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("gradient")] == [(5, 5.0), (10, 10.0)]
    assert "generator_loss" not in events.Tags()["scalars"]
    assert {"updates_per_second", "age_mean", "age_max"} <= set(events.Tags()["scalars"])


def test_burn_in_counts_and_arrivals_are_logged(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fields = {"chains__kind": "maturing", "chains__size": "20", "chains__burn_in_size": "16", "chains__mature": "4"}
    trainer = build.training(small_digits(**fields)).trainer
    burning_in = trainer.chains
    assert isinstance(burning_in, BurnIn)
    log = logging.Log(tmp_path / "log.jsonl", burning_in, after=0)
    board = logging.Board(tmp_path / "board", burning_in, every=1, after=0)
    look = logging.Pictures(tmp_path, {}, burning_in, every=10)
    trainer.fit(20, after=[log, board, look])
    for file in (log, board):
        file.close()
    lines = logging.read_log(tmp_path / "log.jsonl")
    arrived = [line["arrived"] for line in lines]
    assert arrived == sorted(arrived)
    assert arrived[-1] == burning_in.arrived > 0
    assert lines[-1]["burn_in_age_mean"] == pytest.approx(burning_in.burn_in.age.double().mean().item(), abs=1e-3)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    counted = events.Histograms("burn_in_age")[-1].histogram_value
    assert counted.num == 16
    assert counted.sum == burning_in.burn_in.age.sum()
    assert (tmp_path / "burn-in.png").stat().st_size > 0


GOOD = [{"update": n, "energy_difference": 0.5, "gradient": float(n)} for n in range(1, 7)]


@pytest.mark.parametrize(
    "bad",
    [
        *(
            b"{",
            b"[]",
            b"3",
            b"null",
            b"{}",
            b'{"update": 3.5}',
            b'{"update": true}',
            b'{"update": "3"}',
            b"\xff\x00\x80",
        ),
        *(b'{"update": -3}', b'{"update": 3, "gradient": "high"}', b'{"update": 3, "gradient": [1]}', b"[" * 100_000),
        b'{"update": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_damaged_line_hides_no_other(bad: bytes, tmp_path: Path, chains: Chains) -> None:
    """It is kept aside, and said; only a last line that was cut off is dropped."""
    file, texts = tmp_path / "log.jsonl", [json.dumps(line).encode() for line in GOOD]
    file.write_bytes(b"\n".join([*texts[:2], bad, *texts[3:], b'{"update": 7, "gra']))
    kept = [GOOD[n] for n in (0, 1, 3, 4, 5)]
    assert logging.read_log(file) == kept
    logging.draw_diagnostics(tmp_path)
    log = logging.Log(file, chains, after=5)
    log.close()
    assert log.damaged == 1
    assert logging.read_log(file) == kept[:4]
    assert (tmp_path / logging.DAMAGED_LOG).read_bytes() == bad + b"\n"
    log = logging.Log(file, chains, after=5)
    log.close()
    assert log.damaged == 0


def test_of_two_lines_for_an_update_the_later_one_holds(tmp_path: Path, chains: Chains) -> None:
    file, again = tmp_path / "log.jsonl", {"update": 2, "gradient": 9.0}
    file.write_text("".join(json.dumps(line) + "\n" for line in [*GOOD[:3], again]))
    assert logging.read_log(file) == [GOOD[0], again, GOOD[2]]
    logging.draw_diagnostics(tmp_path)  # one line lacks a figure
    log = logging.Log(file, chains, after=3)
    log.close()
    assert log.damaged == 1
    assert json.loads((tmp_path / logging.DAMAGED_LOG).read_text()) == GOOD[1]
