"""What a network does, as torch.fx sees it, with the shape of every value."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from ebmlife.native.steps import Unsupported


@torch.no_grad()
def traced(net: nn.Module, shape: tuple[int, ...]) -> tuple[list[fx.Node], dict[fx.Node, tuple[int, ...]]]:
    """The nodes of the network's forward pass in order, and the shapes of their values for one state of this shape."""
    if any(m._forward_hooks or m._forward_pre_hooks or hasattr(m, "parametrizations") for m in net.modules()):
        raise Unsupported("hooks or parametrizations, which a trace does not show")
    graph = fx.Tracer().trace(net)
    recorder = _Recorder(fx.GraphModule(net, graph))
    recorder.run(torch.zeros(1, *shape, device=next(net.parameters()).device))
    shapes = {node: recorder.shapes[node.name] for node in graph.nodes if node.name in recorder.shapes}
    return list(graph.nodes), shapes


class _Recorder(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.shapes[n.name] = tuple(value.shape)
        return value
