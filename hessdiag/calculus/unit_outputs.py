"""E[W²] with which the output of every layer has the second moment 1, from one forward sweep."""

from __future__ import annotations

import math

from hessdiag.calculus.activation import Activation
from hessdiag.calculus.call import Call
from hessdiag.calculus.forward_step import Remarks, forward_step
from hessdiag.calculus.graph import Graph, Ref
from hessdiag.calculus.initial_values import initial_values
from hessdiag.calculus.input_moments import InputMoments
from hessdiag.calculus.weight_moments import WeightMoments


def unit_outputs(
    graph: Graph, weights: WeightMoments, names: set[str], *, moments: str, inputs: InputMoments
) -> dict[str, float]:
    """Find the E[W²] with which the output of every layer in `names` has the second moment 1."""
    found: dict[str, float] = {}
    values, numbers = initial_values(graph, weights, inputs)
    for operation in graph.operations:
        step = forward_step(Call.of(operation, values, numbers, moments), Remarks())
        out = step.out
        if step.weight in names and step.weight not in found and isinstance(out, Activation):
            size = float(out.second_moment)
            if size > 0 and math.isfinite(size):
                found[step.weight] = weights.sq[step.weight] / size
                out = out.scaled(1 / size)
        values[operation.name] = out
    return found


def output_layer(graph: Graph, names: set[str]) -> str:
    """Find the parameter in `names` that is applied last; empty where none is."""
    applied = [
        graph.parameters[ref.name]
        for operation in graph.operations
        for ref in operation.args
        if isinstance(ref, Ref) and graph.parameters.get(ref.name) in names
    ]
    return applied[-1] if applied else ""
