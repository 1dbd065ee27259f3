"""How fast Langevin is on this machine, beside the plain loop, a peer, and the machine's own limit.

All contestants of a case run in one process, in turns, for several rounds; ratios are medians over the rounds of
ratios within a round, so that a machine that slows down slows all alike. No time is worth quoting, ratios are.
"""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ebmlife.bench import writing
from ebmlife.bench.measuring import flops, growth, measure
from ebmlife.bench.rivals import CASES, contestants, update_contestants
from ebmlife.errors import shown


def bench(folder: Path, console: Console, *, rounds: int = 5, seconds: float = 0.5) -> None:
    """Measures all cases, shows them, and writes a record, a table and a plot into the folder."""
    results = []
    updates = [replace(case, name=f"whole update, {case.name}") for case in CASES if case.width <= 64]
    for case in (*CASES, *updates):
        # Walks in use are tens of steps long: what is done once a walk must not weigh as if it were done each step;
        # and updates come by the thousand.
        if case in updates:
            result = measure(case, update_contestants(case), rounds=rounds, seconds=seconds, fewest=3)
        else:
            walks, operations = contestants(case), flops(case)
            result = measure(case, walks, rounds=rounds, seconds=seconds, fewest=5, operations=operations)
        results.append(result)
        console.print(f"{case.name}: done", highlight=False)
    grown = growth(CASES[0])
    writing.show(console, results, grown)
    files = writing.write(folder, results, grown)
    console.print(f"written: {', '.join(map(shown, files))}", markup=False, highlight=False, soft_wrap=True)
