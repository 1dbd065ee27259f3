"""How fast Langevin is on this machine, compared with the plain PyTorch loop, a peer, and the machine's own limit.

All contestants of a case run in one process, in turns, for several rounds. A ratio is the median over rounds of the
ratio within each round, so that a machine that slows down affects all contestants alike. Quote ratios, never times.
"""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ebmlife.bench import writing
from ebmlife.bench.cases import CASES, SMOOTH, contestants, update_contestants
from ebmlife.bench.measuring import flops, growth, measure
from ebmlife.errors import shown
from ebmlife.runs.progress import ProgressDisplay


def bench(folder: Path, console: Console, *, rounds: int = 5, seconds: float = 0.5) -> None:
    """Measures all cases, prints them, and writes a record, a table and a plot.

    Args:
        folder: Where to write `bench.json`, `bench.md` and `bench.png`.
        console: Where to print the table.
        rounds: How often each contestant of a case is measured.
        seconds: About how long one measurement takes.
    """
    updates = [
        replace(case, name=f"whole update, {case.name}") for case in CASES if case.width <= 64 and case.batch == 64
    ]
    cases = [*CASES, *SMOOTH, *updates]
    results = []
    with ProgressDisplay("cases", console=console) as display:
        for i, case in enumerate(cases):
            display.advance(i, len(cases), case.name)
            # Chains in use have tens of steps and trainings have thousands of updates: what happens once per chain or
            # per training must not count as if it happened at every step.
            if case in updates:
                result = measure(case, update_contestants(case), rounds=rounds, seconds=seconds, fewest=3)
            else:
                walks, operations = contestants(case), flops(case)
                result = measure(case, walks, rounds=rounds, seconds=seconds, fewest=5, operations=operations)
            results.append(result)
        display.advance(len(cases), len(cases), "growth of the cost")
        grown = growth(CASES[0])
    writing.show(console, results, grown)
    files = writing.write(folder, results, grown)
    console.print(f"written: {', '.join(map(shown, files))}", markup=False, highlight=False, soft_wrap=True)
