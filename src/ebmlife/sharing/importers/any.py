"""Loads any file of weights that one of the importers recognizes."""

from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.sharing.importers import authors, biggan_deep, mimicry
from ebmlife.sharing.importers.formats import Imported, imported, recognized
from ebmlife.sharing.importers.states import read_state_dict


def load(path: str | Path, *, net: str | None = None) -> Imported:
    """Loads a TensorFlow checkpoint of the paper's authors, or a state dict of mimicry or Hugging Face.

    Args:
        path: The checkpoint or the file.
        net: The kind of network, such as "ebm-sngan32"; by default it follows from the names of the tensors.

    Returns:
        The network with its kind and options.

    Raises:
        BadInput: If the file is damaged or holds no known network.
    """
    if Path(f"{str(path).removesuffix('.index')}.index").is_file():
        tensors, formats = authors.authors_tensors(path), authors.FORMATS
    else:
        state = read_state_dict(path)
        if recognized(state, mimicry.FORMATS):
            tensors, formats = mimicry.with_our_epsilon(state), mimicry.FORMATS
        else:
            tensors, formats = biggan_deep.normalized(state), biggan_deep.FORMATS
    kind = net or recognized(tensors, formats)
    if kind is None:
        known = dict.fromkeys((*authors.FORMATS, *mimicry.FORMATS, *biggan_deep.FORMATS))
        raise BadInput(f"{path} holds weights of no network known here; known kinds: {', '.join(known)}")
    return imported(tensors, formats, kind, str(path))
