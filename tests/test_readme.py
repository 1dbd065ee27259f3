"""The README's commands and Python work as printed, and its numbers are those of the results pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams
from ebmlife.training.chains import Persistent
from ebmlife.training.starts import Uniform

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    """All blocks of that language, joined."""
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


COMMANDS = {  # of the tables: the page, and the blocks of it, that a command writes
    "make results-shortrun": ("shortrun", "digits table"),
    "make results-shortrun-cifar10": ("shortrun", "cifar10 table"),
    "make results-stability": ("shortrun", "stability of cifar10"),
    "make results-defense-digits": ("defense", "gradients"),
    "make results-defense-cifar10": ("defense", "cifar10"),
    "make results-density-toys": ("density", "mixture"),
    "make results-density-digits": ("density", "digits table", "digits trainings"),
    "make results-density-cifar10": ("density", "cifar10 table"),
}
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?(?: ± [\d.]+)?(?: \[[^]]*\])?"
PLACE = r"`\w+`|\(1 is[^)]*\)|(?:at|from|to|after) \d[\d,]*"  # names, scales and steps, which are no results


def experiments(page: str, *names: str) -> list[str]:
    """The rows of tables, and the paragraphs as one line each, of the named blocks of a results page."""
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text()
    parts = [text.split(f"<!-- {name} -->\n")[1].split("<!-- end -->")[0] for name in names]
    blocks = [block.splitlines() if block.startswith("|") else [block] for p in parts for block in p.split("\n\n")]
    return [" ".join(line.split()) for block in blocks for line in block]


def table(page: str, name: str) -> list[dict[str, str]]:
    """The rows of the first table of a block, by the names of their columns."""
    head, _, *rows = ([c.strip() for c in line.split("|")[1:-1]] for line in experiments(page, name) if line[:1] == "|")
    return [dict(zip(head, row, strict=True)) for row in rows]


EARLIER = """
import torch
import ebmlife
from ebmlife.chains import Persistent
from ebmlife.data import Batches, digits
from ebmlife.langevin import Walk
from ebmlife.learner import Learner
from ebmlife.randomness import Streams
from ebmlife.starts import Uniform
from ebmlife.trainer import Trainer

net = ebmlife.nets.SNGANEnergy(size=8, width=16, channels=1)
ebm = Learner(net, torch.optim.Adam(net.parameters()), learning_rate=1e-4)
chains = Persistent(Uniform((1, 8, 8)), Walk(steps=2, step_size=0.05), Streams(0), size=500, rejuvenate=0.05)
trainer = Trainer(Batches(digits(), size=64, seed=0), chains, learned=net, energy=net, ebm=ebm)
trainer.fit(2, after=[lambda metrics: print(metrics.update, metrics.energy_difference)])
"""


def test_the_training_of_the_earlier_readme_still_works() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", EARLIER], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith("2 ")


def test_a_training_takes_two_import_lines() -> None:
    (code,) = re.findall(r"# A training of your own.*?(?=```)", PAGE, re.DOTALL)
    assert len(re.findall(r"^(?:import|from) ", code, re.MULTILINE)) == 1  # beside `import ebmlife`


def test_every_row_is_of_one_experiment_on_its_commands_page() -> None:
    """All numbers of a row are in one row or paragraph of the page that its command writes."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.endswith("` |")]
    measured = [row for row in rows if row[-1].strip("`") in COMMANDS]
    assert len(measured) == 19
    for *cells, sample, command in measured:
        results = cells[-2:] if len(cells) == 4 else cells[-1:]  # of a defense: natural and attacked
        numbers = re.findall(NUMBER, re.sub(PLACE, "", " ".join(results)))
        assert numbers, cells
        found = experiments(*COMMANDS[command.strip("`")])
        assert any(all(number in line for number in numbers) for line in found), (numbers, cells)
        assert re.search(r"\d+ (test images|seeds|trainings|chains|samples)", sample), sample


def test_speed_is_that_of_the_results() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    speed = [line.split(" | ") for line in (ROOT / "docs" / "results" / "speed.md").read_text().splitlines()]
    (cases,) = [[cell.partition(" (")[0].strip() for cell in row[2:-1]] for row in rows if "width 64" in row[3]]
    for name, contestant in (("ebmlife", "ours, f32"), ("torchebm", "torchebm")):
        (mine,) = [[cell.strip() for cell in row[2:-1]] for row in rows if row[1].strip() == name]
        measured = {row[0].removeprefix("| "): row[3] for row in speed if len(row) > 3 and row[2] == contestant}
        assert mine == [measured[case] for case in cases]


def test_how_long_chains_last_is_of_the_larger_exam() -> None:
    """The README's and the guide's sentences on the picture, against the rows of 512 chains."""
    lasted = {row["model"]: row["stable until"] for row in table("density", "digits table") if row["chains"] == "512"}
    steps = [lasted[length] for length in ("shortrun", "midrun", "longrun")]
    assert steps == ["42", "1,334", "100,000"]
    for page in (PAGE, (ROOT / "docs" / "lengths.md").read_text()):
        text = " ".join(page.split())
        assert re.search(rf"{steps[0]}\D{{,20}}{steps[1]}\D{{,20}}{steps[2]}", text)


def test_files_that_pages_name_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for name in re.findall(r"`([\w/.-]+\.py)`", page.read_text()):
            assert any((ROOT / place / name).exists() for place in ("", "src/ebmlife", "tests")), (page.name, name)


def test_a_pair_of_the_bank_walks_three_times_at_most() -> None:
    """The guide says so of the recipes' `rounds` = 2."""
    assert re.search(r"at most three (walks|times)", (ROOT / "docs" / "lengths.md").read_text())
    chains = Persistent(Uniform((2,)), Walk(steps=1, step_size=0.1), Streams(0), size=4, rounds=2)
    oldest = []
    for _ in range(9):
        chains.step(lambda x: x.square().sum(1), 4)
        oldest.append(int(chains.bank.age.max()))
    assert max(oldest) == 3


def test_torch_fidelity_has_what_is_imported_from_it() -> None:
    """metric_prc came with 0.4."""
    assert '"torch-fidelity>=0.4"' in (ROOT / "pyproject.toml").read_text()
    (locked,) = re.findall(r"^torch[_-]fidelity==(\d+)\.(\d+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert (int(locked[0]), int(locked[1])) >= (0, 4)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / target).exists(), target
