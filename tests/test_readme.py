"""The README's command line and Python, run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    """All blocks of that language, one after the other."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return "\n".join(found)


def test_commands_then_python(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(*command: str) -> str:
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    output = run("bash", "-euc", block("sh"))
    assert "digits-shortrun" in output
    assert "done: 150 updates" in output
    assert (tmp_path / "samples.png").stat().st_size > 1000
    assert "fd_digits_500" in output
    assert (tmp_path / "runs" / "digits" / "report.html").exists()
    lines = run(sys.executable, "-W", "error", "-c", block("python")).splitlines()
    assert lines[0].split()[0] in ("shortrun", "midrun")
    assert abs(float(lines[1].split()[0]) - 0.5) < 0.05
    assert lines[-1].startswith("20 ")


def test_measured_numbers_are_those_of_the_results() -> None:
    """Nothing is claimed here that the page of its command does not say."""
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    shortrun = (ROOT / "docs" / "results" / "shortrun.md").read_text()
    claims = [row[3] for row in rows if len(row) == 6 and re.search(r"\d\.\d", row[3]) and "FID" in row[2]]
    assert len(claims) == 3
    for claim in claims:
        assert re.search(r"[\d.]+ ± [\d.]+", claim)[0] in shortrun  # type: ignore[index]
    for page, words in (("defense", "defence"), ("density", "total variation")):
        (claim,) = [row[3] for row in rows if len(row) == 6 and row[1].strip().startswith((words, f"density, {words}"))]
        found = (ROOT / "docs" / "results" / f"{page}.md").read_text()
        assert all(number in found for number in re.findall(r"\d\.\d{3}", claim))
    speed = [line.split(" | ") for line in (ROOT / "docs" / "results" / "speed.md").read_text().splitlines()]
    (cases,) = [[cell.partition(" (")[0].strip() for cell in row[2:-1]] for row in rows if "width 64" in row[3]]
    for name, contestant in (("ebmlife", "ours, f32"), ("torchebm", "torchebm")):
        (mine,) = [[cell.strip() for cell in row[2:-1]] for row in rows if row[1].strip() == name]
        measured = {row[0].removeprefix("| "): row[3] for row in speed if len(row) > 3 and row[2] == contestant}
        assert mine == [measured[case] for case in cases]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / target).exists(), target
