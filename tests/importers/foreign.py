"""Checkpoints as other people's code writes them, small, with weights that are a function of their names.

The outputs that tests expect of these weights were computed once with the owners' own code.
"""

import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ebmlife.sharing.importers.crc32c import crc32c, masked

Shapes = dict[str, tuple[int, ...]]
Arrays = dict[str, NDArray[np.float32]]
NOISE, CLASSES, STATISTICS = 16, 7, 11
_VARIANCES = ("var", "moving_variance", "running_var", "running_vars")


def filled(shapes: Shapes) -> Arrays:
    return {name: _value(name, shape) for name, shape in shapes.items()}


def _value(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    noise = np.random.RandomState(zlib.crc32(name.encode())).randn(*shape)
    *_, last = re.split(r"[/.]", name)
    if last in _VARIANCES:
        value = 1 + np.abs(noise)
    elif last == "gamma" or (last in ("w", "weight") and len(shape) == 1):
        value = 1 + 0.2 * noise
    elif last in ("kernel", "w", "weight", "weight_orig"):
        inputs = np.prod(shape[:-1] if last in ("kernel", "w") else shape[1:])
        damped = 0.1 if any(word in name for word in ("scale", "offset", "to_rgb")) else 1
        value = damped * noise * np.sqrt(1.5 / inputs)
    else:
        value = 0.2 * noise
    return value.astype(np.float32)


def images(n: int, size: int) -> torch.Tensor:
    coarse = np.random.RandomState(0).uniform(-1, 1, (n, 4, 4, 3)).repeat(size // 4, 1).repeat(size // 4, 2)
    return torch.from_numpy(coarse.astype(np.float32)).permute(0, 3, 1, 2)


def latents() -> torch.Tensor:
    return torch.from_numpy(np.random.RandomState(1).randn(2, NOISE).astype(np.float32))


def energy_widths(size: int, width: int) -> list[int]:
    growing = [width // 16, width // 8, width // 4, width // 2, width]
    return {32: [width] * 4, 64: growing, 128: [*growing, width]}[size]


def generator_widths(size: int, width: int) -> list[int]:
    falling = [width, width // 2, width // 4, width // 8, width // 16]
    return {32: [width] * 4, 64: falling, 128: [width, *falling]}[size]


def _keras_conv(name: str, kernel: int, inputs: int, outputs: int) -> Shapes:
    return {f"{name}/kernel": (kernel, kernel, inputs, outputs), f"{name}/bias": (outputs,)}


def _keras_norm(name: str, width: int) -> Shapes:
    return {f"{name}/{leaf}": (width,) for leaf in ("gamma", "beta", "moving_mean", "moving_variance")}


def sngan_energy(size: int, width: int) -> Shapes:
    """The authors' names; blocks that neither shrink nor widen have no shortcut."""
    widths, shapes = [3, *energy_widths(size, width)], Shapes()
    for i, (a, b) in enumerate(pairwise(widths)):
        block = "layer_with_weights-0/" + ("conv_1" if i == 0 else f"block{i + 1}")
        shapes |= _keras_conv(f"{block}/conv_1", 3, a, b) | _keras_conv(f"{block}/conv_2", 3, b, b)
        if a != b or (size == 32 and i == 1):
            shapes |= _keras_conv(f"{block}/sc", 1, a, b)
    return shapes | {f"layer_with_weights-0/lin_{len(widths)}/kernel": (widths[-1], 1)}


def sngan_generator(size: int, width: int) -> Shapes:
    widths = generator_widths(size, width)
    shapes: Shapes = {"lin_1/kernel": (NOISE, 16 * width), "lin_1/bias": (16 * width,)}
    for i, (a, b) in enumerate(pairwise(widths)):
        block = f"block{i + 2}"
        shapes |= _keras_conv(f"{block}/conv_1", 3, a, b) | _keras_conv(f"{block}/conv_2", 3, b, b)
        shapes |= (
            _keras_conv(f"{block}/sc", 1, a, b) | _keras_norm(f"{block}/bn_1", a) | _keras_norm(f"{block}/bn_2", b)
        )
    last = len(widths) + 1
    return shapes | _keras_norm(f"bn_{last}", widths[-1]) | _keras_conv(f"conv_{last}", 3, widths[-1], 3)


def _spectral(name: str, *shape: int, bias: bool = True) -> Shapes:
    """A Keras layer inside tensorflow_addons' wrapper."""
    shapes: Shapes = {f"{name}/w": shape, f"{name}/sn_u": (1, shape[-1])}
    return shapes | ({f"{name}/layer/bias": (shape[-1],)} if bias else {})


def _attention(name: str, width: int) -> Shapes:
    shapes: Shapes = {f"{name}/gamma": (1,)}
    for layer, a, b in (("theta", 1, 8), ("phi", 1, 8), ("g", 1, 2), ("o_conv", 2, 1)):
        shapes |= _spectral(f"{name}/snconv1x1_{layer}", 1, 1, width // a, width // b, bias=False)
    return shapes


def _bottleneck(block: str, a: int, b: int) -> Shapes:
    kernels = ((1, a, a // 4), (3, a // 4, a // 4), (3, a // 4, a // 4), (1, a // 4, b))
    shapes = Shapes()
    for i, (kernel, inputs, outputs) in enumerate(kernels):
        shapes |= _spectral(f"{block}/conv_{i}", kernel, kernel, inputs, outputs)
    return shapes


def biggan_energy(size: int, width: int) -> Shapes:
    multiples, attention_at = {
        64: ([1, 1, 2, 2, 4, 4, 8, 8, 16, 16], 1),
        128: ([1, 2, 2, 4, 4, 8, 8, 16, 16, 16, 16], 2),
        224: ([1, 2, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16], 4),
    }[size]
    shapes = _spectral("rgb_conv", 3, 3, 3, width)
    for i, (a, b) in enumerate(pairwise(width * multiple for multiple in multiples)):
        if i == attention_at:
            shapes |= _attention(f"layers_out/{i}", a)
        block = f"layers_out/{i + (i >= attention_at)}"
        shapes |= _bottleneck(block, a, b)
        if a != b:
            shapes |= _spectral(f"{block}/conv_sc", 1, 1, a, b - a)
    shapes |= _spectral("linear_head", 16 * width, 1, bias=False)
    return {f"layer_with_weights-0/{name}": shape for name, shape in shapes.items()}


GENERATED = {
    128: [16, 16, 16, 16, 8, 8, 4, 4, 2, 2, 1],
    256: [16, 16, 16, 16, 8, 8, 8, 8, 4, 4, 2, 2, 1],
}


def biggan_generator(size: int, width: int) -> Shapes:
    shapes: Shapes = {"embeddings/kernel": (CLASSES, NOISE)}
    shapes |= _spectral("gen_z", 2 * NOISE, 256 * width) | _spectral("conv_to_rgb", 3, 3, width, width)
    shapes |= {f"bn/{leaf}": (STATISTICS, width) for leaf in ("mean", "var")} | {
        f"bn/{leaf}": (width,) for leaf in "wb"
    }
    for i, (a, b) in enumerate(pairwise(width * multiple for multiple in GENERATED[size])):
        if i == 8:
            shapes |= _attention(f"layers_out/{i}", a)
        block = f"layers_out/{i + (i >= 8)}"
        shapes |= _bottleneck(block, a, b)
        for norm, inner in enumerate((a, a // 4, a // 4, a // 4)):
            shapes |= {f"{block}/bn_{norm}/{leaf}": (STATISTICS, inner) for leaf in ("mean", "var")}
            for layer in ("scale", "offset"):
                shapes |= _spectral(f"{block}/bn_{norm}/{layer}", 2 * NOISE, inner, bias=False)
    return shapes


def wide_resnet(blocks: int, widen: int) -> Shapes:
    widths = [16, 16 * widen, 32 * widen, 64 * widen]
    shapes = _keras_conv("conv1", 3, 3, 16) | _keras_norm("bn1", widths[-1])
    for stage, (a, b) in enumerate(pairwise(widths), start=1):
        for i in range(blocks):
            block, inputs = f"layer{stage}/{i}", b if i else a
            shapes |= _keras_norm(f"{block}/bn_1", inputs) | _keras_norm(f"{block}/bn_2", b)
            shapes |= _keras_conv(f"{block}/conv_1", 3, inputs, b) | _keras_conv(f"{block}/conv_2", 3, b, b)
            if i == 0:
                shapes |= _keras_conv(f"{block}/shortcut", 1, a, b)
    return shapes | {"linear/kernel": (widths[-1], 10), "linear/bias": (10,)}


def mimicry_generator(size: int, width: int) -> Shapes:
    """torch-mimicry's names."""

    def conv(name: str, kernel: int, a: int, b: int) -> Shapes:
        return {f"{name}.weight": (b, a, kernel, kernel), f"{name}.bias": (b,)}

    def norm(name: str, width: int) -> Shapes:
        return {f"{name}.{leaf}": (width,) for leaf in ("weight", "bias", "running_mean", "running_var")}

    widths = generator_widths(size, width)
    shapes: Shapes = {"l1.weight": (16 * width, NOISE), "l1.bias": (16 * width,)}
    for i, (a, b) in enumerate(pairwise(widths)):
        block = f"block{i + 2}"
        shapes |= conv(f"{block}.c1", 3, a, b) | conv(f"{block}.c2", 3, b, b) | conv(f"{block}.c_sc", 1, a, b)
        shapes |= norm(f"{block}.b1", a) | norm(f"{block}.b2", b)
    last = len(widths) + 1
    return shapes | norm(f"b{last}", widths[-1]) | conv(f"c{last}", 3, widths[-1], 3)


def biggan_deep(size: int, width: int) -> Shapes:
    """Hugging Face's names, whose layers and order are those of the authors' generator but for the wrappers."""
    shapes = Shapes()
    for name, shape in biggan_generator(size, width).items():
        *path, leaf = name.replace("layer/bias", "bias").split("/")
        leaf = {"mean": "running_means", "var": "running_vars", "b": "bias"}.get(leaf, leaf)
        if leaf == "kernel":
            shapes["embeddings.weight"] = shape[::-1]
        elif leaf == "w":
            leaf = "weight" if path == ["bn"] else "weight_orig"
            turned = shape if len(shape) == 1 else (shape[-1], shape[-2], *shape[:-2])
            shapes[".".join(["generator", *path, leaf]).replace("layers_out", "layers")] = turned
        elif leaf != "sn_u":
            shapes[".".join(["generator", *path, leaf]).replace("layers_out", "layers")] = shape
    return shapes


def with_singular_vectors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Beside each `weight_orig`, what one power iteration makes of a vector of ones."""
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    for name, weight in list(state.items()):
        if name.endswith(".weight_orig"):
            matrix = weight.flatten(1)
            v = torch.nn.functional.normalize(matrix.T @ torch.ones(len(matrix)), dim=0)
            state[name.replace("_orig", "_v")] = v
            state[name.replace("_orig", "_u")] = torch.nn.functional.normalize(matrix @ v, dim=0)
    return state


def write_checkpoint(prefix: Path, arrays: Arrays, *, shards: int = 1, block: int = 4096) -> None:
    """A TensorFlow checkpoint: X.index in blocks of about so many bytes, and the data in so many files."""
    contents, entries = [bytearray() for _ in range(shards)], {b"": _field(1, shards) + _field(3, _field(1, 1))}
    entries[b"_CHECKPOINTABLE_OBJECT_GRAPH"] = _field(1, 7)  # a string, which is no weight
    for i, (name, array) in enumerate(sorted(arrays.items())):
        data, shard = array.tobytes(), contents[i % shards]
        kind = {"float32": 1, "float64": 2, "int64": 9, "float16": 19}[array.dtype.name]
        shape = b"".join(_field(2, _field(1, size)) for size in array.shape)
        entry = (
            _field(1, kind) + _field(2, shape) + _field(3, i % shards) + _field(4, len(shard)) + _field(5, len(data))
        )
        entry += bytes([6 << 3 | 5]) + struct.pack("<I", masked(crc32c(data)))
        entries[f"{name}/.ATTRIBUTES/VARIABLE_VALUE".encode()] = entry
        shard += data
    prefix.with_name(prefix.name + ".index").write_bytes(_table(sorted(entries.items()), block))
    for i, content in enumerate(contents):
        prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{shards:05d}").write_bytes(content)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    return _varint(number << 3) + _varint(value) if value else b""


def _table(pairs: list[tuple[bytes, bytes]], block: int) -> bytes:
    content, index, part = bytearray(), [], []
    for i, pair in enumerate(pairs):
        part.append(pair)
        if sum(len(key) + len(value) for key, value in part) >= block or i == len(pairs) - 1:
            index.append((pair[0], _placed(content, part)))
            part = []
    footer = _placed(content, []) + _placed(content, index)
    return bytes(content) + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def _placed(content: bytearray, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Appends a block of pairs with its trailer, and gives its handle."""
    block, before = bytearray(), b""
    for key, value in pairs:
        shared = next(
            (i for i, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), min(len(before), len(key))
        )
        block += _varint(shared) + _varint(len(key) - shared) + _varint(len(value)) + key[shared:] + value
        before = key
    block += struct.pack("<II", 0, 1)
    handle = _varint(len(content)) + _varint(len(block))
    content += block + b"\0" + struct.pack("<I", masked(crc32c(bytes(block) + b"\0")))
    return handle
