"""The compiled library and its cache: what is loaded, what is refused, and what is left behind."""

import atexit
import functools
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebmlife.errors import BadInput
from ebmlife.sampling.native import cache
from ebmlife.sampling.native import library as native
from ebmlife.sampling.native.trust import Untrusted, read_file, trusted
from ebmlife.storage.atomic import cache_folder

STRANGER = 65534
pytestmark = pytest.mark.skipif(native.library() is None, reason="no C compiler on this machine")


class Child:
    """A forked process that does some work with another environment."""

    def __init__(self, work: Callable[[], None], **environment: str | None) -> None:
        environment = {"CC": str(_fast_compiler())} | environment
        descriptor, name = tempfile.mkstemp()
        self._said = Path(name)
        self.pid = os.fork()
        if self.pid == 0:
            self._work(work, descriptor, environment)
        os.close(descriptor)

    def _work(self, work: Callable[[], None], said: int, environment: dict[str, str | None]) -> None:
        try:
            os.dup2(said, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            for name, value in environment.items():
                os.environ.pop(name, None)
                os.environ |= {} if value is None else {name: value}
            tempfile.tempdir = None
            native.library.cache_clear()
            native._said.clear()
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def ended(self) -> list[str]:
        """The lines that it said; it must have ended well."""
        status = os.waitpid(self.pid, 0)[1]
        lines = self._said.read_text().splitlines()
        self._said.unlink()
        assert status == 0, "\n".join(lines)
        return lines


def compiled() -> None:
    for images in (8, 16):
        loaded = native.library(images)
        assert loaded is not None
        assert loaded.tile_sizes()[0] > 0


def not_compiled() -> None:
    assert native.library(8) is native.library(16) is None


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def compiler(folder: Path, script: str) -> Path:
    file = folder / "compiler"
    file.write_text(f"#!/bin/sh\nreal={shutil.which('cc')}\n{script}\n")
    file.chmod(0o755)
    return file


@functools.cache
def _fast_compiler() -> Path:
    """The machine's own without optimization, in a folder that any user can read."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    return compiler(folder, 'exec $real "$@" -O0')


@functools.cache
def _filled_cache() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    assert Child(compiled, XDG_CACHE_HOME=str(folder)).ended() == []
    return folder / "ebmlife"


@pytest.fixture
def home() -> Iterator[Path]:
    """In /tmp, as a child that is not root cannot come to pytest's own folders if root made them."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.fixture
def kept(home: Path) -> Path:
    """The folder of a cache with both libraries in it."""
    shutil.copytree(_filled_cache(), home / "ebmlife")
    return home / "ebmlife" / "native"


def test_an_empty_or_relative_cache_home_counts_as_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for named in ("", "relative", "./here"):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert cache_folder() == tmp_path / ".cache" / "ebmlife"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "ebmlife"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named" / "ebmlife"


def test_without_a_home_the_line_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999)
    with pytest.raises(BadInput, match="set XDG_CACHE_HOME"):
        cache_folder()
    monkeypatch.setenv("HOME", "")
    with pytest.raises(BadInput, match="set XDG_CACHE_HOME"):
        cache_folder()


def test_the_cache_is_private_to_this_user(kept: Path) -> None:
    assert [stat.S_IMODE(place.stat().st_mode) for place in (kept, kept.parent)] == [0o700, 0o700]
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept.iterdir()} == {0o600}
    assert [name.split("-")[0] for name in files(kept)] == [".lock", "program", "program"]


def test_a_kept_library_is_loaded_and_not_built_again(kept: Path, home: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in kept.iterdir()}
    kept.chmod(0o500)
    assert Child(compiled, XDG_CACHE_HOME=str(home)).ended() == []
    assert {file: file.stat().st_mtime_ns for file in kept.iterdir()} == before


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_a_bit(file: Path) -> None:
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents)


def replace_by_another(file: Path) -> None:
    """A good library, without the right symbols."""
    shutil.copy(sys.modules["_ctypes"].__file__ or "", file)


def replace_by_a_link(file: Path) -> None:
    elsewhere = file.parent.parent / "elsewhere.so"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


def replace_by_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def open_to_all(file: Path) -> None:
    file.chmod(0o666)


def give_away(file: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(file, STRANGER, STRANGER)


@pytest.mark.parametrize(
    "damage",
    [halve, empty, flip_a_bit, replace_by_another, replace_by_a_link, replace_by_a_pipe, open_to_all, give_away],
)
def test_a_library_that_is_damaged_or_not_ours_is_built_again(
    kept: Path, home: Path, damage: Callable[[Path], None]
) -> None:
    names = files(kept)
    for file in kept.glob("program-*"):
        damage(file)
    assert Child(compiled, XDG_CACHE_HOME=str(home)).ended() == []
    assert files(kept) == names
    for file in kept.glob("program-*"):
        read_file(file)
        assert cache.find(kept, file.name.rpartition("-")[0]) == file


def refused(home: Path, what: str) -> None:
    """One line, and a library that is not from there."""

    def built_elsewhere() -> None:
        compiled()
        for images in (8, 16):
            loaded = native.library(images)
            assert loaded is not None
            assert not Path(loaded._name).is_relative_to(home)
            assert not Path(loaded._name).exists()

    (line,) = Child(built_elsewhere, XDG_CACHE_HOME=str(home)).ended()
    assert line.startswith("note: each process builds the compiled program again, as it cannot be cached: ")
    assert what in line


@pytest.mark.parametrize("place", ["", "ebmlife", "ebmlife/native"])
def test_a_folder_that_others_can_write_to_is_refused(kept: Path, home: Path, place: str) -> None:
    before = files(kept)
    (home / place).chmod(0o777)
    refused(home, f"other users can write to {home / place}")
    assert files(kept) == before
    (home / place).chmod(0o1777)  # sticky: enough above the cache, not for the cache itself
    if place == "ebmlife/native":
        refused(home, "other users can write to")
    else:
        assert Child(compiled, XDG_CACHE_HOME=str(home)).ended() == []


@pytest.mark.parametrize("place", ["", "ebmlife", "ebmlife/native"])
def test_a_folder_that_belongs_to_another_user_is_refused(kept: Path, home: Path, place: str) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give folders away")
    os.chown(home / place, STRANGER, STRANGER)
    refused(home, "belongs to another user")
    os.chown(home / place, 0, 0)


def test_a_link_to_a_folder_counts_as_that_folder(kept: Path, home: Path) -> None:
    (home / "link").symlink_to(home / "ebmlife")
    assert trusted(home / "link" / "native") == kept.resolve()
    kept.parent.chmod(0o777)
    with pytest.raises(Untrusted, match="other users can write to"):
        trusted(home / "link" / "native")


def test_the_private_group_of_the_user_may_write(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.chmod(0o770)
    alone: list[bool] = [True, False]
    monkeypatch.setattr("ebmlife.sampling.native.trust._is_private_group", lambda group: alone.pop(0))
    assert trusted(kept) == kept.resolve()
    with pytest.raises(Untrusted):
        trusted(kept)


def test_folders_above_the_home_folder_are_the_systems(kept: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.chmod(0o777)
    monkeypatch.setenv("HOME", str(kept.parent))
    assert trusted(kept) == kept.resolve()
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(Untrusted):
        trusted(kept)


def unprivileged(work: Callable[[], None]) -> Callable[[], None]:
    def as_a_stranger() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
        work()

    return as_a_stranger


@pytest.mark.parametrize("case", ["read-only", "unwritable home", "no home", "a file", "full"])
def test_where_nothing_can_be_kept_the_library_is_built_for_the_process(home: Path, case: str) -> None:
    home.chmod(0o755)
    environment: dict[str, str | None] = {"XDG_CACHE_HOME": str(home)}
    work = unprivileged(compiled)
    if case == "read-only":
        home.chmod(0o555)
    elif case == "unwritable home":
        environment = {"XDG_CACHE_HOME": None, "HOME": str(home)}
        home.chmod(0o555)
    elif case == "no home":
        environment = {"XDG_CACHE_HOME": None, "HOME": "/nonexistent"}
    elif case == "a file":
        (home / "ebmlife").touch()
    elif case == "full":
        environment = {"XDG_CACHE_HOME": "/dev/full"}
    (line,) = Child(work, **environment).ended()
    assert line.startswith("note: each process builds the compiled program again, as it cannot be cached: ")
    assert not list(Path(tempfile.gettempdir()).glob("ebmlife-build-*/library.so"))


def test_a_disk_that_is_full_while_it_compiles_is_no_obstacle(home: Path) -> None:
    """The compiler fails wherever it writes into the cache."""
    failing = compiler(
        home, 'case "$*" in *.build-*) echo "No space left on device" >&2; exit 1;; esac; exec $real "$@" -O0'
    )
    (line,) = Child(compiled, XDG_CACHE_HOME=str(home), CC=str(failing)).ended()
    assert line.endswith("cannot be cached: No space left on device")
    assert files(home / "ebmlife" / "native") == [".lock"]


@pytest.mark.parametrize(
    "script",
    [
        'case "$1" in --version) exec $real "$@";; esac; echo "error: broken" >&2; exit 1',
        'case "$1" in --version) exec $real "$@";; esac; exit 0',
        'echo "int other;" > $TMPDIR/o.c; exec $real -shared -fPIC -o "$TMPDIR/library.so" "$TMPDIR/o.c"',
        "exit 1",
    ],
    ids=["fails", "writes nothing", "writes no symbols", "has no version"],
)
def test_a_compiler_that_does_not_work_leaves_the_work_to_pytorch(home: Path, script: str) -> None:
    (line,) = Child(not_compiled, XDG_CACHE_HOME=str(home), CC=str(compiler(home, script))).ended()
    assert line.startswith("note: PyTorch takes the gradient, as the compiled program cannot be built: ")
    assert not list(home.glob("ebmlife/native/*.so"))
    assert not list(home.glob("ebmlife/native/.build-*"))


def test_processes_that_begin_at_once_share_one_build(home: Path) -> None:
    log = home / "builds"
    counting = compiler(
        home, f'case "$1" in --version) ;; *) echo built >> {log}; sleep 0.2;; esac; exec $real "$@" -O0'
    )
    children = [Child(compiled, XDG_CACHE_HOME=str(home), CC=str(counting)) for _ in range(6)]
    assert [child.ended() for child in children] == [[]] * 6
    assert log.read_text().splitlines() == ["built"] * 2  # one of each size
    assert len(files(home / "ebmlife" / "native")) == 3


def test_a_build_that_is_killed_leaves_nothing_that_is_trusted(home: Path) -> None:
    folder = home / "ebmlife" / "native"
    slow = compiler(home, 'case "$1" in --version) ;; *) echo half > "$TMPDIR/library.so"; sleep 30;; esac; $real "$@"')
    child = Child(compiled, XDG_CACHE_HOME=str(home), CC=str(slow))
    while not list(folder.glob(".build-*/library.so")):
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    child._said.unlink()
    assert not list(folder.glob("*.so"))
    assert Child(compiled, XDG_CACHE_HOME=str(home)).ended() == []
    assert [name.split("-")[0] for name in files(folder)] == [".lock", "program", "program"]


def test_old_folders_of_killed_builds_are_removed_from_the_temporary_folder(home: Path) -> None:
    old, new = home / "ebmlife-build-old", home / "ebmlife-build-new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    Child(compiled, XDG_CACHE_HOME="/dev/null", TMPDIR=str(home)).ended()
    assert files(home) == ["ebmlife-build-new"]


def test_a_temporary_folder_that_others_can_replace_is_refused_too(home: Path) -> None:
    home.chmod(0o777)
    (line,) = Child(not_compiled, XDG_CACHE_HOME="/dev/null", TMPDIR=str(home)).ended()
    assert "cannot be built: other users can write to" in line
    assert files(home) == []
