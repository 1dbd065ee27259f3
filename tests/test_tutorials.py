"""The tutorials work as printed: commands and Python run in the order of the page, in an empty folder."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ebmlife.cli import main

PAGES = Path(__file__).parent.parent / "docs" / "tutorials"
BLOCK = re.compile(r"^```(sh|python)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    return [(match[1], match[2] or "", match[3]) for match in BLOCK.finditer(page.read_text())]


def run_commands(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "ebmlife"
        assert main(words) == 0


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_works_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {"__name__": "tutorial"}
    before, found = set(sys.modules), blocks(page)
    assert found
    try:
        for language, title, text in found:
            if title:
                Path(title).write_text(text)
            if language == "sh":
                run_commands(text)
            else:
                exec(compile(text, f"{page.name} {title}", "exec"), names)
    finally:
        for name in set(sys.modules) - before:  # pages may have modules of the same name
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
