"""`make torture` with few cases, in a minute or so."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
FEW = {"kills": 16, "damages": 40, "tampers": 30, "calls": 60, "files": 20, "hostile": 31, "requests": 20}
FEW |= {"disks": 8, "rivals": 1}


def torture(*options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "torture", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_nothing_breaks() -> None:
    counts = [word for name, count in FEW.items() for word in (f"--{name}", str(count))]
    ended = torture(*counts)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert all(f"| {name} | " in ended.stdout for name in FEW)
