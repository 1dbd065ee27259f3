"""A network's own forward pass, traced, as steps for the gradient with respect to x.

The network is described nowhere but in its `forward`: torch.fx traces it. What it computes from weights alone (a
folded kernel) becomes a function that is called when weights have changed.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from torch import fx, nn

from ebmlife.sampling.native.layers import ADD, CONV, POOL, Conv, Layers
from ebmlife.sampling.native.steps import Activation, Gate, Map, Op, Read, Step, Steps, Unsupported
from ebmlife.sampling.native.taps import Band, Taps, backward, by_place
from ebmlife.sampling.native.tracing import traced

_ENERGY = "energy"
_FACTOR = "factor"  # dL / dE(x) of each image, where the gradient of weights is computed
_BAND_LANES = 2048  # of the gradient that a step WEIGHTS reads: with the source, what stays in a core's cache


def lower(net: nn.Module, shape: tuple[int, ...], *, learning: bool = False) -> Steps:
    """The steps for inputs of this shape (C, H, W), or Unsupported.

    With `learning`, for the gradient of weights in place of that with respect to x.
    """
    if len(shape) != 3:
        raise Unsupported(f"states of shape {shape}")
    try:
        return _Lowering(Layers(net, *traced(net, shape)), learning).run()
    except Unsupported:
        raise
    except Exception as error:  # any forward pass may fail to trace; autograd is the fallback
        raise Unsupported(f"{type(error).__name__}: {error}") from error


class _Lowering:
    def __init__(self, layers: Layers, learning: bool) -> None:
        self.layers, self.learning = layers, learning
        self.steps: list[Step] = []
        self.map: dict[fx.Node, str] = {}  # the feature map that holds a node's value
        self.grad: dict[fx.Node, str] = {}  # the map that holds the gradient with respect to it, as far as known
        self.gate: dict[fx.Node, Gate] = {}  # of an activation, for its backward pass
        self.maps: dict[str, Map] = {}

    def run(self) -> Steps:
        features, linear = self.layers.head()
        last = self.layers.nodes.index(features)
        body = [node for node in self.layers.nodes[: last + 1] if node in self.layers.of_x]
        for node in body:
            self._forward(node)
        pixels = self.layers.pixels(features)
        head: dict[str, Any] = {"weight": lambda: linear.weight.flatten() / pixels}
        self._reduce(features, pixels, bias=None if linear.bias is None else lambda: linear.bias, **head)
        if self.learning:
            self._learn_head(features, linear)
            self._send(features, Op.SPREAD, source=None, source_map=_FACTOR, **head)
        else:
            self._send(features, Op.FILL, source=None, **head)
        for node in reversed(body):
            if node in self.grad:
                self._backward(node)
        x = body[0]
        output = _FACTOR if self.learning else self.grad[x]
        return Steps(self.steps, self.map[x], output, _ENERGY, self.maps, self.layers.forget)

    def _reduce(self, features: fx.Node, pixels: int, **details: Any) -> None:
        self.maps[_ENERGY] = Map(1, 1, exact=True)
        channels = self.layers.shapes[features][1]
        self.steps.append(Step(Op.REDUCE, self.map[features], _ENERGY, pixels, channels, 1, **details))

    # Values

    def _forward(self, node: fx.Node) -> None:
        if node in self.map:  # done together with an earlier one
            return
        if node.op == "placeholder":
            self._place(node)
        elif self.layers.is_same(node):
            self.map[node] = self.map[node.all_input_nodes[0]]
        elif (activation := self.layers.activation(node)) is not None:
            self._emit(Op.PASS, node.all_input_nodes[0], node, **self._activated(node, activation))
        elif self.layers.is_a(node, ADD):
            one, other = self.layers.terms(node)
            self._emit(Op.PASS, one, node, other=self.map[other])
        elif self.layers.is_a(node, POOL):
            self._emit(Op.MIX, node.all_input_nodes[0], node, taps=self.layers.pool(node))
        elif self.layers.is_a(node, CONV):
            self._convolve(node)
        else:
            raise Unsupported(f"{node.op} {node.target}")

    def _convolve(self, node: fx.Node) -> None:
        """With what alone follows it, if that is an activation, or an addition of something that is already there."""
        conv, users = self.layers.convolution(node), self.layers.readers(node)
        following = users[0] if len(users) == 1 else None
        details = {
            "taps": conv.taps,
            "places": conv.places,
            "weight": conv.weight,
            "bias": conv.bias,
            "convolution": conv.what,
        }
        activation = self.layers.activation(following) if following else None
        if following and activation is not None:
            self.map[node] = self._place(following)
            self._emit(Op.CONVOLVE, conv.source, following, **self._activated(following, activation), **details)
        elif following and self.layers.is_a(following, ADD):
            terms = [self.layers.same(term) for term in self.layers.terms(following)]
            ready = [self.map[term] for term in terms if term is not node and term in self.map]
            if ready:
                self.map[node] = self._place(following)
                self._emit(Op.CONVOLVE, conv.source, following, other=ready[0], **details)
            else:
                self._emit(Op.CONVOLVE, conv.source, node, **details)
        else:
            self._emit(Op.CONVOLVE, conv.source, node, **details)

    def _place(self, node: fx.Node) -> str:
        if node not in self.map:
            self.map[node] = node.name
            self.maps[node.name] = Map(
                self.layers.pixels(node), self.layers.shapes[node][1], width=self.layers.sides(node)[1]
            )
        return self.map[node]

    def _activated(self, node: fx.Node, activation: Activation) -> dict[str, Any]:
        """Details of the step that computes an activation; its backward pass finds the gate."""
        kept = self._place(node)
        details: dict[str, Any] = {"activation": activation}
        if activation.keeps_derivative:
            kept = details["derivative"] = f"derivative of {node.name}"
            self.maps[kept] = self.maps[node.name]
        self.gate[node] = Gate(kept, activation)
        return details

    def _emit(self, kind: Op, source: fx.Node, node: fx.Node, **details: Any) -> None:
        inputs, outputs = self.layers.shapes[source][1], self.layers.shapes[node][1]
        self.steps.append(
            Step(kind, self.map[source], self._place(node), self.layers.pixels(node), inputs, outputs, **details)
        )

    # Gradients, from the end

    def _backward(self, node: fx.Node) -> None:
        grad = self.grad[node]
        if node.op == "placeholder":
            return
        if self.layers.is_same(node):
            self._alias(node.all_input_nodes[0], grad)
        elif self.layers.is_a(node, ADD):
            for term in self.layers.terms(node):
                self._alias(term, grad)
        elif node in self.gate:
            self._send(node.all_input_nodes[0], Op.PASS, source=node, gate=self.gate[node])
        elif self.layers.is_a(node, POOL):
            source = node.all_input_nodes[0]
            taps = backward(self.layers.pool(node), self.layers.pixels(source))
            self._send(source, Op.MIX, source=node, taps=taps)
        else:
            conv = self.layers.convolution(node)
            weight, pixels = conv.weight, self.layers.pixels(conv.source)
            if self.learning:
                self._learn(conv, node)
            self._send(
                conv.source,
                Op.CONVOLVE,
                source=node,
                taps=backward(conv.taps, pixels),
                places=conv.places,
                weight=lambda: weight().transpose(0, 1),
                convolution=replace(conv.what, source=self.layers.sides(node), backward=True),
            )

    def _alias(self, node: fx.Node, grad: str) -> None:
        """The gradient of a sum is that of each term. Nothing is computed unless the term has a gradient already."""
        if self._ends(node):
            return
        if node not in self.grad and (self.layers.same(node).op != "placeholder" or self.maps[grad].exact):
            self.grad[node] = grad
        else:
            self._append_gradient(node, Op.PASS, grad, self.layers.shapes[node][1])

    def _send(self, node: fx.Node, kind: Op, *, source: fx.Node | None, source_map: str = "", **details: Any) -> None:
        """A contribution to the gradient with respect to `node`; straight through an activation that nothing else
        reads."""
        if self._ends(node):
            return
        gate = details.pop("gate", None)
        if node in self.gate and len(self.layers.readers(node)) == 1 and gate is None:
            gate, node = self.gate[node], node.all_input_nodes[0]
        inputs = self.layers.shapes[source][1] if source else 0
        self._append_gradient(node, kind, self.grad[source] if source else source_map, inputs, gate=gate, **details)

    def _ends(self, node: fx.Node) -> bool:
        """Whether the backward pass ends before `node`: the gradient of weights needs none with respect to x."""
        return self.learning and self.layers.same(node).op == "placeholder"

    # Gradients of weights

    def _learn(self, conv: Conv, node: fx.Node) -> None:
        inputs, outputs = self.layers.shapes[conv.source][1], self.layers.shapes[node][1]
        bands = by_place(conv.taps, conv.places, max(1, _BAND_LANES // max(inputs, outputs)))
        maps = self.map[conv.source], self.grad[node]
        self._learn_weights(*maps, inputs, outputs, conv.places, bands, conv.weight)
        if conv.bias is not None:
            self._learn_biases(self.grad[node], self.layers.pixels(node), outputs, conv.bias)

    def _learn_head(self, features: fx.Node, linear: nn.Linear) -> None:
        """Those of E = linear(mean of features): a convolution whose kernel has one place for all pixels."""
        pixels, channels = self.layers.pixels(features), self.layers.shapes[features][1]
        self.maps[_FACTOR] = Map(1, 1, exact=True)
        everywhere = np.arange(pixels, dtype=np.int32)
        taps = Taps(np.array([0, pixels], np.int32), everywhere, np.zeros_like(everywhere))
        self._learn_weights(
            self.map[features],
            _FACTOR,
            channels,
            1,
            1,
            [Band(taps, 0, pixels, 0, 1)],
            lambda: linear.weight.unsqueeze(2) / pixels,
        )
        if linear.bias is not None:
            self._learn_biases(_FACTOR, 1, 1, lambda: linear.bias)

    def _learn_weights(
        self, source: str, grad: str, inputs: int, outputs: int, places: int, bands: list[Band], learned: Read
    ) -> None:
        """The sum over images and pixels of source x gradient, for each place in the kernel."""
        for band in bands:
            name = f"gathered {len(self.steps)}"  # memory for both maps, in tiles of at most 4 channels
            self.maps[name] = Map(1, band.sources * (inputs + 3) + band.results * (outputs + 3), exact=True)
            step = Step(Op.WEIGHTS, source, "", band.results, inputs, outputs, other=grad, places=places, band=band)
            self.steps.append(replace(step, taps=band.taps, derivative=name, learned=learned))

    def _learn_biases(self, grad: str, pixels: int, outputs: int, learned: Read) -> None:
        self.steps.append(Step(Op.BIASES, "", "", pixels, outputs, outputs, other=grad, learned=learned))

    def _append_gradient(self, node: fx.Node, kind: Op, source: str, inputs: int, **details: Any) -> None:
        name = f"gradient {len(self.steps)} of {node.name}"
        outputs, pixels = self.layers.shapes[node][1], self.layers.pixels(node)
        exact = self.layers.same(node).op == "placeholder"
        self.maps[name] = Map(pixels, outputs, exact, self.layers.sides(node)[1])
        self.steps.append(Step(kind, source, name, pixels, inputs, outputs, other=self.grad.get(node), **details))
        self.grad[node] = name
