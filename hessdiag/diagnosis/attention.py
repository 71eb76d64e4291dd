"""How peaked attention is, from what its softmax keeps for the backward pass anyway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hessdiag.diagnosis.roles import Graph, passes_unchanged

NEARLY_ALL = 0.99  # of a row's weight
MIN_KEYS = 32  # a causal mask leaves one row of them a single key: 3 % at most

_SOFTMAX = re.compile(r"(Safe)?SoftmaxBackward\d*")
_PRODUCT = re.compile(r"(Bmm|Mm|Addmm|Baddbmm)Backward\d*")

Node = Any  # of torch's autograd graph


def peaked_attention(graph: Graph, layers: Mapping[Node, str], owners: Mapping[int, str]) -> dict[str, float]:
    """Measure what share of the rows of each attention put nearly all weight on one key.

    Attention is a softmax whose result is multiplied by a matrix, which a router's or a classifier's is not.

    Args:
        graph: of the network.
        layers: path of the layer that wrote at a node.
        owners: path of the module that holds a matrix, by the matrix's id.

    Returns:
        The share, by the paths of what makes the softmax's argument: the layers of query and key, or the module that
        multiplies by a matrix of its own, as `nn.MultiheadAttention` does.
    """
    shares: dict[str, list[float]] = {}
    for node in graph.consumers:
        if _SOFTMAX.fullmatch(node.name()) and _is_multiplied(graph, node):
            result = node._saved_result.detach()
            if result.dim() < 3 or result.shape[-1] < MIN_KEYS:
                continue
            share = float((result.amax(-1) > NEARLY_ALL).double().mean())
            for path in _written_by(node, layers, owners):
                shares.setdefault(path, []).append(share)
    return {path: sum(values) / len(values) for path, values in shares.items()}


def _is_multiplied(graph: Graph, start: Node) -> bool:
    """Whether a result goes into a matrix product, at most reshaped on its way."""
    stack, seen = [start], {start}
    while stack:
        for after, _ in graph.consumers[stack.pop()]:
            if _PRODUCT.fullmatch(after.name()):
                return True
            if passes_unchanged(after) and after not in seen:
                seen.add(after)
                stack.append(after)
    return False


def _written_by(start: Node, layers: Mapping[Node, str], owners: Mapping[int, str]) -> list[str]:
    """Paths of the nearest layers before a node."""
    stack, seen, found = [start], {start}, []
    while stack:
        parents = [parent for parent, _ in stack.pop().next_functions if parent is not None]
        held = [owners[id(p)] for p in map(_parameter, parents) if id(p) in owners]
        for parent in parents if not held else ():
            if parent in layers:
                found.append(layers[parent])
            elif parent not in seen:
                stack.append(parent)
            seen.add(parent)
        found += held
    return list(dict.fromkeys(found))


def _parameter(node: Node) -> Tensor | None:
    """The parameter that a node holds, at most reshaped."""
    while node is not None and passes_unchanged(node):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)
