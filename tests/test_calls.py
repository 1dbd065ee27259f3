import sys
from pathlib import Path

import pytest

from ebmlife.errors import BadInput
from ebmlife.runs.user_code import import_object, is_import_path


@pytest.mark.parametrize("name", ["a:b", "a.b.c:d", "_a1.b:_c"])
def test_names_of_functions(name: str) -> None:
    assert is_import_path(name)


@pytest.mark.parametrize("name", ["a", "a:", ":b", "a.b", "a..b:c", "runs/a:b", "a:b:c", "timm:resnet18@224", "c:\\x"])
def test_other_words_are_none(name: str) -> None:
    assert not is_import_path(name)


def test_a_function_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_of_calls.py").write_text("VALUE = 3\n\n\ndef seven():\n    return 7\n")
    assert import_object("mine_of_calls:seven")() == 7
    with pytest.raises(BadInput, match=r"mine_of_calls has no function 'sevn'; did you mean 'seven'\?"):
        import_object("mine_of_calls:sevn")
    with pytest.raises(BadInput, match="has no function 'VALUE'"):
        import_object("mine_of_calls:VALUE")
    with pytest.raises(BadInput, match=r"No module named 'mine_of_nobody'; expected package\.module:function"):
        import_object("mine_of_nobody:seven")
