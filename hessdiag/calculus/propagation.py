"""Second moments through a graph: forwards from the inputs, and back from the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from hessdiag.calculus.graph import PAPER, Call, Graph, Operation, Pieces, Ref, Step, Unknown, UnsupportedError, Value
from hessdiag.calculus.moments import Activation, Gradient, InputMoments, WeightMoments, add_gradients
from hessdiag.calculus.rules import BY_TARGET, LINEAR
from hessdiag.calculus.rules.elementwise import add, multiply
from hessdiag.data.seeds import stream
from hessdiag.derivatives.losses import NAMES
from hessdiag.errors import HessdiagError


def initial_values(
    graph: Graph, weights: WeightMoments, inputs: InputMoments
) -> tuple[dict[str, Value], dict[str, Tensor]]:
    """Collect inputs, parameters and buffers as values, and the numbers of those that have some."""
    known = {name: weights.names[path] for name, path in graph.parameters.items()} | dict(graph.buffers)
    numbers = {**graph.constants, **{n: weights.values[path] for n, path in known.items() if path in weights.values}}
    values: dict[str, Value] = {
        name: _input(shape, inputs) if floating else Unknown(drawn=True) for name, shape, floating in graph.inputs
    }
    for name in graph.parameters:
        values[name] = _constant(known[name], weights.sq[known[name]], weights.shapes[known[name]])
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


def _input(shape: tuple[int, ...], inputs: InputMoments) -> Activation:
    return Activation(
        sq=torch.tensor(inputs.sq, dtype=torch.float64).expand(shape),
        site_correlation=inputs.correlation,
        example_correlation=inputs.correlation,
        width=shape[1] if len(shape) > 1 else 1,
        positions=math.prod(shape[2:]) if len(shape) > 2 else 1,
    )


def _constant(name: str, sq: float, shape: tuple[int, ...]) -> Activation:
    moment = torch.tensor(sq, dtype=torch.float64).expand(shape)
    return Activation(moment, example_correlation=1.0, parameter=name)


SAMPLES, MAX_DRAWN_CLASSES = 2048, 2048


@dataclass(frozen=True)
class OutputGradient:
    """What enters the backward pass.

    Attributes:
        gradient: moments of Δy.
        curvature: E[(S u)²] / E[Δy²], with S the Hessian of the loss in the outputs and u ~ N(0, E[y²]).
        slope: d log E[Δy²] / d log E[y²].
        variance: relative variance of |Δy|² over draws of the loss, for outputs that all point the same way.
    """

    gradient: Gradient
    curvature: float
    variance: float
    slope: float


def output_gradient(loss: str, y: Activation, examples: int) -> OutputGradient:
    """Find the moments of the gradient of each example's own loss.

    random-quadratic: with S = R + Rᵀ, E[S_ij²] = 2 and E[S_ii²] = 4, so that E[Δy_i²] = 2 Σ_j E[y_j²] + 2 E[y_i²],
    (2N + 2) E[y²] for N equal outputs. mse, targets N(0, 1): 4 (E[y²] + 1) / N². Cross-entropy, labels at random:
    p - t with p the softmax of Gaussian logits.
    """
    if loss not in NAMES:
        raise HessdiagError(f"loss {loss!r} has no prediction: use one of {', '.join(NAMES)}")
    N = y.sq.numel() // examples
    if loss == "random-quadratic":
        flat = y.sq.reshape(examples, N)
        sq = (2 * flat.sum(1, keepdim=True) + 2 * flat).reshape(y.sq.shape)
        return OutputGradient(
            Gradient(sq, example_correlation=y.example_correlation), 1.0, (8 * N + 24) / (2 * N + 2) ** 2, 1.0
        )
    if loss == "mse":
        sq = 4 * (y.sq + 1) / N**2
        share = float((y.sq / (y.sq + 1)).detach().mean())
        return OutputGradient(Gradient(sq, example_correlation=y.example_correlation * share), share, 0.0, share)
    return _cross_entropy(y, N)


def _cross_entropy(y: Activation, outputs: int) -> OutputGradient:
    classes = y.sq.shape[1]
    positions = outputs // classes
    q = y.second_moment
    error, curvature = softmax_moments(float(q.detach()), classes)
    sq = torch.full_like(y.sq.detach(), error / (classes * positions**2))
    ratio = float(q.detach()) * curvature / error if error else math.nan
    return OutputGradient(Gradient(sq), ratio, 0.0, 0.0)


def softmax_moments(q: float, classes: int) -> tuple[float, float]:
    """Find (E|p - t|², E tr S²) for p the softmax of `classes` logits N(0, q), t a random label, S = diag(p) - p pᵀ.

    >>> softmax_moments(0.0, 2)
    (0.5, 0.25)
    """
    if math.isnan(q):
        return math.nan, math.nan
    if classes > MAX_DRAWN_CLASSES:  # sums over many classes hardly vary
        second = min(math.exp(min(q, 50.0)) / classes, 1.0)
        return 1 + second - 2 / classes, second * (1 - second) + second**2
    logits = torch.randn(SAMPLES, classes, generator=stream(0, "softmax moments"), dtype=torch.float64)
    p: Tensor = torch.softmax(math.sqrt(q) * logits, dim=1)
    squares, cubes = p.square().sum(1), p.pow(3).sum(1)
    return float(squares.mean() + 1 - 2 / classes), float((squares - 2 * cubes + squares.square()).mean())


KEEPS_CONSTANTS = ("reshaping", "copying", "detaching", "padding")  # a weight stays a weight


def place(operation: Operation) -> str:
    """Say where in the model an operation is called."""
    return f"in {operation.layer} {operation.place!r}" if operation.place else "in the model's own forward"


def forward_step(call: Call, found: Propagation) -> Step:
    """Apply the rule of an operation; one without a rule gives NaN and is listed, once, where the trouble starts."""
    operation = call.operation
    if operation.target.startswith("aten._assert"):
        return Step(Unknown())
    # Other results are parts of the graph.
    arguments = [(ref, call.values[ref.name]) for ref in operation.refs if ref.name in call.values]
    if any(isinstance(v, Unknown) and v.broken for _, v in arguments):
        return _broken(operation, arguments)
    moving = [v for _, v in arguments if isinstance(v, (Activation, Pieces))]
    drawn = any(isinstance(v, Unknown) and v.drawn for _, v in arguments)
    constants = all(isinstance(v, Activation) and v.parameter for v in moving)
    rule = BY_TARGET.get(operation.target)
    if not moving or (rule is None and constants):
        return Step(Unknown(drawn=drawn))
    try:
        if rule is None:
            raise UnsupportedError("no rule for this operation")
        step = rule.apply(call)
    except UnsupportedError as error:
        if constants:
            return Step(Unknown())
        if not any(isinstance(v, Activation) and not v.parameter and _is_nan(v) for _, v in arguments):
            found.unsupported.append((f"{operation.target} ({operation.name}) {place(operation)}", str(error)))
        return _broken(operation, arguments)
    if step.note:
        found.notes[step.note] = None
    if not isinstance(step.out, Activation) or (constants and rule.operation in KEEPS_CONSTANTS):
        return step
    out = replace(step.out, parameter="")
    return replace(step, out=out.uniform() if call.moments == PAPER else out)


def _is_nan(value: Activation) -> bool:
    return bool(value.sq.detach().isnan().any())


def _broken(operation: Operation, arguments: Sequence[tuple[Ref, Value]]) -> Step:
    if operation.shape is None:
        return Step(Unknown(drawn=True, broken=True))
    nan = torch.tensor(math.nan, dtype=torch.float64)
    back = []
    for ref, value in arguments:
        if isinstance(value, Activation) and not value.parameter:
            back.append((ref, lambda g, shape=value.sq.shape: Gradient(nan.expand(shape))))
    return Step(Activation(nan.expand(operation.shape)), tuple(back))


@dataclass
class Sensitivities:
    """d log moment / d log gain of every result and gradient; forward gain of source i at 2i, backward at 2i + 1.

    Attributes:
        operations: in the graph; a vector has two entries for each and one, the last, for the loss.
        sources: number of every operation with a random gain, see `hessdiag.calculus.finite_width`.
        of_result: of E[x²], by name of the result.
        of_gradient: of E[Δx²], by name of the result.
        of_passed: of the E[Δx²] that a layer alone sends to its input, by name of the layer's result.
        multipliers: of what an operation reads, by its name and theirs; its rule is differentiated by them.
    """

    operations: int
    sources: dict[str, int] = field(default_factory=dict)
    of_result: dict[str, Tensor] = field(default_factory=dict)
    of_gradient: dict[str, Tensor] = field(default_factory=dict)
    of_passed: dict[str, Tensor] = field(default_factory=dict)
    multipliers: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def result(self, name: str) -> Tensor:
        """Find those of E[x²] of a result; zeros for an input."""
        return self.of_result[name] if name in self.of_result else self._zeros()

    def observed(self, call: Call) -> Call:
        """Put a multiplier of 1 on every activation that a call reads, to differentiate its rule by; none if linear."""
        rule = BY_TARGET.get(call.operation.target)
        leaves = self.multipliers[call.operation.name] = {}
        if rule is None or rule.apply in LINEAR:
            return call
        values: dict[str, Value] = {}
        for ref in call.operation.refs:
            value = call.values.get(ref.name)
            if isinstance(value, Activation) and not value.parameter:
                leaves[ref.name] = torch.ones((), dtype=torch.float64, requires_grad=True)
                values[ref.name] = value.scaled(leaves[ref.name])
        return replace(call, values={**call.values, **values})

    def add_step(self, name: str, step: Step, out: Activation) -> None:
        """Carry sensitivities over one operation of the forward sweep."""
        total = self._zeros()
        if self.multipliers[name]:
            for read, slope in self._derivatives(name, out.second_moment).items():
                total += slope * self.result(read)
        else:
            for ref, _ in step.back[:1]:  # a linear rule of one activation
                total += step.share * self.result(ref.name)
        if step.kind:
            self.sources[name] = len(self.sources)
            total[2 * self.sources[name]] += 1
        self.of_result[name] = total

    def from_loss(self, output: str, slope: float) -> Tensor:
        """Find those of the gradient that the loss sends back."""
        start = slope * self.result(output)
        start[-1] += 1
        return start

    def add_gradient(self, name: str, arrived: Sequence[tuple[Gradient, Tensor]]) -> None:
        """Average over the paths that a gradient comes back on, by their shares."""
        sizes = [float(gradient.second_moment) for gradient, _ in arrived]
        total = sum(sizes) or 1.0
        found = self._zeros()
        for size, (_, each) in zip(sizes, arrived, strict=True):
            found += size / total * each
        self.of_gradient[name] = found

    def passed(self, name: str, gradient: Gradient) -> Tensor:
        """Carry sensitivities over one operation of the backward sweep."""
        found = self.of_gradient[name].clone()
        for read, slope in self._derivatives(name, gradient.second_moment).items():
            found += slope * self.result(read)
        if name in self.sources:
            found[2 * self.sources[name] + 1] += 1
        return found

    def _derivatives(self, name: str, moment: Tensor) -> Mapping[str, float]:
        leaves = self.multipliers[name]
        if not leaves or not moment.requires_grad:
            return {}
        slopes = torch.autograd.grad(moment, list(leaves.values()), retain_graph=True, allow_unused=True)
        size = float(moment.detach())
        pairs = zip(leaves, slopes, strict=True)
        return {read: float(slope) / size for read, slope in pairs if slope is not None and size}

    def _zeros(self) -> Tensor:
        return torch.zeros(2 * self.operations + 1, dtype=torch.float64)


@dataclass
class Propagation:
    """Everything that one forward and one backward sweep found.

    Attributes:
        graph: what was swept.
        sensitivities: of all moments to random gains.
        steps: (operation, step) in execution order; steps of unsupported operations have moments of NaN.
        unsupported: (operation with its place, reason).
        notes: approximations, each once.
        roots: by result, the results that it depends on without a weight layer between.
        output: moments of the network's output.
        loss: what the loss sends back.
        gradients: moments of the gradient of each result that the loss depends on, by name.
    """

    graph: Graph
    sensitivities: Sensitivities
    steps: list[tuple[Operation, Step]] = field(default_factory=list)
    unsupported: list[tuple[str, str]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    roots: dict[str, frozenset[str]] = field(default_factory=dict)
    output: Activation = field(init=False)
    loss: OutputGradient = field(init=False)
    gradients: dict[str, Gradient] = field(default_factory=dict)


def propagate(
    graph: Graph, weights: WeightMoments, *, moments: str, loss: str, inputs: InputMoments | None = None
) -> Propagation:
    """Sweep forward from the inputs and backward from the loss."""
    values, numbers = initial_values(graph, weights, inputs or InputMoments())
    found = Propagation(graph, Sensitivities(len(graph.operations)))
    for operation in graph.operations:
        step = _sweep_over(Call(operation, values, numbers, moments), found)
        values[operation.name] = step.out
        found.steps.append((operation, step))
    output = values.get(graph.output.name)
    if not isinstance(output, Activation):
        raise HessdiagError("the network's output does not depend on its inputs by any operation that has a rule")
    found.output, found.loss = output, output_gradient(loss, output, graph.batch)
    _backward(found, moments)
    return found


def _sweep_over(call: Call, found: Propagation) -> Step:
    """Take the step of one operation, and note what follows from it."""
    step = forward_step(found.sensitivities.observed(call), found)
    _note_dependence(call.operation, step, found)
    if not isinstance(step.out, Activation):
        return step
    found.sensitivities.add_step(call.operation.name, step, step.out)
    return replace(step, out=_detached(step.out), x=_detached(step.x) if step.x else None)


def _detached(value: Any) -> Any:
    return replace(value, sq=value.sq.detach())


def _note_dependence(operation: Operation, step: Step, found: Propagation) -> None:
    """Say where two branches of one result meet again without a weight layer between: the rules take them apart."""
    names = dict.fromkeys(ref.name for ref in operation.refs if ref.name not in found.graph.parameters)
    read = [found.roots.get(name, frozenset({name})) for name in names]
    rule = BY_TARGET.get(operation.target)
    if rule is not None and rule.apply in (add, multiply) and len(read) == 2 and read[0] & read[1]:
        both = "both sides come from one result, and are taken as independent"
        found.notes[f"{rule.operation} {place(operation)}: {both}"] = None
    through = frozenset() if step.weight else frozenset().union(*read)
    found.roots[operation.name] = through | {operation.name}


def _backward(found: Propagation, moments: str) -> None:
    sensitivities, output = found.sensitivities, found.graph.output.name
    waiting = {output: [(found.loss.gradient, sensitivities.from_loss(output, found.loss.slope))]}
    for operation, step in reversed(found.steps):
        name = operation.name
        arrived = waiting.pop(name, None)
        if not arrived or not isinstance(step.out, Activation):
            continue
        g = add_gradients([gradient for gradient, _ in arrived])
        found.gradients[name] = g = g.uniform() if moments == PAPER else g
        sensitivities.add_gradient(name, arrived)
        for ref, back in step.back:
            passed = back(g)
            passing = sensitivities.passed(name, passed)
            if ref == step.source:
                sensitivities.of_passed[name] = passing
            waiting.setdefault(ref.name, []).append((_detached(passed), passing))


def own_input_gradient(step: Step, gradient: Gradient) -> float:
    """Find E[Δx²] of the gradient that a layer alone sends to its input, without other readers of it."""
    return next(
        (float(back(gradient).second_moment.detach()) for ref, back in step.back if ref == step.source), math.nan
    )
