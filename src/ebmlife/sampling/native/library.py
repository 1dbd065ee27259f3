"""program.c, built by the machine's own compiler on first use and then cached."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.sampling.native import cache
from ebmlife.sampling.native.trust import Untrusted
from ebmlife.storage.atomic import cache_folder

_SOURCE = Path(__file__).with_name("program.c")
_FLAGS = ("-O3", "-ffp-contract=off", "-shared", "-fPIC", "-Wno-psabi")
_LONGEST = 100  # seconds that a compiler may take; it needs 2
_FAILURES = (Untrusted, BadInput, OSError, subprocess.SubprocessError)
_said: list[str] = []
_ahead: set[bool] = set()


class Operation(ctypes.Structure):
    """As `operation` in program.c, where each field is explained."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "source", "target", "other", "gate", "gating", "activation")),
        *((name, ctypes.c_int64) for name in ("derivative", "source_pairs", "target_pairs")),
        *((name, ctypes.c_int64) for name in ("pixels", "inputs", "outputs")),
        *((name, ctypes.c_void_p) for name in ("first_tap", "tap_pixel", "tap_value", "weights", "bias", "tiles")),
        *((name, ctypes.c_int64) for name in ("kernel", "band")),
        *((name, ctypes.c_double) for name in ("parameter", "epsilon")),
    )


class Layout(ctypes.Structure):
    """As `layout` in program.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("input", "output", "reduced", "channels", "pixels", "strips")),
        ("map_pixels", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("pixel_of", "strip_of")),
    )


@functools.cache
def library(images: int = 16, pairs: bool = False, processor: str = "native") -> ctypes.CDLL | None:
    """The library for blocks of `images` images, in float32 or in `pairs` of bfloat16.

    `processor` is the compiler's name for a kind of processor. None where there is no compiler, or with
    EBMLIFE_NATIVE=0. It is loaded from the cache only if no other user could have put it there. Where the cache cannot
    be used, one line says so, and the library is built for this process.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.environ.get("EBMLIFE_NATIVE") == "0":
        return None
    flags = (*_FLAGS, f"-march={processor}", f"-DIMAGES={images}", f"-DPAIRS={int(pairs)}")
    build = functools.partial(_compile, compiler, flags)
    try:
        name = _name(compiler, flags)
        try:
            return _cached(name, build)
        except _FAILURES as error:
            unusable = _reason(error)
        with cache.made_for_now(build) as file:
            loaded = _loaded(file)
    except _FAILURES as error:
        _say(f"PyTorch takes the gradient, as the compiled program cannot be built: {_reason(error)}")
        return None
    _say(f"each process builds the compiled program again, as it cannot be cached: {unusable}")
    return loaded


def build_ahead(*, pairs: bool) -> None:
    """Builds the library in the background, if it is not in the cache yet, so that the first step need not wait."""
    if pairs not in _ahead:
        _ahead.add(pairs)
        threading.Thread(target=library, args=(16, pairs, "native")).start()


def _cached(name: str, build: cache.Build) -> ctypes.CDLL:
    folder = cache_folder() / "native"
    try:
        return _loaded(cache.find(folder, name) or cache.make(folder, name, build))
    except OSError as error:
        raise OSError(f"{folder}: {_reason(error)}") from error


def _loaded(file: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(file))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    try:
        lists = ctypes.POINTER(Operation), count, pointer, ctypes.POINTER(Layout)
        loaded.run.argtypes = [*lists, *[pointer] * 3, count, count]
        loaded.learn.argtypes = [*lists, *[pointer] * 4, count, count]
        loaded.learn.restype = None
        loaded.run.restype, loaded.tile_sizes.argtypes = None, []
        loaded.tile_sizes.restype = ctypes.POINTER(ctypes.c_int32)
    except AttributeError as error:
        raise OSError(str(error)) from error
    return loaded


def _name(compiler: str, flags: tuple[str, ...]) -> str:
    """By what a library depends on: source, flags, compiler and processor."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=_LONGEST).stdout
    key = hashlib.sha256(b"\0".join([_SOURCE.read_bytes(), " ".join(flags).encode(), version, _processor()]))
    return f"program-{key.hexdigest()[:16]}"


def _compile(compiler: str, flags: tuple[str, ...], file: Path) -> None:
    """Raises also if the result cannot be loaded: such a file is not kept."""
    # The compiler's own temporary files go beside the result: if it is killed, they are removed the next time.
    environment = os.environ | {"TMPDIR": str(file.parent)}
    command = [compiler, *flags, "-o", str(file), str(_SOURCE)]
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=_LONGEST)
    _loaded(file)


def _processor() -> bytes:
    """What -march=native depends on: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")


def _reason(error: Exception) -> str:
    """In one line."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        return lines[0] if lines else f"{error.cmd[0]} ended with exit code {error.returncode}"
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _say(line: str) -> None:
    """Once, although there are several libraries."""
    if not _said:
        _said.append(line)
        print(f"note: {line}", file=sys.stderr, flush=True)
