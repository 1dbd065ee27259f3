"""Tables of the results pages, written by the commands that measure them."""

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from ebmlife.storage.atomic import atomic_write

RESULTS = Path(__file__).parent.parent / "docs" / "results"
T_95 = 4.303  # Student's t with 2 degrees of freedom: a 95 % interval over three seeds


def interval(values: Sequence[float], *, digits: int) -> str:
    """Mean and 95 % interval over three seeds."""
    if len(values) != 3:
        raise ValueError(f"the interval is defined for three seeds, got {len(values)}")
    half = T_95 * statistics.stdev(values) / math.sqrt(3)
    return f"{statistics.mean(values):.{digits}f} ± {half:.{digits}f}"


def line(cells: Iterable[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def table(head: Sequence[str], rows: Iterable[str | Iterable[str]]) -> str:
    """A Markdown table; rows are cells or finished lines. The empty string if there are no rows."""
    lines = [row if isinstance(row, str) else line(row) for row in rows]
    return "\n".join([line(head), "|---" * len(head) + "|", *lines]) if lines else ""


def rows(page: Path, name: str) -> dict[str, str]:
    """The lines of the table that is on the page, by their first cells, so that rows measured elsewhere stay."""
    _, rest = page.read_text().split(f"<!-- {name} -->\n")
    lines = [line for line in rest.split("<!-- end -->", 1)[0].splitlines() if line.startswith("| ")]
    same_layout = [line for line in lines[1:] if line.count(" | ") == lines[0].count(" | ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in same_layout}


def replace(page: Path, name: str, text: str) -> None:
    """Puts `text` between `<!-- NAME -->` and the next `<!-- end -->` of a page."""
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, rest = page.read_text().split(begin)
    with atomic_write(page) as unfinished:
        unfinished.write_text(f"{before}{begin}{text.rstrip()}\n{end}{rest.split(end, 1)[1]}")
