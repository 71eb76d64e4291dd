"""What is known before any operation: moments of inputs, parameters and buffers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hessdiag.calculus.activation import Activation
from hessdiag.calculus.call import Unknown, Value
from hessdiag.calculus.graph import Graph
from hessdiag.calculus.input_moments import InputMoments
from hessdiag.calculus.weight_moments import WeightMoments


def initial_values(
    graph: Graph, weights: WeightMoments, inputs: InputMoments
) -> tuple[dict[str, Value], dict[str, Tensor]]:
    """Collect inputs, parameters and buffers as values, and the numbers of those that have some."""
    numbers = _numbers(graph, weights)
    values: dict[str, Value] = {
        name: _input(shape, inputs) if floating else Unknown(drawn=True) for name, shape, floating in graph.inputs
    }
    for name, path in graph.parameters.items():
        parameter = weights.names[path]
        values[name] = _constant(parameter, weights.sq[parameter], weights.shapes[parameter])
    for name, actual in numbers.items():
        if name not in values and actual.is_floating_point():
            sq = actual.double().square()
            values[name] = Activation(sq, example_correlation=1.0, parameter=graph.buffers.get(name, name))
        elif name not in values:
            values[name] = Unknown()
    for name, buffer in graph.buffers.items():
        if name not in values:  # on the meta device
            values[name] = _constant(buffer, math.nan, weights.shapes.get(buffer, ()))
    return values, numbers


def _numbers(graph: Graph, weights: WeightMoments) -> dict[str, Tensor]:
    """Constants, parameters and buffers whose entries are at hand, by graph name."""
    known = {name: weights.names[path] for name, path in graph.parameters.items()} | dict(graph.buffers)
    found = {name: weights.values[path] for name, path in known.items() if path in weights.values}
    return {**graph.constants, **found}


def _input(shape: tuple[int, ...], inputs: InputMoments) -> Activation:
    return Activation(
        sq=torch.tensor(inputs.sq, dtype=torch.float64).expand(shape),
        mean=inputs.mean,
        site_correlation=inputs.site_correlation,
        example_correlation=inputs.example_correlation,
        width=shape[1] if len(shape) > 1 else 1,
        positions=math.prod(shape[2:]) if len(shape) > 2 else 1,
    )


def _constant(name: str, sq: float, shape: tuple[int, ...]) -> Activation:
    """A parameter or buffer of which the second moment is all that is known."""
    moment = torch.tensor(sq, dtype=torch.float64).expand(shape)
    return Activation(moment, example_correlation=1.0, parameter=name)
