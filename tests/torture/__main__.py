"""python -m torture: runs the tests, prints a table and what failed, exits with 1 if anything did."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
os.environ |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")  # where nobody answers

from torture import calls, damages, disks, files_, hostile, kills, pages, rivals, tampers
from torture.cases import Case, Test, Verdict, judge
from torture.workshop import Workshop

TESTS: tuple[Test, ...] = (kills, damages, tampers, calls, files_, hostile, pages, disks, rivals)
_ROOT = Path(__file__).parent.parent.parent
_PAGE = _ROOT / "docs" / "reliability.md"


def main() -> int:
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="torture-"))
    found: dict[str, list[Verdict]] = {}
    try:
        workshop = Workshop(root)
        for test in TESTS:
            if not options.only or test.NAME in options.only:
                found[test.NAME] = _tried(test, workshop, options)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    failed = _report(found, options.seed)
    if options.write:
        _write(found)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    for test in TESTS:
        parser.add_argument(f"--{test.NAME}", type=int, default=test.DEFAULT, help="cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at once (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="TEST", choices=[test.NAME for test in TESTS])
    parser.add_argument("--case", metavar="TEST:INDEX", help="this one alone, as a failure names it")
    parser.add_argument("--write", action="store_true", help=f"the table to {_PAGE.parent.name}/{_PAGE.name}")
    options = parser.parse_args()
    if options.case:
        name, _, options.index = options.case.partition(":")
        options.only = [name]
    return options


def _tried(test: Test, workshop: Workshop, options: argparse.Namespace) -> list[Verdict]:
    """Verdicts of all cases, with a line for each that fails as it does."""
    first = int(options.index) if options.case else 0
    count = first + 1 if options.case else getattr(options, test.NAME)
    cases: list[Case] = list(test.cases(workshop, count, options.seed))
    began, verdicts = time.monotonic(), []
    for verdict in judge(cases, jobs=options.jobs, first=first):
        verdicts.append(verdict)
        if verdict.wrong:
            print(f"{test.NAME}:{verdict.index} {verdict.about}: {verdict.wrong}", flush=True)
    print(f"{test.NAME}: {len(verdicts)} cases in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return verdicts


def _report(found: dict[str, list[Verdict]], seed: int) -> int:
    print(_table(found))
    for reason in sorted({str(v.skipped) for verdicts in found.values() for v in verdicts if v.skipped}):
        print(f"skipped: {reason}")
    failed = [(name, v) for name, verdicts in found.items() for v in verdicts if v.wrong]
    if failed:
        name, verdict = failed[0]
        print(f"repeat one: python -m torture --seed {seed} --case {name}:{verdict.index}")
    return len(failed)


def _table(found: dict[str, list[Verdict]]) -> str:
    lines = ["| test | cases | held | failed |", "|---|---|---|---|"]
    for name, verdicts in found.items():
        failed = sum(v.wrong is not None for v in verdicts)
        skipped = sum(v.skipped is not None for v in verdicts)
        lines.append(f"| {name} | {len(verdicts) - skipped} | {len(verdicts) - skipped - failed} | {failed} |")
    return "\n".join(lines)


def _write(found: dict[str, list[Verdict]]) -> None:
    sys.path.insert(0, str(_ROOT / "results"))
    from tables import replace  # type: ignore[import-not-found]

    replace(_PAGE, "torture", _table(found))


if __name__ == "__main__":
    sys.exit(main())
