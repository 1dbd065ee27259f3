"""program.c on another processor: compiled for 64-bit ARM (NEON), run by an emulator, compared with this machine.

Debian's packages are gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from ebmlife.nets import SNGANEnergy
from ebmlife.sampling.native import Program, library
from ebmlife.sampling.native.library import Operation

COMPILER, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
pytestmark = [
    pytest.mark.skipif(library.library() is None, reason="no C compiler on this machine"),
    pytest.mark.skipif(COMPILER is None or EMULATOR is None, reason="no compiler or emulator for ARM"),
]
SOURCE = Path(library.__file__).with_name("program.c")
TYPES = {"first_tap": "int32_t", "tap_pixel": "int32_t", "tiles": "int32_t", "bias": "float"}


def written(program: Program, x: torch.Tensor) -> str:
    """A C program with the operations, the weights and x as constants, which prints the gradient and the energies."""
    arrays: list[str] = []

    def array(kind: str, values: list[Any]) -> str:
        name = f"array_{len(arrays)}"
        text = ", ".join(float(value).hex() if kind == "float" else str(int(value)) for value in values)
        arrays.append(f"static const {kind} {name}[] = {{{text}}};")
        return name

    def read(address: int | None, kind: str, count: int) -> str:
        if address is None or not count:
            return "0"
        element = ctypes.c_float if kind == "float" else ctypes.c_int32
        return array(kind, list((element * count).from_address(address)))

    operations = []
    for step, operation in zip(program._steps, program._operations, strict=True):
        taps = 0 if step.taps is None else len(step.taps.pixel)
        ghost = 2 * program._images if step.kind.name == "GHOST" else 0
        packed = None if step.weight is None else program._packed[step.weight].memory
        counts = {"first_tap": step.pixels + 1 if taps else 0, "tap_pixel": taps or ghost}
        counts |= {"tiles": 40, "bias": 1 if step.kind.name == "REDUCE" else step.outputs}
        fields = []
        for name, _ in Operation._fields_:
            value = getattr(operation, name)
            if name == "tap_value":
                fields.append(read(value, "float" if step.kind.name == "MIX" else "int32_t", taps))
            elif name == "weights":
                kind = "int32_t" if packed is not None and packed.dtype == torch.int32 else "float"
                fields.append("0" if packed is None else read(value, kind, packed.numel()))
            elif name == "tiles":
                split = program._tiles(step.outputs)
                fields.append(read(value, "int32_t", len(split)))
            elif name in TYPES:
                fields.append(read(value, TYPES[name], counts[name]))
            else:
                fields.append(float(value).hex() if isinstance(value, float) else str(int(value)))
        operations.append("{" + ", ".join(fields) + "}")
    at = program._layout
    pixel_of, strip_of = (array("int32_t", kept.tolist()) for kept in program._kept)
    numbers = [at.input, at.output, at.reduced, at.channels, at.pixels, at.strips, at.map_pixels]
    images = array("float", x.flatten().tolist())
    return "\n".join(
        [
            f'#include "{SOURCE}"',
            "#include <stdio.h>",
            *arrays,
            f"static const operation operations[] = {{{', '.join(operations)}}};",
            f"static const layout at = {{{', '.join(map(str, numbers))}, {pixel_of}, {strip_of}}};",
            f"static lanes maps[{program._lanes}];",
            f"static float gradient[{x.numel()}], energy[{len(x)}];",
            "int main(void) {",
            f"    run(operations, {len(operations)}, maps, &at, {images}, gradient, energy, 0, {len(x)});",
            f'    for (int i = 0; i < {x.numel()}; i++) printf("%a\\n", gradient[i]);',
            f'    for (int i = 0; i < {len(x)}; i++) printf("%a\\n", energy[i]);',
            "}",
        ]
    )


@pytest.mark.parametrize(("half", "activation", "strips"), [(False, "softplus", 2), (True, "relu", 1)])
def test_another_processor_computes_the_same(tmp_path: Path, half: bool, activation: str, strips: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, x = SNGANEnergy(8, 6, 3, activation), torch.randn(3, 3, 8, 8)
    # Registers of another width have tiles of other sizes: the packed weights must be those of 8 floats.
    program, energy = Program(net, (3, 8, 8), images=8, half=half, strips=strips, processor="x86-64"), torch.empty(3)
    wanted = program(x, threads=1, energy=energy)
    (tmp_path / "main.c").write_text(written(program, x))
    flags = ["-O1", "-ffp-contract=off", "-static", "-Wno-psabi", "-DIMAGES=8", f"-DPAIRS={int(half)}"]
    assert COMPILER is not None
    assert EMULATOR is not None
    subprocess.run([COMPILER, *flags, "-o", tmp_path / "main", tmp_path / "main.c", "-lm"], check=True)
    printed = subprocess.run([EMULATOR, tmp_path / "main"], check=True, capture_output=True, text=True).stdout.split()
    numbers = torch.tensor([float.fromhex(number) for number in printed])
    got, energies = numbers[: x.numel()].view_as(x), numbers[x.numel() :]
    if half:  # products are exact, and sums are taken in the same order
        assert torch.equal(got, wanted)
    assert (got - wanted).norm() <= 1e-5 * wanted.norm()
    assert (energies - energy).norm() <= 1e-5 * energy.norm() + 1e-6
