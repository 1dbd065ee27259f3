"""Reads TensorFlow's checkpoints without TensorFlow.

`X.index` is a sorted table, as LevelDB writes it, of names and where their tensors lie; `X.data-00000-of-00001` and so
on hold the bytes. All checksums are verified, so that damaged weights are never loaded.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from ebmlife.errors import BadInput
from ebmlife.sharing.importers.crc32c import crc32c, masked

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48  # bytes: two block handles, padding, the magic number
_TRAILER = 5  # bytes behind each block: its compression and its checksum
_VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/"
_TYPES = {  # TensorFlow's numbers for the types that weights have
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}
Fields = dict[int, list[int | bytes]]  # of a protocol buffer, by their numbers


class _DamageError(Exception):
    pass


@dataclass(frozen=True)
class _Entry:
    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


def read_checkpoint(prefix: str | Path) -> dict[str, Tensor]:
    """Returns the variables of the checkpoint `prefix` (X for X.index) by path, without those of optimizers."""
    index = Path(f"{str(prefix).removesuffix('.index')}.index")
    if not index.is_file():
        raise BadInput(f"{prefix}: no {index.name} there; expected the name of a TensorFlow checkpoint without .index")
    place = index
    try:
        entries = dict(_table(index.read_bytes()))
        shards = _number(_fields(entries.pop(b"", b"")), 1)
        tensors = {}
        for key, value in entries.items():
            name = key.decode()
            if name.endswith(_VARIABLE) and _SLOT not in name:
                entry = _entry(value)
                place = index.with_suffix(f".data-{entry.shard:05d}-of-{shards:05d}")
                tensors[name.removesuffix(_VARIABLE)] = _tensor(place, entry)
        return tensors
    except FileNotFoundError as error:
        raise BadInput(f"{index} needs {place.name} beside it, which is not there; copy it too") from error
    except (_DamageError, ValueError, IndexError, struct.error) as error:
        raise BadInput(f"{place} is damaged or no file of a TensorFlow checkpoint ({error}); fetch it again") from error


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the pairs of a table. An index block lists the blocks of pairs."""
    if len(content) < _FOOTER or struct.unpack("<Q", content[-8:])[0] != _MAGIC:
        raise _DamageError("its end is missing")
    footer = content[-_FOOTER:]
    _, at = _handle(footer, 0)
    (offset, size), _ = _handle(footer, at)
    for _, handle in _pairs(_block(content, offset, size)):
        (offset, size), _ = _handle(handle, 0)
        yield from _pairs(_block(content, offset, size))


def _block(content: bytes, offset: int, size: int) -> bytes:
    block, trailer = content[offset : offset + size], content[offset + size : offset + size + _TRAILER]
    compression, checksum = struct.unpack("<BI", trailer)
    if masked(crc32c(block + trailer[:1])) != checksum:
        raise _DamageError("a checksum is wrong")
    if compression:
        raise _DamageError("it is compressed, which TensorFlow does not do to checkpoints")
    return block


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the pairs of a block. A key is stored without the prefix that it shares with the one before it."""
    restarts = struct.unpack("<I", block[-4:])[0]
    at, end, key = 0, len(block) - 4 * (restarts + 1), b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(content, at)
    size, at = _varint(content, at)
    return (offset, size), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Returns a number in base 128, lowest digit first, and the position of its end."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(message: bytes) -> Fields:
    fields: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
            case 2:
                length, at = _varint(message, at)
                value, at = message[at : at + length], at + length
            case 5:
                value, at = struct.unpack("<I", message[at : at + 4])[0], at + 4
            case kind:
                raise _DamageError(f"a field of type {kind} is unexpected")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _entry(message: bytes) -> _Entry:
    fields = _fields(message)
    if 7 in fields:
        raise _DamageError("a variable is split into slices, which is not supported")
    shape = _fields(b"".join(_messages(fields, 2)))
    sizes = tuple(_number(_fields(dimension), 1) for dimension in _messages(shape, 2))
    numbers = (_number(fields, number) for number in (3, 4, 5, 6))
    return _Entry(_number(fields, 1), sizes, *numbers)


def _number(fields: Fields, number: int) -> int:
    value = fields.get(number, [0])[-1]  # protocol buffers omit a value of 0
    if isinstance(value, bytes):
        raise _DamageError("a number is expected where there is none")
    return value


def _messages(fields: Fields, number: int) -> list[bytes]:
    values = fields.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise _DamageError("a message is expected where there is none")
    return [value for value in values if isinstance(value, bytes)]


def _tensor(file: Path, entry: _Entry) -> Tensor:
    dtype = _TYPES.get(entry.dtype)
    if dtype is None:
        raise _DamageError(f"a variable has TensorFlow's type {entry.dtype}, which weights do not have")
    with file.open("rb") as stream:
        stream.seek(entry.offset)
        content = stream.read(entry.size)
    if len(content) != entry.size or entry.size != prod(entry.shape) * dtype.itemsize:
        raise _DamageError("bytes are missing")
    if masked(crc32c(content)) != entry.checksum:
        raise _DamageError("a checksum is wrong")
    if not content:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(entry.shape)
