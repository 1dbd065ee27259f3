"""Commands whose output is cut off: by a reader that leaves, a closed stream, a full device. Real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ebmlife.cli.streams import READER_LEFT

CHEAP = {
    "recipes": ["recipes"],
    "show": ["show", "digits-shortrun"],
    "estimate": ["estimate", "digits-shortrun"],
    "help": ["--help"],
    "help-of-a-verb": ["train", "--help"],
    "version": ["--version"],
}
CASES = [*((name, "") for name in CHEAP), ("help", "1"), ("show", "1")]  # verb, PYTHONUNBUFFERED

cases = pytest.mark.parametrize(("verb", "unbuffered"), CASES)


def environment(unbuffered: str = "") -> dict[str, str]:
    return os.environ | {"PYTHONUNBUFFERED": unbuffered, "CUDA_VISIBLE_DEVICES": ""}


def ended(words: list[str], stdout: int, unbuffered: str = "", **options: object) -> tuple[int, str]:
    """Exit code, and what was said on standard error."""
    command = [sys.executable, "-m", "ebmlife", *words]
    process = subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment(unbuffered), **options
    )
    said = process.communicate(timeout=120)[1]
    return process.returncode, said


def without_reader(words: list[str], unbuffered: str = "", **options: object) -> tuple[int, str]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return ended(words, writing, unbuffered, **options)
    finally:
        os.close(writing)


@cases
def test_a_reader_that_has_left_ends_a_command_quietly(verb: str, unbuffered: str) -> None:
    assert without_reader(CHEAP[verb], unbuffered) == (READER_LEFT, "")


def test_the_verbs_that_read_a_run_end_quietly_too(tmp_path: Path) -> None:
    model = "zoo:digits-shortrun"
    for words in (
        ["fid", model, "--n", "8", "--steps", "0"],
        ["exam", model, "--steps", "2", "--chains", "2", "--out", "exam"],
        ["report", model, "--no-walk", "--out", "page.html"],
    ):
        code, said = without_reader(words, cwd=tmp_path)
        assert "Traceback" not in said
        assert "Broken pipe" not in said
        assert "Exception ignored" not in said
        assert code == READER_LEFT, (words, said)


def test_head_gets_its_line_and_nothing_is_said() -> None:
    command = f"{sys.executable} -m ebmlife recipes | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment("1"), timeout=120)
    assert done.stdout.count("\n") == 1
    assert (done.returncode, done.stderr) == (READER_LEFT, "")


@pytest.mark.parametrize("verb", ["recipes", "estimate", "help"])
def test_a_closed_output_is_no_mistake(verb: str) -> None:
    command = ["bash", "-c", 'exec "$0" -m ebmlife "$@" >&-', sys.executable, *CHEAP[verb]]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment(), timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@cases
def test_a_full_device_is_said_in_one_line(verb: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        found = ended(CHEAP[verb], full.fileno(), unbuffered)
    assert found == (2, "ebmlife: error: cannot write the output: No space left on device\n")


def test_a_mistake_keeps_its_code_where_nobody_hears_of_it() -> None:
    for redirected in ("2>&-", "2>/dev/full", ">&- 2>&-", "2>&1 | true; exit ${PIPESTATUS[0]}"):
        command = f"{sys.executable} -m ebmlife show no-such-recipe {redirected}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment(), timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", ""), redirected
