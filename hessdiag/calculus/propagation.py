"""Second moments sent through a traced graph, forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch

from hessdiag.calculus.activation import Activation, Gradient, add_gradients
from hessdiag.calculus.call import PAPER, Call, Step
from hessdiag.calculus.forward_step import Remarks, forward_step, place
from hessdiag.calculus.graph import Graph, Operation
from hessdiag.calculus.initial_values import initial_values
from hessdiag.calculus.input_moments import InputMoments
from hessdiag.calculus.output import OutputGradient, output_gradient
from hessdiag.calculus.rules import BY_TARGET
from hessdiag.calculus.rules.arithmetic import add, multiply
from hessdiag.calculus.sensitivities import Sensitivities
from hessdiag.calculus.weight_moments import WeightMoments
from hessdiag.errors import HessdiagError
from hessdiag.parallel.progress import advance, announce


@dataclass(frozen=True)
class Propagation:
    """Everything that one forward and one backward sweep found.

    Attributes:
        graph: what was swept.
        steps: (operation, step) in execution order; steps of unsupported operations have moments of NaN.
        gradients: moments of the gradient of each result, by name.
        output: moments of the network's output.
        loss: what the loss sends back.
        remarks: operations without a rule, and notes.
        sensitivities: of all moments to random gains.
    """

    graph: Graph
    steps: tuple[tuple[Operation, Step], ...]
    gradients: dict[str, Gradient]
    output: Activation
    loss: OutputGradient
    remarks: Remarks
    sensitivities: Sensitivities


@dataclass
class _Forward:
    """The state of a forward sweep.

    Attributes:
        remarks, sensitivities, steps: as in `Propagation`.
        roots: by result, the results that it depends on without a weight layer between.
    """

    remarks: Remarks
    sensitivities: Sensitivities
    steps: list[tuple[Operation, Step]] = field(default_factory=list)
    roots: dict[str, frozenset[str]] = field(default_factory=dict)


def propagate(
    graph: Graph,
    weights: WeightMoments,
    *,
    moments: str,
    loss: str,
    inputs: InputMoments | None = None,
) -> Propagation:
    """Sweep forward from the inputs and backward from the loss.

    Args:
        graph: of the model.
        weights: E[W²] by parameter name.
        moments: `"paper"` or `"kernel"`.
        loss: see `output_gradient`.
        inputs: moments of floating-point inputs; N(0, 1) unless given.
    """
    values, numbers = initial_values(graph, weights, inputs or InputMoments())
    forward = _Forward(Remarks(), Sensitivities(len(graph.operations)))
    announce("operations", len(graph.operations))
    for operation in graph.operations:
        step = _sweep_over(Call.of(operation, values, numbers, moments), forward, graph)
        values[operation.name] = step.out
        forward.steps.append((operation, step))
        advance("operations")
    output = values.get(graph.output.name)
    if not isinstance(output, Activation):
        raise HessdiagError("the network's output does not depend on its inputs by any operation that has a rule")
    sent = output_gradient(loss, output, graph.batch)
    gradients = _backward(graph, forward, sent, moments)
    return Propagation(
        graph, tuple(forward.steps), gradients, output, sent, forward.remarks, forward.sensitivities
    )  # fmt: skip


def _sweep_over(call: Call, forward: _Forward, graph: Graph) -> Step:
    """Take the step of one operation, and note what follows from it."""
    step = forward_step(forward.sensitivities.observed(call), forward.remarks)
    _note_dependence(call, step, forward, graph)
    if not isinstance(step.out, Activation):
        return step
    forward.sensitivities.add_step(call.operation.name, step, step.out)
    return replace(step, out=_detached(step.out), x=_detached(step.x) if step.x else None)


def _detached(value: Activation) -> Activation:
    return replace(value, sq=value.sq.detach())


def _note_dependence(call: Call, step: Step, forward: _Forward, graph: Graph) -> None:
    """Say where two branches of one result meet again without a weight layer between: the rules take them apart."""
    operation, roots = call.operation, forward.roots
    names = dict.fromkeys(ref.name for ref in call.refs if ref.name not in graph.parameters)
    read = [roots.get(name, frozenset({name})) for name in names]
    rule = BY_TARGET.get(operation.target)
    if rule is not None and rule.apply in (add, multiply) and len(read) == 2 and read[0] & read[1]:
        forward.remarks.note(
            f"{rule.operation} {place(operation)}: both sides come from one result, and are taken as independent"
        )
    through = frozenset() if step.weight else frozenset().union(*read)
    roots[operation.name] = through | {operation.name}


def _backward(graph: Graph, forward: _Forward, loss: OutputGradient, moments: str) -> dict[str, Gradient]:
    """Find the moments of the gradient of every result that the loss depends on."""
    found: dict[str, Gradient] = {}
    sensitivities, output = forward.sensitivities, graph.output.name
    waiting = {output: [(loss.gradient, sensitivities.from_loss(output, loss.slope))]}
    for operation, step in reversed(forward.steps):
        name = operation.name
        arrived = waiting.pop(name, None)
        if not arrived or not isinstance(step.out, Activation):
            continue
        g = add_gradients([gradient for gradient, _ in arrived])
        found[name] = g = g.uniform() if moments == PAPER else g
        sensitivities.add_gradient(name, arrived)
        for ref, back in step.back:
            passed = back(g)
            passing = sensitivities.passed(name, passed)
            if ref == step.source:
                sensitivities.of_passed[name] = passing
            waiting.setdefault(ref.name, []).append((replace(passed, sq=passed.sq.detach()), passing))
    return found


def own_input_gradient(step: Step, gradient: Gradient) -> Gradient:
    """Find the moments of the gradient that a layer alone sends to its input, without other readers of it."""
    for ref, back in step.back:
        if ref == step.source:
            passed = back(gradient)
            return replace(passed, sq=passed.sq.detach())
    return Gradient(torch.tensor(math.nan, dtype=torch.float64))
