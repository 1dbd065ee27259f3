"""Settings and images that users send for trials, checked before use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ebmlife.data import images
from ebmlife.data.dataset import from_bytes
from ebmlife.data.squares import squared
from ebmlife.errors import BadInput

TYPES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/bmp": "BMP"}
LARGEST = 8 * 2**20  # bytes of an upload
PIXELS = 2**24  # of the image in it: a small file can unpack to gigabytes
LIMITS = {"radius": (0, 64), "steps": (1, 100), "langevin": (1, 5000)}  # smallest and largest values
ATTACKERS = {"transfer": "the classifier only", "bpda": "classifier and defense (BPDA)"}  # what is known, by gradient


@dataclass(frozen=True)
class TrialSettings:
    """The settings of a trial."""

    radius: int  # of the attack, in 255ths of the pixel range
    steps: int  # of the attack
    langevin: int  # steps of the defense
    attacker: str  # the gradient of the attack

    @classmethod
    def parse(cls, values: dict[str, str]) -> Self:
        counts = {name: _integer(name, values.get(name, ""), *limits) for name, limits in LIMITS.items()}
        if values.get("attacker") not in ATTACKERS:
            raise BadInput(f"attacker must be one of {', '.join(ATTACKERS)}")
        return cls(attacker=values["attacker"], **counts)


def _integer(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and least <= int(text) <= most):
        raise BadInput(f"{name} must be a whole number from {least} to {most}")
    return int(text)


@dataclass(frozen=True)
class Form:
    """The form on the page."""

    classifier: str  # name of the classifier
    shape: tuple[int, ...]  # of the model's images
    langevin: int  # default number of Langevin steps
    radius: int = 8
    steps: int = 20
    examples: Sequence[str] = ()  # pictures to choose from


def decode_image(body: bytes, *, kind: str, shape: tuple[int, ...]) -> Tensor:
    """Returns an upload as an image (C, H, W) in [-1, 1] of the model's size."""
    if kind not in TYPES:
        raise BadInput(f"the image must be one of {', '.join(TYPES.values())}")
    try:
        with images.opened(body, formats=[TYPES[kind]], pixels=PIXELS) as file:
            pixels = squared(file, size=shape[1], channels=shape[0])
    except images.TooLarge as error:
        raise BadInput(f"the image is too large: {error}") from error
    except Exception as error:  # Pillow's decoders raise many types of exceptions for damaged files
        raise BadInput(f"this file cannot be read as a {TYPES[kind]} image; it may be damaged") from error
    return from_bytes(torch.from_numpy(pixels.copy()))
