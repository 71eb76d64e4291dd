"""The scaling calculus offline: ς, γ, ν and moments of every block from shapes and E[W²] alone."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from torch import nn

from hessdiag import scaling
from hessdiag.arguments import check_model, matching
from hessdiag.calculus.curvature import Sent, of_parameter, send_back
from hessdiag.calculus.graph import KERNEL, MOMENTS, Operation, Step, trace_graph
from hessdiag.calculus.moments import Activation, Gradient, example_inputs, weight_moments
from hessdiag.calculus.propagation import Propagation, propagate
from hessdiag.calculus.rules import BY_TARGET
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.results.findings import uncounted
from hessdiag.results.numbers import short
from hessdiag.results.prediction import BlockPrediction, Prediction
from hessdiag.results.records import versions

Uses = Sequence[tuple[Operation, Step]]  # of a parameter: the operations that apply it, in execution order
MOVES = ("reshaping", "copying")  # operations that change no number
EVEN = 10.0  # roles whose γ are closer than this are called alike


def uses(found: Propagation) -> dict[str, Uses]:
    """Find where each parameter is applied, the first one first."""
    applied: dict[str, list[tuple[Operation, Step]]] = {}
    for operation, step in found.steps:
        for name in filter(None, (step.weight, step.bias, step.scalar)):
            applied.setdefault(name, []).append((operation, step))
    return dict(applied)


def predict_block(
    block: Block, applied: Uses, found: Propagation, weight_sq: float, sent: Mapping[str, Sent]
) -> BlockPrediction:
    """Predict ς, γ, ν and σ² of a block; NaN where it is applied several times, or where a moment is unknown."""
    bare = BlockPrediction(**block.described, weight_sq=weight_sq)
    if not block.multiplies or len(block.owners) != 1 or len(applied) != 1:
        return bare
    ((operation, step),) = applied
    x, out, batch = step.x, step.out, found.graph.batch
    if x is None or not isinstance(out, Activation):
        return bare
    scalar = block.kind == "scalar"
    channels = (x.sq.shape[1] if x.sq.dim() > 1 else 1) if scalar else block.fan_out
    forward = replace(
        bare, sites_in=x.sq.numel() // batch // (channels if scalar else block.fan_in * block.groups),
        sites_out=out.sq.numel() // batch // channels, x_sq=x.second_moment, out_sq=out.second_moment,
    )  # fmt: skip
    if (gradient := found.gradients.get(operation.name)) is None:
        return forward
    delta_sq = gradient.second_moment
    # of the gradient that the layer alone sends to its input, without other readers of it
    x_delta_sq = next((back(gradient).second_moment for ref, back in step.back if ref == step.source), math.nan)
    gamma = scaling.gamma(
        block.kind, fan_in=channels if scalar else block.fan_in, kernel=math.prod(block.kernel),
        sites_out=forward.sites_out, x_sq=forward.x_sq, delta_sq=delta_sq, out_sq=forward.out_sq,
    )  # fmt: skip
    varsigma = scaling.activation_scaling(x.sq.numel() // batch, x_delta_sq, forward.x_sq)
    intrinsic = scaling.gamma_intrinsic(scaling=varsigma, numel=block.numel, weight_sq=weight_sq)
    return replace(
        forward, activation_scaling=varsigma, gamma=gamma, x_gradient_sq=x_delta_sq, out_gradient_sq=delta_sq,
        gamma_intrinsic=math.nan if block.kind == "bias" else intrinsic, gamma_curvature=gamma * found.loss.curvature,
        nu=scaling.nu(gradient_sq=_parameter_gradient_sq(forward, channels, x, gradient), weight_sq=weight_sq),
        avg_sq_singular_value=of_parameter(block, step, sent[operation.name], found) if sent else gamma,
    )  # fmt: skip


def _parameter_gradient_sq(block: BlockPrediction, channels: int, x: Activation, delta: Gradient) -> float:
    """E[ΔW²] = ρ² E[x²] E[Δ²] (1 + (ρ² - 1) c_x c_Δ), with c the correlations between positions; x = 1 for a bias."""
    sites = block.sites_out
    if block.kind == "bias":
        return sites * delta.second_moment * (1 + (sites - 1) * delta.site_correlation)
    count = sites * channels if block.kind == "scalar" else sites
    return count * block.x_sq * delta.second_moment * (1 + (sites - 1) * x.site_correlation * delta.site_correlation)


def _reason(block: Block, applied: Uses, predicted: BlockPrediction) -> str:
    if predicted.gamma == predicted.gamma:
        known = math.isfinite(predicted.avg_sq_singular_value)
        return "" if known else "σ² has no number: gradients of the outputs do not come back to it"
    if not applied:
        return "no operation with a rule applies it"
    if len(block.owners) != 1 or len(applied) != 1:
        return "applied several times: the theory has γ for a layer that is applied once"
    if not block.multiplies or applied[0][1].x is None:
        return "neither a linear layer nor a convolution: the theory has no γ for it"
    return "its moments depend on an operation without a rule, or on numbers that are not known on the meta device"


def predict(
    model: nn.Module, inputs: Any, *, init: str | None = None, loss: str = "random-quadratic",
    class_dim: int | None = None, moments: str = KERNEL, blocks: str | Sequence[str] | None = None,
) -> Prediction:  # fmt: skip
    """Predict ς, γ, ν and moments of every block from shapes and E[W²], without running the model.

    Second moments go forward and backward through the traced graph by the rules of arXiv 1906.04267 (see
    `hessdiag.calculus.rules.RULES`); the formulas of `hessdiag.scaling` then give ς and γ.

    Args:
        model: any module, also on the meta device; it is traced, never run.
        inputs: shape of one example, such as `(3, 32, 32)`, for inputs N(0, 1); or example inputs as `diagnose` takes
            them, whose second moments are used (on the meta device N(0, 1) is assumed, and independent token ids).
        init: a scheme of `hessdiag.init`, as if it had been applied; None for the weights as they are, or PyTorch's
            defaults where they are on the meta device.
        loss: `"random-quadratic"`, `"cross-entropy"` (random labels) or `"mse"` (targets N(0, 1)).
        class_dim: dimension of the outputs that runs over the classes of `"cross-entropy"`; None for 1, or -1 where
            the model reads token ids and returns (B, T, V).
        moments: `"paper"`, its rules and nothing else; or `"kernel"`, also with the mean part of second moments,
            correlations between positions and examples, and borders of padding.
        blocks: patterns of the names of parameters or modules: predict these alone.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be traced.

    >>> prediction = predict(nn.Sequential(nn.Linear(4, 2, bias=False)), (4,), init="fan-in", moments="paper")
    >>> prediction.blocks[0].gamma  # n E[x²]² E[Δy²] / E[y²] = 4 (2 N + 2)
    24.0
    """
    check_model(model)
    if moments not in MOMENTS:
        raise HessdiagError(f"moments {moments!r}: use {' or '.join(MOMENTS)}")
    for name, parameter in model.named_parameters():
        if not parameter.numel():
            raise HessdiagError(f"parameter {name!r} of shape {tuple(parameter.shape)} has no entries: leave it out")
    every, skipped = find_blocks(model)
    args, kwargs, given = example_inputs(model, inputs)
    weights = weight_moments(model, init=init)
    graph = trace_graph(model, args, kwargs)
    if class_dim is None:
        class_dim = 1 if next(iter(graph.inputs.values())).is_floating_point() else -1
    kept = matching(blocks, [block.name for block in every])
    found = propagate(graph, weights, moments=moments, loss=loss, class_dim=class_dim, inputs=given)
    sent = send_back(found) if moments == KERNEL else {}
    applied = uses(found)
    order = {name: place for place, name in enumerate(applied)}
    predicted, left_open = [], []
    for block in sorted((b for b in every if b.name in kept), key=lambda block: order.get(block.name, len(order))):
        each = applied.get(block.name, ())
        predicted.append(predict_block(block, each, found, weights.sq.get(block.name, math.nan), sent))
        if reason := _reason(block, each, predicted[-1]):
            left_open.append((block.name, reason))
    return Prediction(
        blocks=tuple(predicted), design=imbalance(predicted, applied, found, weights.sq), versions=versions(),
        skipped=(*skipped, *left_open), unsupported=tuple(found.unsupported), notes=tuple(found.notes),
        output_sq=found.output.second_moment, outputs=found.output.sq.numel() // graph.batch,
        model=type(model).__name__, init=init or "as given", loss=loss, moments=moments, weights_from=weights.source,
    )  # fmt: skip


def imbalance(
    blocks: Sequence[BlockPrediction], applied: Mapping[str, Uses], found: Propagation, sizes_sq: Mapping[str, float]
) -> str:
    """Say between which roles γ differs most; a role is a weight's name without its numbers.

    Weights to whose scale the network is blind do not count, as in the balance of a report.
    """
    weights = [b for b in blocks if b.kind == "weight"]
    unseen = [b.name for b in weights if _is_unseen(applied.get(b.name, ()), found, sizes_sq)]
    roles: dict[str, list[float]] = {}
    for block in weights:
        if block.name not in unseen and math.isfinite(block.gamma) and block.gamma > 0:
            roles.setdefault(re.sub(r"\d+", "*", block.name), []).append(block.gamma)
    sizes = sorted((geometric_mean(each), role) for role, each in roles.items())
    sentences = [_contrast(sizes[0], sizes[-1])] if len(sizes) > 1 else []
    return ". ".join([*sentences, *uncounted(unseen)])


def _contrast(low: tuple[float, str], high: tuple[float, str]) -> str:
    if (ratio := high[0] / low[0]) < EVEN:
        return f"by design: γ is alike in all kinds of layers, within {short(ratio)}×"
    return f"by design: γ of {high[1]} is {short(ratio)}× that of {low[1]}"


def _is_unseen(applied: Uses, found: Propagation, sizes_sq: Mapping[str, float]) -> bool:
    for operation, own in applied:
        biased = sizes_sq.get(own.bias, 0.0) > 0
        blind = [s.blind == "channels" or (s.blind == "size" and not biased) for s in _readers(operation.name, found)]
        if not (blind and all(blind)):
            return False
    return bool(applied)


def _readers(name: str, found: Propagation) -> Iterator[Step]:
    for operation, step in found.steps:
        if any(ref.name == name for ref in operation.refs):
            moved = operation.target in BY_TARGET and BY_TARGET[operation.target].operation in MOVES
            yield from _readers(operation.name, found) if moved else [step]
