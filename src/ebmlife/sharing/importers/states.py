"""Reads PyTorch state dicts from safetensors files, or from pickles without executing code."""

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ebmlife.errors import BadInput


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Returns the tensors of a file by name, also those under 'model_state_dict' or 'state_dict'."""
    file = Path(path)
    if not file.is_file():
        raise BadInput(f"{file}: no such file")
    try:
        held: Any = (
            load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True, mmap=False)
        )
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"{file} cannot be read as weights ({reason}); it is damaged, or holds more than tensors"
        ) from error
    for wrapper in ("model_state_dict", "state_dict"):
        held = held.get(wrapper, held) if isinstance(held, dict) else held
    tensors = {str(k): v for k, v in held.items() if isinstance(v, Tensor)} if isinstance(held, dict) else {}
    if not tensors:
        raise BadInput(f"{file} holds no tensors by name; expected a state dict")
    return tensors
