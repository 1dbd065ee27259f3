"""Pages whose tables are written by the commands that measure them."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from ebmlife.storage.atomic import atomic_write

RESULTS = Path(__file__).parent.parent / "docs" / "results"
T_95 = 4.303  # Student's t of 2 degrees of freedom, for a 95 % interval of three seeds


def interval(values: Sequence[float], *, digits: int) -> str:
    """Mean and 95 % interval over three seeds."""
    if len(values) != 3:
        raise ValueError(f"Student's t is known here of three seeds, not of {len(values)}")
    half = T_95 * statistics.stdev(values) / math.sqrt(3)
    return f"{statistics.mean(values):.{digits}f} ± {half:.{digits}f}"


def rows(page: Path, name: str) -> dict[str, str]:
    """The lines of the table that is there, by their first cells: what was measured elsewhere stays."""
    _, rest = page.read_text().split(f"<!-- {name} -->\n")
    lines = [line for line in rest.split("<!-- end -->", 1)[0].splitlines() if line.startswith("| ")]
    alike = [line for line in lines[1:] if line.count(" | ") == lines[0].count(" | ")]  # not of another layout
    return {line.split(" | ")[0].removeprefix("| "): line for line in alike}


def replace(page: Path, name: str, text: str) -> None:
    """Puts `text` between `<!-- NAME -->` and the next `<!-- end -->` of a page."""
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, rest = page.read_text().split(begin)
    with atomic_write(page) as unfinished:
        unfinished.write_text(f"{before}{begin}{text.rstrip()}\n{end}{rest.split(end, 1)[1]}")
