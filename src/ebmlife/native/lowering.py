"""A network's own forward pass, traced, as steps for the gradient with respect to x.

The network is described nowhere but in its `forward`: torch.fx traces it. What it computes from weights alone (a
folded kernel) becomes a function that is called when weights have changed.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ebmlife.native.steps import Convolution, Kind, Step, Steps, Unsupported
from ebmlife.native.taps import Taps, averaging, backward, of_convolution
from ebmlife.native.tracing import traced

_RELU = (F.relu, torch.relu, nn.ReLU)
_ADD = (operator.add, torch.add)  # in-place operations are left to autograd: other readers would see their result
_CONV = (F.conv2d, torch.conv2d, nn.Conv2d)
_POOL = (F.avg_pool2d, nn.AvgPool2d)
_CONV_OPTIONS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}  # in the order of F.conv2d, with its defaults


def lower(net: nn.Module, shape: tuple[int, ...]) -> Steps:
    """The steps for inputs of this shape (C, H, W), or Unsupported."""
    if len(shape) != 3:
        raise Unsupported(f"states of shape {shape}")
    try:
        return _Lowering(net, *traced(net, shape)).run()
    except Unsupported:
        raise
    except Exception as error:  # whatever a stranger's forward does to the tracer, autograd can do the work
        raise Unsupported(f"{type(error).__name__}: {error}") from error


class _Lowering:
    def __init__(self, net: nn.Module, nodes: list[fx.Node], shapes: dict[fx.Node, tuple[int, ...]]) -> None:
        self.net, self.nodes, self.shapes = net, nodes, shapes
        self.steps: list[Step] = []
        self.map: dict[fx.Node, str] = {}  # the feature map that holds a node's value
        self.slope: dict[fx.Node, str] = {}  # the map that holds the gradient with respect to it, as far as known
        self.sizes: dict[str, int] = {}
        self.of_x = self._depending_on_x()

    def run(self) -> Steps:
        features, head = self._head()
        last = self.nodes.index(features)
        body = [node for node in self.nodes[: last + 1] if node in self.of_x]
        for node in body:
            self._forward(node)
        weight, pixels = head, self._pixels(features)
        self._send(features, Kind.FILL, source=None, weight=lambda: weight().flatten() / pixels)
        for node in reversed(body):
            if node in self.slope:
                self._backward(node)
        x = body[0]
        return Steps(self.steps, self.map[x], self.slope[x], self.sizes)

    # What the nodes are

    def _depending_on_x(self) -> set[fx.Node]:
        found: set[fx.Node] = set()
        for node in self.nodes:
            if node.op == "placeholder" or any(source in found for source in node.all_input_nodes):
                found.add(node)
        return found

    def _does(self, node: fx.Node) -> Any:
        """The function that a node calls, or the module."""
        return self.net.get_submodule(str(node.target)) if node.op == "call_module" else node.target

    def _is_same(self, node: fx.Node) -> bool:
        """Whether its value is its input's; layouts are the program's own."""
        return self._is(node, (nn.Identity,)) or (node.op, node.target) == ("call_method", "contiguous")

    def _is(self, node: fx.Node, functions: tuple[Any, ...]) -> bool:
        what = self._does(node)
        return what in functions if node.op == "call_function" else type(what) in functions

    def _users(self, node: fx.Node) -> list[fx.Node]:
        return [user for user in node.users if user in self.of_x]

    def _sides(self, node: fx.Node) -> tuple[int, int]:
        return self.shapes[node][2], self.shapes[node][3]

    def _pixels(self, node: fx.Node) -> int:
        return math.prod(self._sides(node))

    def _head(self) -> tuple[fx.Node, Callable[[], Tensor]]:
        """E = linear(mean over pixels of features): the features and the linear weights (1, C)."""
        node = self.nodes[-1].all_input_nodes[0]
        while node.op == "call_method" and node.target in ("squeeze", "flatten", "view"):
            node = node.all_input_nodes[0]
        linear = self._does(node)
        if type(linear) is not nn.Linear or linear.out_features != 1:
            raise Unsupported("no linear layer to one number at the end")
        mean = node.all_input_nodes[0]
        dims: Any = mean.args[1] if len(mean.args) > 1 else mean.kwargs.get("dim")
        if mean.op != "call_method" or mean.target != "mean" or tuple(dims or ()) not in ((2, 3), (-2, -1)):
            raise Unsupported("no mean over pixels before the linear layer")
        return mean.all_input_nodes[0], lambda: linear.weight

    # Values

    def _forward(self, node: fx.Node) -> None:
        if node in self.map:  # done together with an earlier one
            return
        if node.op == "placeholder":
            self._place(node)
        elif self._is_same(node):
            self.map[node] = self.map[node.all_input_nodes[0]]
        elif self._is(node, _RELU):
            (source,) = node.all_input_nodes
            self._refuse_in_place(node)
            self._emit(Kind.PASS, source, node, mask=self.map[source])
        elif self._is(node, _ADD):
            one, other = self._terms(node)
            self._emit(Kind.PASS, one, node, other=self.map[other])
        elif self._is(node, _POOL):
            self._emit(Kind.MIX, node.all_input_nodes[0], node, taps=averaging(self._pool_taps(node)))
        elif self._is(node, _CONV):
            self._convolve(node)
        else:
            raise Unsupported(f"{node.op} {node.target}")

    def _convolve(self, node: fx.Node) -> None:
        """With what follows it alone, where that is a relu, or an addition of something that is already there."""
        conv, users = self._conv(node), self._users(node)
        following = users[0] if len(users) == 1 else None
        details = {
            "taps": conv.taps,
            "places": conv.places,
            "weight": conv.weight,
            "bias": conv.bias,
            "convolution": conv.what,
        }
        if following and self._is(following, _RELU):
            self._refuse_in_place(following)
            self.map[node] = self._place(following)
            self._emit(Kind.CONVOLVE, conv.source, following, rectify=True, **details)
        elif following and self._is(following, _ADD):
            ready = [self.map[term] for term in self._terms(following) if term is not node and term in self.map]
            if ready:
                self.map[node] = self._place(following)
                self._emit(Kind.CONVOLVE, conv.source, following, other=ready[0], **details)
            else:
                self._emit(Kind.CONVOLVE, conv.source, node, **details)
        else:
            self._emit(Kind.CONVOLVE, conv.source, node, **details)

    def _refuse_in_place(self, relu: fx.Node) -> None:
        if getattr(self._does(relu), "inplace", False) or len(relu.args) > 1 or relu.kwargs.get("inplace", False):
            raise Unsupported("a relu in place")

    def _terms(self, node: fx.Node) -> tuple[fx.Node, fx.Node]:
        terms = [term for term in node.args if isinstance(term, fx.Node) and term in self.of_x]
        if node.kwargs or len(node.args) != 2 or len(terms) != 2 or self.shapes[terms[0]] != self.shapes[terms[1]]:
            raise Unsupported("an addition of other than two maps of one shape")
        return terms[0], terms[1]

    def _place(self, node: fx.Node) -> str:
        if node not in self.map:
            self.map[node] = node.name
            self.sizes[node.name] = self.shapes[node][1] * self._pixels(node)
        return self.map[node]

    def _emit(self, kind: Kind, source: fx.Node, node: fx.Node, **details: Any) -> None:
        inputs, outputs = self.shapes[source][1], self.shapes[node][1]
        self.steps.append(
            Step(kind, self.map[source], self._place(node), self._pixels(node), inputs, outputs, **details)
        )

    # Gradients, from the end

    def _backward(self, node: fx.Node) -> None:
        slope = self.slope[node]
        if node.op == "placeholder":
            return
        if self._is_same(node):
            self._alias(node.all_input_nodes[0], slope)
        elif self._is(node, _ADD):
            for term in self._terms(node):
                self._alias(term, slope)
        elif self._is(node, _RELU):
            self._send(node.all_input_nodes[0], Kind.PASS, source=node, mask=self.map[node])
        elif self._is(node, _POOL):
            source = node.all_input_nodes[0]
            taps = backward(averaging(self._pool_taps(node)), self._pixels(source))
            self._send(source, Kind.MIX, source=node, taps=taps)
        else:
            conv = self._conv(node)
            weight, pixels = conv.weight, self._pixels(conv.source)
            self._send(
                conv.source,
                Kind.CONVOLVE,
                source=node,
                taps=backward(conv.taps, pixels),
                places=conv.places,
                weight=lambda: weight().transpose(0, 1),
                convolution=replace(conv.what, source=self._sides(node), backward=True),
            )

    def _alias(self, node: fx.Node, slope: str) -> None:
        """The gradient of a sum is that of each term: nothing to compute, unless something is there already."""
        if node not in self.slope:
            self.slope[node] = slope
        else:
            self._append_slope(node, Kind.PASS, slope, self.shapes[node][1])

    def _send(self, node: fx.Node, kind: Kind, *, source: fx.Node | None, **details: Any) -> None:
        """A contribution to the gradient with respect to `node`; straight through a relu that nothing else reads."""
        mask = details.pop("mask", None)
        if self._is(node, _RELU) and len(self._users(node)) == 1 and mask is None:
            mask, node = self.map[node], node.all_input_nodes[0]
        inputs = self.shapes[source][1] if source else 0
        self._append_slope(node, kind, self.slope[source] if source else "", inputs, mask=mask, **details)

    def _append_slope(self, node: fx.Node, kind: Kind, source: str, inputs: int, **details: Any) -> None:
        name = f"slope {len(self.steps)} of {node.name}"
        outputs, pixels = self.shapes[node][1], self._pixels(node)
        self.sizes[name] = outputs * pixels
        self.steps.append(Step(kind, source, name, pixels, inputs, outputs, other=self.slope.get(node), **details))
        self.slope[node] = name

    # Layers

    def _pool_taps(self, node: fx.Node) -> Taps:
        module = self._does(node)
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
        return of_convolution((height, width), (2, 2), stride=2, padding=0)

    def _conv(self, node: fx.Node) -> "_Conv":
        module = self._does(node)
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
        return _Conv(
            source,
            of_convolution((size[2], size[3]), (height, width), stride, padding),
            height * width,
            lambda: self._constant(kernel).flatten(2),
            None if bias is None else lambda: self._constant(bias),
            Convolution((size[2], size[3]), (height, width), stride, padding, backward=False),
        )

    def _constant(self, value: Any) -> Any:
        """What a node that does not depend on x comes to with the weights of now."""
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
        return self._does(value)(*arguments, **options)


@dataclass(frozen=True)
class _Attribute:
    """A module's tensor by name: another may have taken its place when it is read."""

    module: nn.Module
    name: str


@dataclass(frozen=True)
class _Conv:
    source: fx.Node
    taps: Taps
    places: int
    weight: Callable[[], Tensor]
    bias: Callable[[], Tensor] | None
    what: Convolution


def _single(option: Any) -> int:
    """2 or (2, 2) -> 2."""
    values = set(option) if isinstance(option, (tuple, list)) else {option}
    if len(values) != 1 or not isinstance(next(iter(values)), int):
        raise Unsupported(f"a convolution with {option}")
    return int(values.pop())
