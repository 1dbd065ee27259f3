"""The log, TensorBoard entries and pictures of a run while it trains.

Each writer is called with the report of every update. None draws from the run's random streams, so that logging never
changes what a run learns.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ebmlife.plots import charts, pictures
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write
from ebmlife.training.base import Report
from ebmlife.training.chains import Chains, WithBurnIn

DAMAGED_LOG = "log.damaged.jsonl"  # beside log.jsonl
TIMES = ("updates_per_second", "data_seconds")  # fields of the log that differ between equal runs


class Speed:
    """Updates per second, over the last seconds."""

    def __init__(self) -> None:
        self._then, self._since, self._rate = time.monotonic(), 0, 0.0

    def __call__(self) -> float:
        self._since += 1
        elapsed = time.monotonic() - self._then
        if elapsed > 2 or not self._rate:
            self._rate = self._since / max(elapsed, 1e-9)
            self._then, self._since = time.monotonic(), 0
        return self._rate


class Log:
    """log.jsonl: one line of metrics per update."""

    def __init__(self, file: Path, chains: Chains | None, *, after: int) -> None:
        """Keeps the lines of updates up to `after`; later updates are made again.

        Lines that cannot be read, or appear twice, are moved to log.damaged.jsonl; `damaged` is their number.
        """
        lines, bad = _scan(file)
        self.damaged = len(bad)
        if bad:
            aside = file.with_name(DAMAGED_LOG)
            before = regular.read(aside) if aside.exists() else b""
            with atomic_write(aside) as unfinished:
                unfinished.write_bytes(before + b"".join(line + b"\n" for line in bad))
        with atomic_write(file) as unfinished:
            kept = (line for update, line in lines.items() if update <= after)
            unfinished.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self._stream = file.open("a", buffering=1)
        self._chains, self._speed = chains, Speed()

    def __call__(self, report: Report) -> None:
        self._stream.write(json.dumps(record(report, self._chains, self._speed())) + "\n")

    def close(self) -> None:
        self._stream.close()


def read_log(file: Path) -> list[dict[str, Any]]:
    """Returns the lines of a log, ordered by update, without those that cannot be read."""
    return list(_scan(file)[0].values())


def shows_updates(file: Path) -> bool:
    """Whether the log has any line, readable or not."""
    return os.path.lexists(file) and bool(regular.read(file).strip())


def _scan(file: Path) -> tuple[dict[int, dict[str, Any]], list[bytes]]:
    """Returns lines by update, and damaged lines. A last line that a kill cut off is neither.

    If an update has several lines, the last one is kept: updates that are made again are logged again.
    """
    lines: dict[int, dict[str, Any]] = {}
    bad: list[bytes] = []
    texts = (
        regular.read(file).split(b"\n") if os.path.lexists(file) else []
    )  # a broken link is an error, not an empty log
    for number, text in enumerate(texts, 1):
        line = _parsed(text)
        if line is None:
            bad += [text] if text.strip() and number < len(texts) else []
            continue
        if line["update"] in lines:
            bad.append(json.dumps(lines.pop(line["update"])).encode())
        lines[line["update"]] = line
    return dict(sorted(lines.items())), bad


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Returns the metrics in a line of the log; None if it is anything else."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("update")) is not int or line["update"] < 1:
        return None
    return line if all(map(_is_number, line.values())) else None


def _is_number(value: Any) -> bool:
    """Whether it is a number, NaN included, or None, for a metric that does not apply to an update."""
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)


def record(report: Report, chains: Chains | None, speed: float) -> dict[str, Any]:
    """Returns the line of the log for an update."""
    times = {"data_seconds": round(report.data_seconds, 6), "updates_per_second": round(speed, 3)}
    return asdict(report) | times | ages(chains)


def ages(chains: Chains | None) -> dict[str, float]:
    """Returns how often the states of the banks have been updated since their initialization, as mean and maximum."""
    if chains is None or chains.bank is None:
        return {}
    age = chains.bank.age.double()
    seen = {"age_mean": round(age.mean().item(), 3), "age_max": age.max().item()}
    burn_in = _with_burn_in(chains)
    if burn_in is not None:
        seen |= {"burn_in_age_mean": round(burn_in.burn_in.age.double().mean().item(), 3), "arrived": burn_in.arrived}
    return seen


def _with_burn_in(chains: object) -> WithBurnIn | None:
    return chains if isinstance(chains, WithBurnIn) else None


class Board:
    """TensorBoard."""

    def __init__(self, folder: Path, chains: Chains | None, *, every: int, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        self._before = threading.excepthook
        threading.excepthook = self._failed
        self._writer = SummaryWriter(folder, purge_step=after + 1)
        self._chains, self._speed, self._every = chains, Speed(), every

    def __call__(self, report: Report) -> None:
        speed = self._speed()
        if report.update % self._every == 0:
            for name, value in record(report, self._chains, speed).items():
                if name != "update" and value is not None:
                    self._writer.add_scalar(name, value, report.update)
            burn_in = _with_burn_in(self._chains)
            if burn_in is not None:
                self._writer.add_histogram("burn_in_age", burn_in.burn_in.age, report.update)

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            threading.excepthook = self._before

    def _failed(self, found: threading.ExceptHookArgs) -> None:
        """Does not print an OSError of TensorBoard's thread: the next call of the writer raises it again."""
        if not isinstance(found.exc_value, OSError):
            self._before(found)


class Pictures:
    """pictures/: grids of new samples, of the bank and of the generator, and the diagnostic plot, at intervals.

    With a burn-in bank, also burn-in.png.
    """

    def __init__(
        self, run: Path, sources: dict[str, Callable[[], Tensor]], chains: Chains | None, *, every: int
    ) -> None:
        self._run, self._sources, self._chains, self._every = run, sources, chains, every

    def __call__(self, report: Report) -> None:
        if report.update % self._every == 0:
            self.draw(report.update)

    def draw(self, update: int) -> None:
        """Draws all pictures for an update."""
        self._run.stat()  # a folder that has been removed must not be created again
        for name, source in self._sources.items():
            pictures.save(self._run / "pictures" / f"{name}-{update:09d}.png", pictures.draw(source()))
        draw_diagnostics(self._run)
        chains = _with_burn_in(self._chains)
        if chains is not None:
            _draw_burn_in(self._run, chains)


def draw_diagnostics(run: Path) -> Path:
    """Draws diagnostics.png: the paper's plot if energies and chains are logged, else a curve of every metric."""
    lines = read_log(run / "log.jsonl")
    file = run / "diagnostics.png"
    if lines and {"energy_difference", "gradient"} <= lines[0].keys():
        pictures.save(file, charts.diagnostics(_column(lines, "energy_difference"), _column(lines, "gradient")))
    elif lines:
        columns = {name: _points(lines, name) for name in lines[0] if name not in ("update", *TIMES)}
        pictures.save(file, charts.progress({name: points for name, points in columns.items() if points}))
    return file


def _draw_burn_in(run: Path, chains: WithBurnIn) -> None:
    arrived = {line["update"]: line["arrived"] for line in read_log(run / "log.jsonl") if "arrived" in line}
    picture = charts.burn_in(chains.burn_in.age.cpu().numpy(), arrived, mature=chains.mature)
    pictures.save(run / "burn-in.png", picture)


def _column(lines: list[dict[str, Any]], name: str) -> NDArray[np.float64]:
    """Returns the values of a metric by line, with NaN for missing ones."""
    return np.array([line.get(name) for line in lines], dtype=np.float64)


def _points(lines: list[dict[str, Any]], name: str) -> dict[int, float]:
    return {line["update"]: line[name] for line in lines if line.get(name) is not None}
