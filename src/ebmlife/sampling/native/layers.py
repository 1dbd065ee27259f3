"""The layers of a traced network: the kind of each node of the trace, and the values of its options."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ebmlife.sampling.native.steps import (
    RELU,
    SILU,
    SOFT_LEAKY_RELU,
    Activation,
    Convolution,
    Unsupported,
    leaky_relu,
    soft_leaky_relu,
    softplus,
)
from ebmlife.sampling.native.taps import Taps, averaging, of_convolution

ACTIVATIONS = {
    function: name
    for name, functions in {
        "relu": (F.relu, torch.relu, nn.ReLU),
        "leaky_relu": (F.leaky_relu, nn.LeakyReLU),
        "silu": (F.silu, nn.SiLU),
        "softplus": (F.softplus, nn.Softplus),
    }.items()
    for function in functions
}
ADD = (operator.add, torch.add)  # in-place operations are left to autograd: other readers would see their result
CONV = (F.conv2d, torch.conv2d, nn.Conv2d)
POOL = (F.avg_pool2d, nn.AvgPool2d)
_CONV_OPTIONS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}  # in the order of F.conv2d, with its defaults


@dataclass(frozen=True)
class Conv:
    """A convolution of the source's map."""

    source: fx.Node
    taps: Taps
    places: int
    weight: Callable[[], Tensor]
    bias: Callable[[], Tensor] | None
    what: Convolution


class Layers:
    """The nodes of a trace in their order, with the shapes of their values; `of_x` are those that depend on x."""

    def __init__(self, net: nn.Module, nodes: list[fx.Node], shapes: dict[fx.Node, tuple[int, ...]]) -> None:
        self.net, self.nodes, self.shapes = net, nodes, shapes
        self._known: dict[Any, Any] = {}
        self.of_x = self._depending_on_x()

    def _depending_on_x(self) -> set[fx.Node]:
        found: set[fx.Node] = set()
        for node in self.nodes:
            if node.op == "placeholder" or any(source in found for source in node.all_input_nodes):
                found.add(node)
        return found

    def does(self, node: fx.Node) -> Any:
        """The function that a node calls, or the module."""
        return self.net.get_submodule(str(node.target)) if node.op == "call_module" else node.target

    def is_same(self, node: fx.Node) -> bool:
        """Whether its value is its input's; layouts are the program's own."""
        return self.is_a(node, (nn.Identity,)) or (node.op, node.target) == ("call_method", "contiguous")

    def same(self, node: fx.Node) -> fx.Node:
        """The node whose value it has."""
        while self.is_same(node):
            node = node.all_input_nodes[0]
        return node

    def is_a(self, node: fx.Node, functions: tuple[Any, ...]) -> bool:
        what = self.does(node)
        return what in functions if node.op == "call_function" else type(what) in functions

    def readers(self, node: fx.Node) -> list[fx.Node]:
        return [user for user in node.users if user in self.of_x]

    def sides(self, node: fx.Node) -> tuple[int, int]:
        return self.shapes[node][2], self.shapes[node][3]

    def pixels(self, node: fx.Node) -> int:
        return math.prod(self.sides(node))

    def head(self) -> tuple[fx.Node, nn.Linear]:
        """E = linear(mean over pixels of features): the features and the linear layer."""
        node = self.nodes[-1].all_input_nodes[0]
        while node.op == "call_method" and node.target in ("squeeze", "flatten", "view"):
            node = node.all_input_nodes[0]
        linear = self.does(node)
        if type(linear) is not nn.Linear or linear.out_features != 1:
            raise Unsupported("no linear layer to one number at the end")
        mean = node.all_input_nodes[0]
        dims: Any = mean.args[1] if len(mean.args) > 1 else mean.kwargs.get("dim")
        if mean.op != "call_method" or mean.target != "mean" or tuple(dims or ()) not in ((2, 3), (-2, -1)):
            raise Unsupported("no mean over pixels before the linear layer")
        return mean.all_input_nodes[0], linear

    def activation(self, node: fx.Node) -> Activation | None:
        """What a node applies to each value, or None where it does something else."""
        function = self.does(node)
        if node.op == "call_function" and function in SOFT_LEAKY_RELU:
            _, alpha, epsilon = node.args
            if not isinstance(alpha, float) or not isinstance(epsilon, float):
                raise Unsupported("a soft leaky ReLU whose shape is computed")
            return soft_leaky_relu(alpha, epsilon)
        name = ACTIVATIONS.get(function if node.op == "call_function" else type(function))
        if name is None or node.op not in ("call_function", "call_module"):
            return None
        options = _options(function, node)
        if options.pop("inplace", False):
            raise Unsupported("an activation in place")
        if name == "leaky_relu":
            return leaky_relu(float(options.get("negative_slope", 0.01)))
        if name == "softplus":
            return softplus(float(options.get("beta", 1.0)))
        return SILU if name == "silu" else RELU

    def terms(self, node: fx.Node) -> tuple[fx.Node, fx.Node]:
        terms = [term for term in node.args if isinstance(term, fx.Node) and term in self.of_x]
        if node.kwargs or len(node.args) != 2 or len(terms) != 2 or self.shapes[terms[0]] != self.shapes[terms[1]]:
            raise Unsupported("an addition of other than two maps of one shape")
        return terms[0], terms[1]

    def pool(self, node: fx.Node) -> Taps:
        module = self.does(node)
        options: tuple[Any, ...]
        if isinstance(module, nn.AvgPool2d):
            options = (module.kernel_size, module.stride, module.padding, module.ceil_mode, module.divisor_override)
        else:
            size = node.args[1] if len(node.args) == 2 and not node.kwargs else None
            options = (size, size, 0, False, None)
        height, width = self.shapes[node.all_input_nodes[0]][2:]
        kernel, stride, *others = options
        plain = kernel in (2, (2, 2)) and stride in (2, (2, 2)) and others in ([0, False, None], [(0, 0), False, None])
        if not plain or height % 2 or width % 2:
            raise Unsupported("an average pool of other than 2x2 pixels")
        return averaging(of_convolution((height, width), (2, 2), stride=2, padding=0))

    def convolution(self, node: fx.Node) -> Conv:
        module = self.does(node)
        if isinstance(module, nn.Conv2d):
            given: dict[str, Any] = {name: getattr(module, name) for name in _CONV_OPTIONS}
            given |= {
                name: _Attribute(module, name) for name in ("weight", "bias") if getattr(module, name) is not None
            }
            given["input"] = node.all_input_nodes[0]
            if module.padding_mode != "zeros":
                raise Unsupported("padding with other than zeros")
        else:
            given = dict(zip(("input", "weight", "bias", *_CONV_OPTIONS), node.args, strict=False)) | node.kwargs
        stride, padding, dilation, groups = (
            _single(given.get(name, default)) for name, default in _CONV_OPTIONS.items()
        )
        if dilation != 1 or groups != 1:
            raise Unsupported("a dilated or grouped convolution")
        source, kernel, bias = given["input"], given["weight"], given.get("bias")
        height, width = self._constant(kernel).shape[2:]
        size = self.shapes[source]
        return Conv(
            source,
            of_convolution((size[2], size[3]), (height, width), stride, padding),
            height * width,
            lambda: self.once(kernel).flatten(2),
            None if bias is None else lambda: self._constant(bias),
            Convolution((size[2], size[3]), (height, width), stride, padding, backward=False),
        )

    def once(self, kernel: Any) -> Any:
        """The value of `_constant`, computed once until `forget`: the backward pass reads the same kernel."""
        if kernel not in self._known:
            self._known[kernel] = self._constant(kernel)
        return self._known[kernel]

    def forget(self) -> None:
        self._known.clear()

    def _constant(self, value: Any) -> Any:
        """The value of a node that does not depend on x, with the current weights."""
        if isinstance(value, (tuple, list)):
            return type(value)(self._constant(item) for item in value)
        if isinstance(value, _Attribute):
            return getattr(value.module, value.name)
        if not isinstance(value, fx.Node):
            return value
        if value in self.of_x:
            raise Unsupported("weights that depend on x")
        if value.op == "get_attr":
            module, _, name = str(value.target).rpartition(".")
            return getattr(self.net.get_submodule(module), name)
        arguments = self._constant(value.args)
        options = {name: self._constant(item) for name, item in value.kwargs.items()}
        if value.op == "call_method":
            return getattr(arguments[0], str(value.target))(*arguments[1:], **options)
        return self.does(value)(*arguments, **options)


@dataclass(frozen=True)
class _Attribute:
    """A module's tensor by name: another may have taken its place when it is read."""

    module: nn.Module
    name: str


def _options(function: Any, node: fx.Node) -> dict[str, Any]:
    """The options of an activation, from its module or from the arguments after its input."""
    if node.op == "call_module":
        return {
            name: getattr(function, name) for name in ("inplace", "negative_slope", "beta") if hasattr(function, name)
        }
    order = {F.leaky_relu: ("negative_slope", "inplace"), F.softplus: ("beta", "threshold")}.get(function, ("inplace",))
    return dict(zip(order, node.args[1:], strict=False)) | dict(node.kwargs)


def _single(option: Any) -> int:
    """2 or (2, 2) -> 2."""
    values = set(option) if isinstance(option, (tuple, list)) else {option}
    if len(values) != 1 or not isinstance(next(iter(values)), int):
        raise Unsupported(f"a convolution with {option}")
    return int(values.pop())
