"""Second moments through a graph: forwards from the inputs, and back from the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hessdiag.arguments import LOSSES
from hessdiag.calculus.graph import KERNEL, Call, Graph, Operation, Ref, Scores, Step, Unknown, UnsupportedError, Value
from hessdiag.calculus.moments import NORMAL, Activation, Gradient, InputMoments, WeightMoments, add_gradients, thin
from hessdiag.calculus.rules import BY_TARGET, Rule
from hessdiag.calculus.rules.attention import on_scores, product
from hessdiag.calculus.rules.composed import Chain, chained, joins, moves, size_of, with_numbers
from hessdiag.calculus.rules.elementwise import ANGLES, add, multiply, of_angle, pointwise
from hessdiag.data.seeds import stream
from hessdiag.errors import HessdiagError

SAMPLES, MAX_DRAWN_CLASSES = 2048, 2048
KEEPS_CONSTANTS = ("reshaping", "copying", "detaching", "padding")  # a weight stays a weight


def initial_values(
    graph: Graph, weights: WeightMoments, inputs: InputMoments
) -> tuple[dict[str, Value], dict[str, Tensor]]:
    """Collect inputs, parameters and buffers as values, and the numbers of those that have some."""
    known = {name: weights.names[path] for name, path in graph.parameters.items()} | dict(graph.buffers)
    numbers = {**graph.constants, **{n: weights.values[path] for n, path in known.items() if path in weights.values}}
    convolved = any("conv" in operation.target for operation in graph.operations)
    values: dict[str, Value] = {name: Unknown(drawn=True) for name in graph.inputs}
    for name, x in graph.inputs.items():
        if x.is_floating_point():
            sq, c = torch.tensor(inputs[0], dtype=torch.float64).expand(x.shape), inputs[1]
            positions = math.prod(x.shape[2:] if convolved else x.shape[1:-1])
            values[name] = Activation(sq, site_correlation=c, example_correlation=c, positions=positions)
    for name in numbers.keys() - values - graph.parameters.keys():
        floating = numbers[name].is_floating_point()
        values[name] = Activation.of(numbers[name], graph.buffers.get(name, name)) if floating else Unknown()
    for name in known.keys() - values:  # parameters, and buffers on the meta device
        path = known[name]
        sq = torch.tensor(weights.sq.get(path, math.nan), dtype=torch.float64).expand(graph.shapes[name])
        values[name] = Activation(sq, example_correlation=1.0, parameter=path, **weights.alike.get(path, {}))
    return values, numbers


@dataclass(frozen=True)
class OutputGradient:
    """What enters the backward pass."""

    gradient: Gradient  # moments of Δy
    curvature: float  # E[(S u)²] / E[Δy²], with S the Hessian of the loss in the outputs and u ~ N(0, E[y²])
    square: float  # square, trace: E‖S‖² and E[tr S] of one example
    trace: float
    positions: int = 1  # of the outputs, between which S has no entries


def output_gradient(loss: str, y: Activation, examples: int, class_dim: int = 1) -> OutputGradient:
    """Find the moments of the gradient of each example's own loss. random-quadratic: with S = R + Rᵀ, E[S_ij²] = 2 and
    E[S_ii²] = 4, so that E[Δy_i²] = 2 Σ_j E[y_j²] + 2 E[y_i²], (2N + 2) E[y²] for N equal outputs. mse, targets N(0,
    1): 4 (E[y²] + 1) / N². Cross-entropy, labels at random: p - t with p the softmax of Gaussian logits.
    """
    if loss not in LOSSES:
        raise HessdiagError(f"loss {loss!r} has no prediction: use one of {', '.join(LOSSES)}")
    N = y.sq.numel() // examples
    if loss == "random-quadratic":
        flat = y.sq.reshape(examples, N)
        sq = (2 * flat.sum(1, keepdim=True) + 2 * flat).reshape(y.sq.shape)
        return OutputGradient(Gradient(sq, example_correlation=y.example_correlation), 1.0, 2.0 * N * (N + 1), 0.0)
    if loss == "mse":
        sq = 4 * (y.sq + 1) / N**2
        share = float((y.sq / (y.sq + 1)).mean())
        gradient = Gradient(sq, example_correlation=y.example_correlation * share, along=share)
        return OutputGradient(gradient, share, 4 / N, 2.0, max(y.positions, 1))
    classes, q = y.sq.shape[class_dim], y.second_moment
    positions = N // classes
    error, curvature = softmax_moments(q, classes)
    sq = torch.tensor(error / (classes * positions**2), dtype=torch.float64).expand(y.sq.shape)
    share = q * curvature / error if error else math.nan
    return OutputGradient(Gradient(sq), share, curvature / positions, 2 - error - 2 / classes, positions)


def softmax_moments(q: float, classes: int) -> tuple[float, float]:
    """Find (E|p - t|², E tr S²) for p the softmax of `classes` logits N(0, q), t a random label, S = diag(p) - p pᵀ."""
    if math.isnan(q):
        return math.nan, math.nan
    if classes > MAX_DRAWN_CLASSES:  # sums over many classes hardly vary
        second = min(math.exp(min(q, 50.0)) / classes, 1.0)
        return 1 + second - 2 / classes, second * (1 - second) + second**2
    logits = torch.randn(SAMPLES, classes, generator=stream(0, "softmax moments"), dtype=torch.float64)
    p: Tensor = torch.softmax(math.sqrt(q) * logits, dim=1)
    squares, cubes = p.square().sum(1), p.pow(3).sum(1)
    return float(squares.mean() + 1 - 2 / classes), float((squares - 2 * cubes + squares.square()).mean())


def place(operation: Operation) -> str:
    """Say where in the model an operation is called."""
    return f"in {operation.layer} {operation.place!r}" if operation.place else "in the model's own forward"


def _moved_on(call: Call, rule: Rule | None, found: Propagation) -> Step:
    """Apply the rule of an operation; one without a rule gives NaN and is listed, once, where the trouble starts."""
    operation = call.operation
    arguments = [(ref, call.values[ref.name]) for ref in operation.refs if ref.name in call.values]  # or of the graph
    if any(isinstance(v, Unknown) and v.broken for _, v in arguments):
        return _broken(operation, arguments)
    moving = [v for _, v in arguments if not isinstance(v, Unknown)]
    drawn = any(isinstance(v, Unknown) and v.drawn for _, v in arguments)
    constants = all(isinstance(v, Activation) and v.parameter for v in moving)
    if (not moving and not (rule and rule.apply is of_angle and not drawn)) or (rule is None and constants):
        return Step(Unknown(drawn=drawn))
    try:
        step = _applied(call, rule, found)
    except UnsupportedError as error:
        if constants:
            return Step(Unknown(drawn=drawn))
        if not any(moves(v) and bool(v.sq.isnan().any()) for _, v in arguments):
            found.unsupported.append((f"{operation.target} ({operation.name}) {place(operation)}", str(error)))
        return _broken(operation, arguments)
    if step.note:
        found.notes[step.note] = None
    if not isinstance(step.out, Activation) or (constants and rule and rule.operation in KEEPS_CONSTANTS):
        return step
    if all(isinstance(v, Activation) and v.parameter == ANGLES for v in moving):
        return replace(step, out=replace(step.out, parameter=ANGLES), back=())
    out = replace(step.out, parameter="", sq=thin(step.out.sq))
    return replace(step, out=out if call.kernel else replace(out.independent(), positions=out.positions))


def _applied(call: Call, rule: Rule | None, found: Propagation) -> Step:
    if any(isinstance(call.values.get(ref.name), Scores) for ref in call.operation.refs):
        return product(call) or on_scores(call)
    if sized := size_of(call, found.chains, found.squares):
        return sized
    if call.operation.target in ("aten.matmul", "aten.bmm") and (scores := product(call)):
        return scores
    chain = chained(call, found.chains)
    if chain is not None:  # a whole, rather than what its parts would give if they were independent
        root, phi = found.chains[call.operation.name] = chain
        if rule is None or (call.kernel and joins(call)):
            return pointwise(call, phi, root)
    if rule is None:
        raise UnsupportedError("no rule for this operation")
    try:
        return rule.apply(call)
    except UnsupportedError:
        if chain is None:
            raise
        return pointwise(call, phi, root)


def _folded(call: Call, rule: Rule | None) -> Step | None:
    """Compute what depends on no input, such as masks and positions; None where that cannot be."""
    operation, actual = call.operation, None
    random = torch.Tag.nondeterministic_seeded in getattr(operation.call, "tags", ())
    known = all(ref.name in call.numbers for ref in operation.refs)
    if random or not known or operation.shape is None or operation.target == "aten.embedding":
        return None
    with suppress(Exception), torch.no_grad():  # numbers of another kind than the graph was traced with
        actual = with_numbers(operation, call.numbers)
    if not isinstance(actual, Tensor) or actual.is_meta:
        return None
    call.numbers[operation.name] = actual
    read = [call.values.get(ref.name) for ref in operation.refs]
    if rule and rule.operation in KEEPS_CONSTANTS and any(isinstance(value, Activation) for value in read):
        return None
    if not actual.is_floating_point():
        return Step(Unknown(drawn=any(isinstance(value, Unknown) and value.drawn for value in read)))
    return Step(Activation.of(actual, "fixed numbers"))


def _broken(operation: Operation, arguments: Sequence[tuple[Ref, Value]]) -> Step:
    if operation.shape is None:
        return Step(Unknown(drawn=True, broken=True))
    nan = torch.tensor(math.nan, dtype=torch.float64)
    moving = [(ref, value.sq.shape) for ref, value in arguments if moves(value)]
    back = tuple((ref, lambda g, shape=shape: Gradient(nan.expand(shape))) for ref, shape in moving)
    return Step(Activation(nan.expand(operation.shape)), back)


@dataclass
class Propagation:
    """Everything that one forward and one backward sweep found."""

    graph: Graph  # what was swept
    steps: list[tuple[Operation, Step]] = field(default_factory=list)  # in execution order; NaN of unsupported ones
    unsupported: list[tuple[str, str]] = field(default_factory=list)  # (operation with its place, reason)
    notes: dict[str, None] = field(default_factory=dict)  # approximations, each once
    chains: dict[str, Chain] = field(default_factory=dict)  # by result, as a function of one earlier result
    squares: dict[str, Ref] = field(default_factory=dict)  # by result, of what it is the square
    roots: dict[str, frozenset[str]] = field(default_factory=dict)  # on which it depends, no weights between
    output: Activation = field(init=False)  # moments of the network's output
    loss: OutputGradient = field(init=False)  # what the loss sends back
    gradients: dict[str, Gradient] = field(default_factory=dict)  # by result that the loss depends on


def propagate(
    graph: Graph, weights: WeightMoments, *, moments: str, loss: str, class_dim: int = 1, inputs: InputMoments = NORMAL
) -> Propagation:
    """Sweep forward from the inputs and backward from the loss."""
    values, numbers = initial_values(graph, weights, inputs)
    found, kernel = Propagation(graph), moments == KERNEL
    for operation in graph.operations:
        call, rule = Call(operation, values, numbers, kernel, graph.batch), BY_TARGET.get(operation.target)
        asserts = operation.target.startswith("aten._assert")
        step = Step(Unknown()) if asserts else _folded(call, rule) or _moved_on(call, rule, found)
        _note_dependence(operation, rule, step, found)
        values[operation.name] = step.out
        found.steps.append((operation, step))
    if not isinstance(output := values.get(graph.output.name), Activation) or output.sq.numel() < graph.batch:
        raise HessdiagError("operations that have a rule give no output for each example: measure it with diagnose")
    found.output, found.loss = output, output_gradient(loss, output, graph.batch, class_dim)
    waiting = {graph.output.name: [found.loss.gradient]}
    for operation, step in reversed(found.steps):
        if operation.name not in waiting:
            continue
        g = add_gradients(waiting.pop(operation.name))
        found.gradients[operation.name] = g = g if kernel else g.independent()
        for ref, back in step.back:
            waiting.setdefault(ref.name, []).append(back(g))
    return found


def _note_dependence(operation: Operation, rule: Rule | None, step: Step, found: Propagation) -> None:
    """Say where two branches of one result meet again without a weight layer between: the rules take them apart."""
    names = dict.fromkeys(ref.name for ref in operation.refs if ref.name not in found.graph.parameters)
    read = [found.roots.get(name, frozenset({name})) for name in names]
    if rule is not None and rule.apply in (add, multiply) and len(read) == len(step.back) == 2 and read[0] & read[1]:
        both = "both sides come from one result, and are taken as independent"
        found.notes[f"{rule.operation} {place(operation)}: {both}"] = None
    found.roots[operation.name] = frozenset({operation.name}).union(*([] if step.weight else read))
