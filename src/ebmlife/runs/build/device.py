"""Devices by name."""

import torch

from ebmlife.errors import BadInput


def find_device(name: str) -> torch.device:
    """Returns the device of that name; "auto" is a GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.ones(1, device=name).cpu()  # 'meta' exists, but computes nothing
        return torch.device(name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(f"device {name!r} is not available; use --device cpu or --device auto") from error
