"""`ebmlife bench`."""

import argparse
from pathlib import Path

from rich.console import Console

from ebmlife.bench import bench
from ebmlife.cli.parsing import Command
from ebmlife.errors import BadInput


def register(command: Command) -> None:
    speed = command(
        "bench",
        _bench,
        "measure how fast Langevin sampling is on this machine, relative to plain PyTorch",
        loads=False,
    )
    speed.add_argument(
        "--out", type=Path, default=Path("runs/bench"), help="Folder for the results (default: %(default)s)."
    )
    speed.add_argument("--rounds", type=int, default=5, help="Number of rounds (default: %(default)s).")
    speed.add_argument("--seconds", type=float, default=0.5, help="Seconds per measurement (default: %(default)s).")


def _bench(options: argparse.Namespace, changes: dict[str, str]) -> int:
    if options.rounds < 1 or not 0 < options.seconds < float("inf"):
        raise BadInput(
            f"bench needs --rounds of at least 1 and --seconds above 0, got {options.rounds}, {options.seconds}"
        )
    bench(options.out, Console(), rounds=options.rounds, seconds=options.seconds)
    return 0
