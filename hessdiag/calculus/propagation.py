"""Second moments sent through a traced graph, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from hessdiag.calculus.activation import Activation, Gradient, add_gradients
from hessdiag.calculus.call import PAPER, Call, Pieces, Step, Unknown, UnsupportedError, Value
from hessdiag.calculus.graph import Graph, Operation, Ref
from hessdiag.calculus.output import OutputGradient, output_gradient
from hessdiag.calculus.rules import BY_TARGET, LINEAR
from hessdiag.calculus.rules.arithmetic import add, multiply
from hessdiag.calculus.weight_moments import WeightMoments
from hessdiag.errors import HessdiagError


@dataclass(frozen=True)
class InputMoments:
    """Moments of what the network reads.

    Attributes:
        sq: E[x²].
        mean, sites, examples: as in `Activation`.
    """

    sq: float = 1.0
    mean: float = 0.0
    sites: float = 0.0
    examples: float = 0.0


@dataclass
class Propagation:
    """Everything that one forward and one backward sweep found.

    Attributes:
        graph: what was swept.
        steps: (operation, step) in execution order; steps of unsupported operations have moments of NaN.
        gradients: moments of the gradient of each result, by name.
        output: moments of the network's output.
        loss: what the loss sends back.
        unsupported: (operation with its place, reason).
        notes: what a reader should know, each once.
        sources: number of every operation with a random gain, see `hessdiag.calculus.fluctuation`.
        slopes: by result, d log E[x²] / d log gain: forward gain of source i at 2i, backward at 2i + 1, the loss last.
        gradient_slopes, own_slopes: the same of E[Δx²] of a result, and of what a layer alone sends to its input.
    """

    graph: Graph
    steps: list[tuple[Operation, Step]] = field(default_factory=list)
    gradients: dict[str, Gradient] = field(default_factory=dict)
    output: Activation | None = None
    loss: OutputGradient | None = None
    unsupported: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    slopes: dict[str, Tensor] = field(default_factory=dict)
    gradient_slopes: dict[str, Tensor] = field(default_factory=dict)
    own_slopes: dict[str, Tensor] = field(default_factory=dict)


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
    found = Propagation(graph)
    values, numbers = _leaves(graph, weights, inputs or InputMoments())
    aliases: dict[str, str] = {}
    roots: dict[str, frozenset[str]] = {}
    leaves: dict[str, dict[str, Tensor]] = {}
    for raw in graph.operations:
        operation = _resolved(raw, aliases)
        leaves[operation.name], local = _with_leaves(operation, values)
        step = _forward(operation, {**values, **local} if local else values, numbers, moments, found)
        _note_dependence(operation, step, values, roots, found)
        if isinstance(step.out, Activation):
            found.slopes[operation.name] = _slopes_of(step, step.out, leaves[operation.name], found)
            if step.kind:
                found.sources[operation.name] = len(found.sources)
                found.slopes[operation.name][2 * found.sources[operation.name]] += 1
            step = replace(step, out=_detached(step.out), x=_detached(step.x) if step.x else None)
        values[operation.name] = step.out
        _overwrite(raw, operation, aliases)
        found.steps.append((operation, step))
    name = _follow(graph.output, aliases).name
    output = values.get(name)
    if not isinstance(output, Activation):
        raise HessdiagError("the network's output does not depend on its inputs by any operation that has a rule")
    found.output = output
    found.loss = output_gradient(loss, output, graph.batch)
    _backward(found, name, moments, leaves)
    return found


def _note_dependence(
    operation: Operation, step: Step, values: Mapping[str, Value], roots: dict[str, frozenset[str]], found: Propagation
) -> None:
    """Say where two branches of one result meet again without a weight layer between: the rules take them apart."""
    refs = [ref.name for ref in Call.of(operation, values, {}, PAPER).refs()]
    read = [roots.get(name, frozenset({name})) for name in dict.fromkeys(refs) if name not in found.graph.parameters]
    rule = BY_TARGET.get(operation.target)
    if rule is not None and rule.apply in (add, multiply) and len(read) == 2 and read[0] & read[1]:
        where = f"in {operation.layer} {operation.place!r}" if operation.place else "in the model's own forward"
        note = f"{rule.operation} {where}: both sides come from one result, and are taken as independent"
        if note not in found.notes:
            found.notes.append(note)
    through = frozenset() if step.weight else frozenset().union(*read)
    roots[operation.name] = through | {operation.name}


def _with_leaves(operation: Operation, values: Mapping[str, Value]) -> tuple[dict[str, Tensor], dict[str, Value]]:
    """A multiplier of 1 on every activation that an operation reads, to differentiate its rule by; none if linear."""
    rule = BY_TARGET.get(operation.target)
    if rule is None or rule.apply in LINEAR:
        return {}, {}
    leaves: dict[str, Tensor] = {}
    local: dict[str, Value] = {}
    for ref in Call.of(operation, values, {}, PAPER).refs():
        value = values.get(ref.name)
        if isinstance(value, Activation) and not value.parameter:
            leaves[ref.name] = torch.ones((), dtype=torch.float64, requires_grad=True)
            local[ref.name] = replace(value.scaled(leaves[ref.name]), before=value.before)
    return leaves, local


def _detached(value: Activation) -> Activation:
    return replace(value, sq=value.sq.detach())


def _derivatives(moment: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, float]:
    """d log moment / d log multiplier of every activation that an operation reads."""
    if not leaves or not moment.requires_grad:
        return {}
    slopes = torch.autograd.grad(moment, list(leaves.values()), retain_graph=True, allow_unused=True)
    size = float(moment.detach())
    return {name: float(slope) / size for name, slope in zip(leaves, slopes, strict=True) if slope is not None and size}


def _nothing(found: Propagation) -> Tensor:
    return torch.zeros(2 * len(found.graph.operations) + 1, dtype=torch.float64)


def _slopes_of(step: Step, out: Activation, leaves: Mapping[str, Tensor], found: Propagation) -> Tensor:
    """Sensitivity of a result, from those of what it was computed of."""
    total = _nothing(found)
    if not leaves:
        for ref, _ in step.back[:1]:  # a linear rule of one activation
            total += step.share * found.slopes.get(ref.name, _nothing(found))
        return total
    for name, slope in _derivatives(out.second_moment, leaves).items():
        total += slope * found.slopes.get(name, _nothing(found))
    return total


def unit_outputs(
    graph: Graph, weights: WeightMoments, names: set[str], *, moments: str, inputs: InputMoments
) -> dict[str, float]:
    """The E[W²] with which the output of every layer in `names` has the second moment 1, from one forward sweep."""
    found: dict[str, float] = {}
    values, numbers = _leaves(graph, weights, inputs)
    aliases: dict[str, str] = {}
    scratch = Propagation(graph)
    for raw in graph.operations:
        operation = _resolved(raw, aliases)
        step = _forward(operation, values, numbers, moments, scratch)
        out = step.out
        if step.weight in names and step.weight not in found and isinstance(out, Activation):
            size = float(out.second_moment)
            if size > 0 and math.isfinite(size):
                found[step.weight] = weights.sq[step.weight] / size
                out = out.scaled(1 / size)
        values[operation.name] = out
        _overwrite(raw, operation, aliases)
    return found


def output_layer(graph: Graph, names: set[str]) -> str:
    """The parameter in `names` that is applied last; empty where none is."""
    applied = [
        graph.parameters[ref.name]
        for operation in graph.operations
        for ref in operation.args
        if isinstance(ref, Ref) and graph.parameters.get(ref.name) in names
    ]
    return applied[-1] if applied else ""


def _overwrite(raw: Operation, operation: Operation, aliases: dict[str, str]) -> None:
    """Remember what an in-place operation has overwritten."""
    if raw.target.endswith("_") and not raw.target.endswith("__") and isinstance(raw.args[0], Ref):
        aliases[operation.args[0].name] = operation.name


def _leaves(graph: Graph, weights: WeightMoments, inputs: InputMoments) -> tuple[dict[str, Value], dict[str, Tensor]]:
    """Inputs, parameters and buffers as values; the numbers of those that have some."""
    values: dict[str, Value] = {}
    numbers: dict[str, Tensor] = dict(graph.constants)
    for name, shape, floating in graph.inputs:
        sq = torch.tensor(inputs.sq, dtype=torch.float64).expand(shape)
        positions = math.prod(shape[2:]) if len(shape) > 2 else 1
        width = shape[1] if len(shape) > 1 else 1
        values[name] = (
            Activation(sq, inputs.mean, inputs.sites, inputs.examples, width, positions)
            if floating
            else Unknown(drawn=True)
        )
    for name, path in graph.parameters.items():
        parameter = weights.names[path]
        sq = torch.tensor(weights.sq[parameter], dtype=torch.float64)
        values[name] = Activation(sq.expand(weights.shapes[parameter]), examples=1.0, parameter=parameter)
        if parameter in weights.values:
            numbers[name] = weights.values[parameter]
    for name, buffer in graph.buffers.items():
        if buffer in weights.values:
            numbers[name] = weights.values[buffer]
    for name, actual in numbers.items():
        if name not in values:
            known = actual.is_floating_point()
            values[name] = (
                Activation(actual.double().square(), examples=1.0, parameter=graph.buffers.get(name, name))
                if known
                else Unknown()
            )
    for name, buffer in graph.buffers.items():
        if name not in values:  # on the meta device
            sq = torch.tensor(math.nan, dtype=torch.float64)
            values[name] = Activation(sq.expand(weights.shapes.get(buffer, ())), examples=1.0, parameter=buffer)
    return values, numbers


def _forward(
    operation: Operation,
    values: Mapping[str, Value],
    numbers: Mapping[str, Tensor],
    moments: str,
    found: Propagation,
) -> Step:
    """The step of one operation; one without a rule gives NaN and is listed, once, where the trouble starts."""
    call = Call.of(operation, values, numbers, moments)
    refs = [ref for ref in call.refs() if ref.name in values]  # others are parts of the graph, not tensors
    arguments = [values[ref.name] for ref in refs]
    if operation.target.startswith("aten._assert"):
        return Step(Unknown())
    moving = [v for v in arguments if isinstance(v, (Activation, Pieces))]
    if any(isinstance(v, Unknown) and v.broken for v in arguments):
        return _broken(operation, refs, values)
    if not moving:
        return Step(Unknown(drawn=any(isinstance(v, Unknown) and v.drawn for v in arguments)))
    constants = all(isinstance(v, Activation) and v.parameter for v in moving)
    rule = BY_TARGET.get(operation.target)
    if rule is None:
        if constants:
            return Step(Unknown(drawn=any(isinstance(v, Unknown) and v.drawn for v in arguments)))
        return _refused(operation, refs, values, found, "no rule for this operation")
    try:
        step = rule.apply(call)
    except UnsupportedError as error:
        if constants:
            return Step(Unknown())
        return _refused(operation, refs, values, found, str(error))
    if step.note and step.note not in found.notes:
        found.notes.append(step.note)
    if isinstance(step.out, Activation):
        if constants and rule.operation in ("reshaping", "padding"):
            return step
        kept = replace(step.out, parameter="")
        step = replace(step, out=kept.uniform() if moments == PAPER else kept)
    return step


def _refused(
    operation: Operation, refs: list[Ref], values: Mapping[str, Value], found: Propagation, reason: str
) -> Step:
    tainted = any(
        isinstance(v, Activation) and not v.parameter and bool(v.sq.detach().isnan().any())
        for v in (values[ref.name] for ref in refs)
    )
    if not tainted:
        where = f"in {operation.layer} {operation.place!r}" if operation.place else "in the model's own forward"
        found.unsupported.append((f"{operation.target} ({operation.name}) {where}", reason))
    return _broken(operation, refs, values)


def _broken(operation: Operation, refs: list[Ref], values: Mapping[str, Value]) -> Step:
    """Moments of NaN, forward and backward."""
    if operation.shape is None:
        return Step(Unknown(drawn=True, broken=True))
    nan = torch.tensor(math.nan, dtype=torch.float64)
    back = []
    for ref in refs:
        value = values[ref.name]
        if isinstance(value, Activation) and not value.parameter:
            back.append((ref, lambda g, shape=value.sq.shape: Gradient(nan.expand(shape))))
    return Step(Activation(nan.expand(operation.shape)), tuple(back))


def _backward(found: Propagation, output: str, moments: str, leaves: Mapping[str, Mapping[str, Tensor]]) -> None:
    assert found.loss is not None
    assert found.output is not None
    start = found.loss.slope * found.slopes.get(output, _nothing(found))
    start[-1] += 1
    waiting: dict[str, list[tuple[Gradient, Tensor]]] = {output: [(found.loss.gradient, start)]}
    for operation, step in reversed(found.steps):
        arrived = waiting.pop(operation.name, None)
        if not arrived or not isinstance(step.out, Activation):
            continue
        g = add_gradients([gradient for gradient, _ in arrived])
        if moments == PAPER:
            g = g.uniform()
        sizes = [float(gradient.second_moment) for gradient, _ in arrived]
        total = sum(sizes) or 1.0
        slopes = _nothing(found)
        for size, (_, each) in zip(sizes, arrived, strict=True):
            slopes += size / total * each
        found.gradients[operation.name] = g
        found.gradient_slopes[operation.name] = slopes
        for ref, back in step.back:
            passed = back(g)
            passing = slopes.clone()
            for name, slope in _derivatives(passed.second_moment, leaves[operation.name]).items():
                passing += slope * found.slopes.get(name, _nothing(found))
            if operation.name in found.sources:
                passing[2 * found.sources[operation.name] + 1] += 1
            if ref == step.source:
                found.own_slopes[operation.name] = passing
            waiting.setdefault(ref.name, []).append((replace(passed, sq=passed.sq.detach()), passing))


def own_input_gradient(step: Step, gradient: Gradient) -> Gradient:
    """Moments of the gradient that a layer alone sends to its input, without other readers of it."""
    for ref, back in step.back:
        if ref == step.source:
            passed = back(gradient)
            return replace(passed, sq=passed.sq.detach())
    return Gradient(torch.tensor(math.nan, dtype=torch.float64))


def _resolved(operation: Operation, aliases: Mapping[str, str]) -> Operation:
    """With results that were overwritten in place replaced by what overwrote them."""
    if not aliases:
        return operation

    def each(value: Any) -> Any:
        if isinstance(value, Ref):
            return _follow(value, aliases)
        if isinstance(value, tuple):
            return tuple(map(each, value))
        return value

    return replace(
        operation, args=each(operation.args), kwargs={key: each(value) for key, value in operation.kwargs.items()}
    )


def _follow(ref: Ref, aliases: Mapping[str, str]) -> Ref:
    name = ref.name
    while name in aliases:
        name = aliases[name]
    return Ref(name)
