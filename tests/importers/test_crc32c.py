import numpy as np
import pytest

from ebmlife.sharing.importers.crc32c import crc32c, masked


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_the_vectors_of_the_iscsi_standard(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


def one_byte_after_another(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize("length", [1, 63, 64, 127, 129, 8191, 8192 + 17, 70_001])
def test_the_number_of_lanes_does_not_change_the_checksum(length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    assert crc32c(data) == one_byte_after_another(data)


def test_masking() -> None:
    """A turn of 15 bits and the constant that LevelDB adds."""
    assert masked(0) == 0xA282EAD8
    assert masked(1 << 15) == 0xA282EAD9
    assert masked(0xFFFFFFFF) == 0xA282EAD7
