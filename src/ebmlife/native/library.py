"""program.c, built by the machine's own compiler on first use and then cached."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.files import cache_folder, whole

_SOURCE = Path(__file__).with_name("program.c")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-Wno-psabi")


class Operation(ctypes.Structure):
    """As `operation` in program.c, where each field is explained."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "source", "target", "other", "mask", "rectify")),
        *((name, ctypes.c_int64) for name in ("pixels", "inputs", "outputs")),
        *((name, ctypes.c_void_p) for name in ("first_tap", "tap_pixel", "tap_value", "weights", "bias")),
        *((name, ctypes.c_int64) for name in ("kernel", "band")),
    )


@functools.cache
def library(images: int = 16) -> ctypes.CDLL | None:
    """The library for blocks of so many images, or None where there is no compiler (or EBMLIFE_NATIVE=0)."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.environ.get("EBMLIFE_NATIVE") == "0":
        return None
    try:
        loaded = ctypes.CDLL(str(_built(compiler, (*_FLAGS, f"-DIMAGES={images}"))))
    except (subprocess.CalledProcessError, OSError, BadInput):
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    loaded.run.argtypes = [ctypes.POINTER(Operation), count, pointer, *[count] * 4, pointer, pointer, count, count]
    loaded.run.restype = None
    return loaded


def _built(compiler: str, flags: tuple[str, ...]) -> Path:
    """The library's file, named by what it depends on: source, flags, compiler and processor."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True).stdout
    processor = _processor()
    key = hashlib.sha256(b"\0".join([_SOURCE.read_bytes(), " ".join(flags).encode(), version, processor]))
    file = cache_folder() / f"program-{key.hexdigest()[:16]}{sysconfig.get_config_var('SHLIB_SUFFIX') or '.so'}"
    if not file.exists():
        with whole(file) as unfinished:
            subprocess.run([compiler, *flags, "-o", unfinished, _SOURCE], check=True, capture_output=True)
    return file


def _processor() -> bytes:
    """What -march=native depends on: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
