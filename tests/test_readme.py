"""The README's command line and Python, run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parent.parent / "README.md").read_text()


def block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return match[1]


def test_commands_then_python(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(*command: str) -> str:
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    output = run("bash", "-euc", block("sh"))
    assert "digits-shortrun" in output
    assert "done: 150 updates" in output
    assert (tmp_path / "samples.png").stat().st_size > 1000
    assert "fd_digits_500" in output
    lines = run(sys.executable, "-W", "error", "-c", block("python")).splitlines()
    assert abs(float(lines[0].split()[0]) - 0.5) < 0.05
    assert lines[-1].startswith("20 ")
