"""What a network does, as torch.fx sees it, with the shape of every value."""

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from ebmlife.sampling.native.steps import Unsupported

# While it traces, torch.fx has its own `nn.Module.__call__` in place for all threads: one trace at a time, and no child
# is forked meanwhile.
_tracing = threading.RLock()
os.register_at_fork(before=_tracing.acquire, after_in_parent=_tracing.release, after_in_child=_tracing.release)


@torch.no_grad()
def traced(net: nn.Module, shape: tuple[int, ...]) -> tuple[list[fx.Node], dict[fx.Node, tuple[int, ...]]]:
    """The nodes of the network's forward pass in order, and the shapes of their values for one state of this shape."""
    if any(m._forward_hooks or m._forward_pre_hooks or hasattr(m, "parametrizations") for m in net.modules()):
        raise Unsupported("hooks or parametrizations, which a trace does not show")
    with _tracing:
        graph = _Tracer().trace(net)
    recorder = _Recorder(fx.GraphModule(net, graph))
    recorder.run(torch.zeros(1, *shape, device=next(net.parameters()).device))
    shapes = {node: recorder.shapes[node.name] for node in graph.nodes if node.name in recorder.shapes}
    return list(graph.nodes), shapes


class _Tracer(fx.Tracer):
    """Does not affect networks that other threads call at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


class _Recorder(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.shapes[n.name] = tuple(value.shape)
        return value
