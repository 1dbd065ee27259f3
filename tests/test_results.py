"""The scripts in results/ reuse runs only of the same recipe, and write the tables that are on the pages."""

import re
import sys
from pathlib import Path

import pytest
from conftest import small
from rich.console import Console
from test_run import shortened

from ebmlife.runs import run
from ebmlife.storage import checkpoint

sys.path.append(str(Path(__file__).parent.parent / "results"))

import density_toys
import shortrun
from tables import RESULTS, replace, rows
from training import trained

QUIET = Console(quiet=True)


def test_a_run_is_trained_continued_and_then_not_changed(tmp_path: Path) -> None:
    recipe = small("digits-score")
    run.begin(shortened(recipe, 3), tmp_path / "run", console=QUIET)
    assert checkpoint.choose(trained(tmp_path / "run", recipe, QUIET), None) == recipe.updates
    log = (tmp_path / "run" / "log.jsonl").read_bytes()
    assert trained(tmp_path / "run", recipe, QUIET) == tmp_path / "run"
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == log
    assert checkpoint.choose(trained(tmp_path / "new", recipe, QUIET), None) == recipe.updates


def test_a_run_of_another_recipe_is_not_taken_for_this_one(tmp_path: Path) -> None:
    trained(tmp_path / "run", small("digits-score"), QUIET)
    with pytest.raises(SystemExit, match="is a run of another recipe"):
        trained(tmp_path / "run", small("digits-score", seed="1"), QUIET)


def block(page: str, name: str) -> str:
    return (RESULTS / page).read_text().split(f"<!-- {name} -->\n")[1].split("<!-- end -->")[0]


def layout(text: str) -> list[str]:
    """Heads of tables and captions, without numbers; rows only by their number of cells."""
    found: list[str] = []
    for line in text.strip().splitlines():
        is_row = line.startswith("|") and found and found[-1].startswith("|")
        found.append("|" * line.count("|") if is_row else re.sub(r"\d[\d,.]*", "#", line))
    return found


def test_scripts_write_the_tables_of_the_pages() -> None:
    """Made-up scores: the layout must be that of the page, so that measuring again changes only numbers."""
    bank = {"hybrid": 3.0, "persistent, noise": 3.0}
    scores = {title: [shortrun.Scores(1, 2, bank.get(title), 1, 1, 9, "a")] * 3 for title in shortrun.VARIANTS}
    for name, text in shortrun.tables(scores).items():
        assert layout(text) == layout(block("shortrun.md", name))
    score = density_toys.Scores(0.4, 0.3, (0.5, 0.5), (0.5, 0.5), 0, 0.05, 0.05, 0.1, 9, "a")
    toys = {(toy, model): [score] * 3 for toy in density_toys.TOY_NAMES for model in density_toys.MODELS}
    for name, text in density_toys.tables(toys).items():
        assert layout(text) == layout(block("density.md", name))


def test_a_block_of_a_page_is_replaced_and_its_rows_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\n| x | y |\n|---|---|\n| 1 | 2 |\n<!-- end -->\nafter\n")
    assert rows(page, "a") == {"1": "| 1 | 2 |"}
    replace(page, "a", "new")
    assert page.read_text() == "before\n<!-- a -->\nnew\n<!-- end -->\nafter\n"


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda page: page.stem)
def test_a_results_page_opens_with_three_lines_and_one_table(page: Path) -> None:
    opening = [line for line in page.read_text().splitlines()[1:14] if line and not line.startswith("<!--")]
    conclusion, head, rule = opening[:3], *opening[3:5]
    assert all(line.startswith("- **") and len(line) < 150 for line in conclusion)
    assert head.startswith("| ")
    assert set(rule) <= set("|-")
    assert head.count("|") <= 8  # seven columns
