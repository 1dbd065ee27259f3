"""Loads any file of weights that one of the importers recognizes."""

from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.sharing.importers import authors, biggan_deep, mimicry
from ebmlife.sharing.importers.formats import Imported, imported, recognised
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
        tensors, kinds = authors.authors_tensors(path), authors.KINDS
    else:
        state = read_state_dict(path)
        if recognised(state, mimicry.KINDS):
            tensors, kinds = mimicry.same_normalisation(state), mimicry.KINDS
        else:
            tensors, kinds = biggan_deep.normalised(state), biggan_deep.KINDS
    kind = net or recognised(tensors, kinds)
    if kind is None:
        known = dict.fromkeys((*authors.KINDS, *mimicry.KINDS, *biggan_deep.KINDS))
        raise BadInput(f"{path} holds weights of no network known here; known kinds: {', '.join(known)}")
    return imported(tensors, kinds, kind, str(path))
