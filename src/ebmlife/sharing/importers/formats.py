"""Descriptions of foreign networks, and the conversion of their tensors to our weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput, nearest

Tensors = Mapping[str, Tensor]
Options = dict[str, int]


@dataclass(frozen=True)
class Format:
    """How one kind of network is stored in a foreign file."""

    sign: str  # the name of a tensor that no later format of the same table has
    network: Callable[..., nn.Module]
    options: Callable[[Tensors], Options]  # of the network, from the shapes of tensors
    name: Callable[[str], str]  # from the name of our weight to theirs
    value: Callable[[str, Tensor], Tensor]  # from their name and tensor to ours
    ignored: tuple[str, ...] = ()  # suffixes of names of tensors that are not weights


@dataclass(frozen=True)
class Imported:
    """An imported network."""

    kind: str  # such as 'ebm-sngan32'
    network: Callable[..., nn.Module]  # builds `net` from `options`
    options: Options
    net: nn.Module  # in eval mode


def imported(tensors: Tensors, formats: Mapping[str, Format], net: str, origin: str) -> Imported:
    """Returns the network of kind `net` with these weights. All tensors must be used, or BadInput is raised."""
    if net not in formats:
        raise BadInput(f"{origin}: unknown kind of network {net!r}{nearest(net, formats)}")
    form = formats[net]
    try:
        options = form.options(tensors)
        made = form.network(**options)
        names = _fill(made, form, tensors)
    except KeyError as error:
        raise BadInput(f"{origin} is not {net}: it has no tensor {error}{_instead(tensors, formats, net)}") from error
    except (_MisfitError, ValueError, IndexError) as error:
        raise BadInput(f"{origin} is not {net}: {error}{_instead(tensors, formats, net)}") from error
    unused = sorted(name for name in set(tensors) - names if not name.endswith(form.ignored))
    if unused:
        instead = _instead(tensors, formats, net)
        raise BadInput(f"{origin} is not {net}: its tensor {unused[0]!r} has no place in one{instead}")
    return Imported(net, form.network, options, made.eval())


def recognized(tensors: Tensors, formats: Mapping[str, Format]) -> str | None:
    """Returns the kind of network that these tensors belong to, by their names."""
    return next((name for name, form in formats.items() if form.sign in tensors), None)


class _MisfitError(Exception):
    pass


def _fill(net: nn.Module, form: Format, tensors: Tensors) -> set[str]:
    """Loads the weights and returns the names of the tensors that were used."""
    state, names = net.state_dict(), set()
    for key, target in state.items():
        if not key.endswith("num_batches_tracked"):
            name = form.name(key)
            names.add(name)
            state[key] = _fitting(form.value(name, tensors[name]), target, name)
    net.load_state_dict(state)
    return names


def _fitting(value: Tensor, target: Tensor, name: str) -> Tensor:
    if value.shape != target.shape:
        raise _MisfitError(f"its tensor {name!r} has the shape {tuple(value.shape)}, not {tuple(target.shape)}")
    if not torch.isfinite(value).all():
        raise _MisfitError(f"its tensor {name!r} is not finite")
    return value.to(target.dtype).contiguous()


def _instead(tensors: Tensors, formats: Mapping[str, Format], net: str) -> str:
    found = recognized(tensors, formats)
    if found == net:
        return ", though it looks like one"
    return f"; it looks like {found}" if found else f"; known kinds: {', '.join(formats)}"
