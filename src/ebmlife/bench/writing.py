"""Writes the results of the benchmark as a table, a record and a plot."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ebmlife.bench.measuring import Growth, Result, matrix_rate
from ebmlife.plots import charts, pictures
from ebmlife.runs.machine import processor
from ebmlife.sampling.fast import has_bf16
from ebmlife.storage.atomic import atomic_write

_COLUMNS = ("case", "batch", "contestant", "x plain", "rounds", "of f32", "of bf16", "noise")


def rows(results: list[Result]) -> Iterator[list[str]]:
    """Yields the rows of the table, with the fastest contestant of a case first."""
    for result in results:
        for entry in sorted(result.measured, key=lambda entry: -entry.ratio):
            yield [
                result.case.name,
                str(result.case.batch),
                entry.contestant,
                f"{entry.ratio:.2f}",
                f"{entry.low:.2f} to {entry.high:.2f}",
                *("" if share is None else f"{share:.0%}" for share in (entry.share_of_limit, entry.share_of_bf16)),
                f"{result.noise:.0%}",
            ]


def show(console: Console, results: list[Result], grown: Growth) -> None:
    """Prints the table and the growth of the cost."""
    table = Table(*_COLUMNS)
    for row in rows(results):
        table.add_row(*row)
    console.print(table)
    for line in _lines(grown):
        console.print(line, highlight=False)


def write(folder: Path, results: list[Result], grown: Growth) -> list[Path]:
    """Writes bench.json, bench.md and bench.png, and returns their paths."""
    name, features = processor()
    machine = {
        "processor": name,
        "features": " ".join(sorted(features)),
        "date": datetime.now(UTC).date().isoformat(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "bf16": has_bf16(torch.device("cpu")),
        "f32 matrix product, GFLOP/s": round(matrix_rate() / 1e9),
        "bf16 matrix product, GFLOP/s": round(matrix_rate(torch.bfloat16) / 1e9, 1),
    }
    record = {"machine": machine, "results": [asdict(result) for result in results], "growth": grown}
    files = [folder / f"bench.{ending}" for ending in ("json", "md", "png")]
    with atomic_write(files[0]) as unfinished:
        unfinished.write_text(json.dumps(record, indent=2))
    with atomic_write(files[1]) as unfinished:
        unfinished.write_text(_markdown(machine, results, grown))
    ratios = {r.case.name: {m.contestant: m.ratio for m in r.measured} for r in results}
    pictures.save(files[2], charts.bars(ratios, title="image-steps per second, relative to the plain PyTorch loop"))
    return files


def _markdown(machine: dict[str, object], results: list[Result], grown: Growth) -> str:
    lines = ["; ".join(f"{name}: {value}" for name, value in machine.items()) + ".", ""]
    lines += [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    lines += [f"| {' | '.join(row)} |" for row in rows(results)]
    return "\n".join([*lines, "", *(f"- {line}" for line in _lines(grown))]) + "\n"


def _lines(grown: Growth) -> Iterator[str]:
    for name, costs in grown.items():
        yield f"cost over {name}, relative: " + ", ".join(f"{n}: {value:.2f}" for n, value in costs.items())
