"""Runs given to others, through a folder that stands in for the hub."""

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import small_digits
from rich.console import Console

from ebmlife import load
from ebmlife.cli import main
from ebmlife.errors import BadInput
from ebmlife.runs import run, scores
from ebmlife.runs.hub import HuggingFace, LocalHub, parse
from ebmlife.sharing.push import push


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run.begin(small_digits(), folder, console=Console(quiet=True))
    scores.record(folder, "ebmlife fid --n 200 --steps 60", {"fd_digits_200": 12.345})
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EBMLIFE_HUB", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_what_was_pushed_loads_as_the_same_model(trained: Path, hub: Path) -> None:
    assert main(["push", str(trained), "hf:someone/digits"]) == 0
    ours, theirs = load(trained), load("hf:someone/digits")
    assert theirs.recipe == ours.recipe
    assert torch.equal(theirs.sample(3, seed=1), ours.sample(3, seed=1))
    assert (hub / "someone" / "digits" / "recipe.json").is_file()


def test_nothing_but_weights_is_pushed(trained: Path, hub: Path) -> None:
    push(trained, "hf:someone/digits")
    files = [file for file in (hub / "someone" / "digits").rglob("*") if file.is_file()]
    assert {file.name for file in files} == {
        "README.md",
        "recipe.json",
        "manifest.json",
        "state.json",
        "tensors.safetensors",
    }
    size = sum(file.stat().st_size for file in files if file.suffix == ".safetensors")
    model = load(trained)
    assert model.generator is not None
    held = sum(v.nbytes for net in (model.net, model.generator) for v in net.state_dict().values())
    assert held <= size < 1.2 * held + 10_000


def test_the_card_has_the_recipe_and_the_results(trained: Path, hub: Path) -> None:
    push(trained, "hf:someone/digits", license="mit")
    card = (hub / "someone" / "digits" / "README.md").read_text()
    recipe = load(trained).recipe
    assert card.startswith("---\nlibrary_name: ebmlife\n")
    for expected in (recipe.name, recipe.hash, "license: mit", "`ebmlife fid --n 200 --steps 60`: fd_digits_200 12.35"):
        assert expected in card
    assert 'ebmlife.load("hf:someone/digits")' in card
    assert "last update 6" in card


def test_pushing_again_replaces(trained: Path, hub: Path, tmp_path: Path) -> None:
    push(trained, "hf:someone/digits")
    shorter = tmp_path / "shorter"
    run.begin(small_digits(updates="2"), shorter, console=Console(quiet=True))
    push(shorter, "hf:someone/digits")
    assert torch.equal(load("hf:someone/digits").sample(2), load(shorter).sample(2))


def test_commands_take_shared_models(trained: Path, hub: Path, tmp_path: Path) -> None:
    push(trained, "hf:someone/digits")
    assert main(["sample", "hf:someone/digits", "--n", "2", "--out", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").is_file()


def test_a_damaged_download_is_noticed(trained: Path, hub: Path) -> None:
    push(trained, "hf:someone/digits")
    (file,) = (hub / "someone" / "digits").rglob("tensors.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadInput, match="damaged"):
        load("hf:someone/digits")


@pytest.mark.parametrize(
    "name",
    ["hf:digits", "hf:", "hf:a/b/c", "hf:../x/y", "someone/digits", "hf:../x", "hf:a/..", "hf:.a/b", "hf:a/b@../x"],
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(BadInput, match="expected hf:user/model"):
        parse(name)


def test_revisions() -> None:
    assert parse("hf:a/b") == ("a/b", None)
    assert parse("hf:a/b@v1.0") == ("a/b", "v1.0")


def test_models_that_are_not_there(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="hf:someone/else does not exist"):
        load("hf:someone/else")
    with pytest.raises(BadInput, match="has no revisions"):
        load("hf:someone/else@main")
    with pytest.raises(BadInput, match="holds no checkpoint"):
        push(tmp_path / "absent", "hf:someone/else")


class FakeHub(SimpleNamespace):
    """huggingface_hub with a folder behind it."""

    def create_repo(self, repository: str, **options: Any) -> None:
        self.calls.append(("create", repository, options["private"]))

    def upload_folder(self, *, repo_id: str, folder_path: Path, delete_patterns: list[str]) -> None:
        self.calls.append(("upload", repo_id, delete_patterns))
        shutil.copytree(folder_path, self.root)

    def model_info(self, repository: str, *, revision: str | None, files_metadata: bool) -> SimpleNamespace:
        self.calls.append(("list", repository, revision))
        if self.offline or repository != "someone/digits":
            raise OSError("404 Client Error\nmore lines")
        files = {file.relative_to(self.root).as_posix(): file.stat().st_size for file in self.root.rglob("*.*")}
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=f, size=s) for f, s in (files | self.more).items()])

    def snapshot_download(
        self, repository: str, *, revision: str | None, allow_patterns: list[str], local_files_only: bool = False
    ) -> str:
        if repository != "someone/digits":
            raise OSError("not in the cache")
        self.calls.append(("cache" if local_files_only else "download", repository, revision))
        self.fetched = allow_patterns
        return str(self.root)


def test_the_real_hub_is_spoken_to(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeHub(calls=[], root=tmp_path / "remote", more={}, offline=False)
    monkeypatch.delenv("EBMLIFE_HUB", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    assert push(trained, "hf:someone/digits", private=True) == "https://huggingface.co/someone/digits"
    assert torch.equal(load("hf:someone/digits@v1").sample(2), load(trained).sample(2))
    assert library.calls == [
        ("create", "someone/digits", True),
        ("upload", "someone/digits", ["checkpoints/**"]),
        ("list", "someone/digits", "v1"),
        ("download", "someone/digits", "v1"),
    ]
    library.offline = True
    assert torch.equal(load("hf:someone/digits").sample(2), load(trained).sample(2))
    assert library.calls[-1] == ("cache", "someone/digits", None)
    with pytest.raises(BadInput, match=r"hf:someone/other: OSError: 404 Client Error; check the name"):
        load("hf:someone/other")


def test_only_the_files_of_a_model_are_fetched(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeHub(calls=[], root=tmp_path / "remote", offline=False, more={})
    monkeypatch.delenv("EBMLIFE_HUB", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    push(trained, "hf:someone/digits")
    wanted = ["recipe.json", "README.md"]
    wanted += [f"checkpoints/000000006/{name}" for name in ("manifest.json", "state.json", "tensors.safetensors")]
    strange = (
        "setup.py",
        "weights.pkl",
        "../../.bashrc",
        "/etc/passwd",
        "checkpoints/000000006/code.py",
        "x/recipe.json",
    )
    older = ("manifest.json", "state.json", "tensors.safetensors", "rank-1/state.json")
    library.more = dict.fromkeys([*strange, *(f"checkpoints/000000003/{name}" for name in older)], 10)
    load("hf:someone/digits")
    assert sorted(library.fetched) == sorted(wanted)
    library.more = {"checkpoints/000000006/state.json": 2**40}
    with pytest.raises(BadInput, match=r"state\.json has 1,099,511,627,776 bytes; expected at most .* not downloaded"):
        load("hf:someone/digits")


def test_links_in_a_local_hub_are_not_followed(trained: Path, hub: Path, tmp_path: Path) -> None:
    push(trained, "hf:someone/digits")
    (tmp_path / "elsewhere").mkdir()
    shutil.move(hub / "someone" / "digits", tmp_path / "elsewhere" / "digits")
    (hub / "someone" / "digits").symlink_to(tmp_path / "elsewhere" / "digits")
    with pytest.raises(BadInput, match=r"is a link, and links in .* are not followed"):
        load("hf:someone/digits")
    with pytest.raises(BadInput, match="is a link"):
        push(trained, "hf:someone/digits")
    (hub / "someone" / "digits").unlink()
    shutil.move(tmp_path / "elsewhere" / "digits", hub / "someone" / "digits")
    (file,) = (hub / "someone" / "digits").rglob("state.json")
    shutil.move(file, tmp_path / "state.json")
    file.symlink_to(tmp_path / "state.json")
    with pytest.raises(BadInput, match=r"state\.json is a link"):
        load("hf:someone/digits")
    file.unlink()
    os.mkfifo(file)  # reading it would wait for ever
    with pytest.raises(BadInput, match=r"state\.json is neither a file nor a folder"):
        load("hf:someone/digits")


def test_a_file_beyond_all_bounds_is_refused(trained: Path, hub: Path) -> None:
    push(trained, "hf:someone/digits")
    with (hub / "someone" / "digits" / "recipe.json").open("ab") as stream:
        stream.truncate(2**30)  # a hole: no disk is needed
    with pytest.raises(BadInput, match=r"recipe\.json has 1,073,741,824 bytes"):
        load("hf:someone/digits")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BadInput, match=r"pip install ebmlife\[hub\]"):
        HuggingFace()


def test_a_local_hub_is_a_hub(trained: Path, tmp_path: Path) -> None:
    assert push(trained, "hf:a/b", hub=LocalHub(tmp_path)) == str(tmp_path / "a" / "b")
