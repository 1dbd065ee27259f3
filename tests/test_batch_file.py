"""The batch file of docs/scale.md, with stand-ins for SLURM's commands."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_run import assert_same

from ebmlife.storage import checkpoint

SCALE = Path(__file__).parents[1] / "docs" / "scale.md"
TORCHRUN = Path(sys.executable).with_name("torchrun")
FIELDS = [
    *("--batch", "16", "--data.n", "200", "--chains.size", "50", "--net.width", "8", "--langevin.steps", "5"),
    *("--checkpoint.every", "5", "--watch.pictures_every", "1000", "--watch.pictures", "10"),
]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    if not TORCHRUN.is_file():
        pytest.skip("torchrun is not beside this Python")
    (found,) = re.findall(r"```bash\n(.*?)```", SCALE.read_text(), re.DOTALL)
    file = tmp_path / "train.sh"
    file.write_text(found)
    subprocess.run(["bash", "-n", file], check=True)
    place = tmp_path / "bin"
    place.mkdir()
    (place / "srun").write_text('#!/bin/bash\nexec "$@"\n')
    (place / "scontrol").write_text(
        f'#!/bin/bash\n[ "$1" = show ] && echo localhost || echo "$@" >> {tmp_path}/requeued\n'
    )
    for name in ("srun", "scontrol"):
        (place / name).chmod(0o755)
    return file


def started(script: Path, out: Path, updates: int) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(script.with_name("bin")), str(TORCHRUN.parent), os.environ["PATH"]])
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "1"}
    environment = os.environ | job | {"SLURM_GPUS_ON_NODE": "2", "OMP_NUM_THREADS": "1", "PATH": path}
    words = ["bash", str(script), "toy-mixture-midrun", str(out), *FIELDS, "--updates", str(updates)]
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def test_it_runs_through_a_requeue_to_the_same_end(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    job = started(script, folder, 100_000)
    while job.poll() is None and not checkpoint.updates(folder):
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)  # as SLURM does before the time limit
    said, _ = job.communicate(timeout=240)
    assert job.returncode == 0, said
    assert (tmp_path / "requeued").read_text() == f"requeue {os.getpid()}\n"
    assert "stopped and saved at update" in " ".join(said.split())
    updates = checkpoint.updates(folder)[-1] + 5
    for out in (folder, tmp_path / "whole"):
        job = started(script, out, updates)
        said, _ = job.communicate(timeout=240)
        assert job.returncode == 0, said
    assert_same(tmp_path / "whole", folder)
