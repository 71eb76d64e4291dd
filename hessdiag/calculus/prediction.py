"""The scaling calculus offline: ς, γ, ν and moments of every block from shapes and E[W²] alone."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag import scaling
from hessdiag.calculus.activation import Activation
from hessdiag.calculus.call import KERNEL, MOMENTS, Step
from hessdiag.calculus.fluctuation import QUANTILE, Variances, gain_variances
from hessdiag.calculus.graph import Graph, trace_graph
from hessdiag.calculus.propagation import InputMoments, Propagation, own_input_gradient, propagate
from hessdiag.calculus.weight_moments import WeightMoments, weight_moments
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.results.files import write_text
from hessdiag.results.report import Kind, dumps, spread

SCHEMA = "hessdiag.prediction/1"
EXAMPLES = 64  # that a measurement averages over, where nothing else is said


@dataclass(frozen=True, kw_only=True)
class BlockPrediction:
    """What the calculus says of one block; the attributes that `hessdiag.BlockReport` has too mean the same.

    Attributes:
        name, kind, layer, shape, numel, fan_in, fan_out, kernel, groups, sites_in, sites_out: as in `BlockReport`.
        activation_scaling, gamma, gamma_intrinsic, gamma_curvature, nu, weight_sq: as there, predicted.
        avg_sq_singular_value: σ², which the theory has equal to γ.
        x_sq, out_sq, x_gradient_sq, out_gradient_sq: E[x_l²], E[x_{l+1}²], E[Δx_l²], E[Δx_{l+1}²].
        gamma_low, gamma_high: 5 and 95 % quantiles of γ over random initialisations.
    """

    name: str
    kind: Kind
    layer: str
    shape: tuple[int, ...]
    numel: int
    fan_in: int
    fan_out: int
    kernel: tuple[int, ...]
    groups: int
    sites_in: int = 0
    sites_out: int = 0
    activation_scaling: float = math.nan
    gamma: float = math.nan
    gamma_intrinsic: float = math.nan
    gamma_curvature: float = math.nan
    nu: float = math.nan
    weight_sq: float = math.nan
    avg_sq_singular_value: float = math.nan
    x_sq: float = math.nan
    out_sq: float = math.nan
    x_gradient_sq: float = math.nan
    out_gradient_sq: float = math.nan
    gamma_low: float = math.nan
    gamma_high: float = math.nan


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction:
    """What `predict` found. Its `repr` is a table.

    Attributes:
        blocks: in execution order; those that are never called, or that depend on an unsupported operation, have NaN.
        skipped: `(name, reason)` of every parameter that is not a block.
        unsupported: `(operation and its place, reason)`.
        notes: approximations beyond the paper that entered.
        output_sq: E[y²] of the network's outputs.
        outputs: outputs per example.
        model, init, loss, moments, batch_size, weights: what was asked for, and where E[W²] came from.
        versions: that it ran on.
    """

    blocks: tuple[BlockPrediction, ...]
    skipped: tuple[tuple[str, str], ...]
    unsupported: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    output_sq: float
    outputs: int
    model: str
    init: str
    loss: str
    moments: str
    batch_size: int
    weights_from: str
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def weights(self) -> tuple[BlockPrediction, ...]:
        """The weight blocks alone."""
        return tuple(block for block in self.blocks if block.kind == "weight")

    @property
    def spread(self) -> dict[str, float]:
        """Largest over smallest value among the weight blocks, as in `Report.spread`."""
        return {
            key: spread([getattr(block, key) for block in self.weights])
            for key in ("gamma", "nu", "avg_sq_singular_value")
        }

    def block(self, name: str) -> BlockPrediction:
        """The block of that name."""
        return next(block for block in self.blocks if block.name == name)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """JSON text of schema `hessdiag.prediction/1`; also written to `path` when one is given."""
        record: dict[str, Any] = {"schema": SCHEMA} | {f.name: getattr(self, f.name) for f in fields(self)}
        record["blocks"] = [vars(block) for block in self.blocks]
        text = dumps(record | {"spread": self.spread})
        if path is not None:
            write_text(path, text)
        return text

    def __repr__(self) -> str:
        from hessdiag.tables.prediction_table import render

        return render(self)


def predict(
    model: nn.Module,
    inputs: Any,
    *,
    init: str | None = None,
    loss: str = "random-quadratic",
    moments: str = KERNEL,
    batch_size: int = EXAMPLES,
) -> Prediction:
    """Predict ς, γ, ν and moments of every block from shapes and E[W²], without running the model.

    Second moments go forward and backward through the traced graph by the rules of arXiv 1906.04267 (see
    `hessdiag.calculus.rules.RULES`); the formulas of `hessdiag.scaling` then give ς and γ.

    Args:
        model: any module, also on the meta device; it is traced, never run.
        inputs: shape of one example, such as `(3, 32, 32)`, for inputs N(0, 1); or example inputs as `diagnose` takes
            them, whose second moments are used (on the meta device N(0, 1) is assumed, of token ids that they are
            drawn independently).
        init: a scheme of `hessdiag.init`, as if it had been applied; None for the weights as they are, or PyTorch's
            defaults where they are on the meta device.
        loss: `"random-quadratic"`, `"cross-entropy"` (random labels) or `"mse"` (targets N(0, 1)).
        moments: `"paper"`, its rules and nothing else; or `"kernel"`, also with the mean part of second moments,
            correlations between positions and examples, borders of padding, and the median over initialisations
            instead of the mean.
        batch_size: examples that a measurement would average over; enters the spread alone.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be traced.

    >>> prediction = predict(nn.Sequential(nn.Linear(4, 2, bias=False)), (4,), init="fan-in", moments="paper")
    >>> prediction.blocks[0].gamma  # n E[x²]² E[Δy²] / E[y²] = 4 (2 N + 2)
    24.0
    """
    if moments not in MOMENTS:
        raise HessdiagError(f"moments {moments!r}: use {' or '.join(MOMENTS)}")
    if batch_size < 1:
        raise HessdiagError(f"batch size {batch_size}: ask for at least 1 example")
    args, kwargs, given = example_inputs(model, inputs)
    weights = weight_moments(model, init=init)
    graph = trace_graph(model, args, kwargs)
    settings: dict[str, Any] = {"inputs": given, "init": init, "loss": loss, "batch_size": batch_size}
    prediction = predict_graph(model, graph, weights, moments=moments, **settings)
    if moments == KERNEL:
        return prediction
    # The spread rests on correlations, which the paper's moments do not have.
    finer = predict_graph(model, graph, weights, moments=KERNEL, **settings)
    blocks = tuple(
        replace(block, gamma_low=other.gamma_low, gamma_high=other.gamma_high)
        for block, other in zip(prediction.blocks, finer.blocks, strict=True)
    )
    return replace(prediction, blocks=blocks)


def predict_graph(
    model: nn.Module,
    graph: Graph,
    weights: WeightMoments,
    *,
    inputs: InputMoments,
    init: str | None,
    loss: str,
    moments: str,
    batch_size: int,
) -> Prediction:
    """`predict` for a graph that is already traced and moments that are already known."""
    blocks, skipped = find_blocks(model)
    found = propagate(graph, weights, moments=moments, loss=loss, inputs=inputs)
    assert found.output is not None
    assert found.loss is not None
    variances = gain_variances(found, examples=batch_size)
    order = _uses(found)
    ranked = sorted(blocks, key=lambda block: order.get(block.name, [(len(found.steps), None)])[0][0])
    predicted = []
    for block in ranked:
        steps = [step for _, step in order.get(block.name, []) if step is not None]
        predicted.append(_predict_block(block, steps, found, weights, variances, moments))
    outputs = found.output.sq.numel() // graph.batch
    return Prediction(
        blocks=tuple(predicted),
        skipped=skipped,
        unsupported=tuple(found.unsupported),
        notes=tuple(found.notes),
        output_sq=float(found.output.second_moment.detach()),
        outputs=outputs,
        model=type(model).__name__,
        init=init or "as given",
        loss=loss,
        moments=moments,
        batch_size=batch_size,
        weights_from=weights.source,
        versions={"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__},
    )


def example_inputs(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any], InputMoments]:
    """Arguments to trace with, two examples of them, and the moments of the floating-point ones."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if isinstance(inputs, int) or (
        isinstance(inputs, (tuple, list, torch.Size)) and inputs and all(isinstance(v, int) for v in inputs)
    ):
        size = (inputs,) if isinstance(inputs, int) else tuple(inputs)
        if min(size) < 1:
            raise HessdiagError(f"input size {size}: pass positive sizes such as (3, 32, 32)")
        return (torch.empty(2, *size, device=device, dtype=dtype),), {}, InputMoments()
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(inputs, Tensor):
        args = (inputs,)
    elif isinstance(inputs, Mapping):
        kwargs = dict(inputs)
    elif isinstance(inputs, (tuple, list)) and inputs:
        args = tuple(inputs)
    else:
        raise HessdiagError(f"inputs are {inputs!r}: pass the shape of one example such as (3, 32, 32), or tensors")
    numbers = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor) and v.is_floating_point()]

    def two(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.dim() == 0 or value.shape[0] < 1:
            raise HessdiagError("inputs hold no example: their first dimension must run over examples")
        return torch.empty((2, *value.shape[1:]), dtype=value.dtype, device=device)

    moments = measured_inputs(numbers[0]) if numbers and not numbers[0].is_meta else InputMoments()
    return tuple(map(two, args)), {key: two(value) for key, value in kwargs.items()}, moments


def measured_inputs(x: Tensor) -> InputMoments:
    """E[x²] of given inputs (B, ...) and the correlation between examples."""
    values = x.detach().double().flatten(1)  # (B, P)
    sq = float(values.square().mean())
    size = len(values)
    if size < 2 or sq == 0:
        return InputMoments(sq)
    cross = (values.sum(0).square() - values.square().sum(0)).mean() / (size * (size - 1))
    shared = min(max(float(cross) / sq, 0.0), 1.0)
    noise = 3 / math.sqrt(values.shape[1] * size * (size - 1) / 2)  # of the correlation of independent examples
    return InputMoments(sq, examples=shared, sites=shared) if shared > noise else InputMoments(sq)


def _uses(found: Propagation) -> dict[str, list[tuple[int, Step | None]]]:
    """Where each parameter is applied."""
    uses: dict[str, list[tuple[int, Step | None]]] = {}
    for number, (operation, step) in enumerate(found.steps):
        for name in (step.weight, step.bias, step.scalar):
            if name:
                uses.setdefault(name, []).append((number, replace_out(step, operation.name)))
    return uses


def replace_out(step: Step, name: str) -> Step:
    """The step with the name of its result in `note`, which is all that is needed to find its gradient."""
    return replace(step, note=name)


def _predict_block(
    block: Block,
    steps: Sequence[Step],
    found: Propagation,
    weights: WeightMoments,
    variances: Variances,
    moments: str,
) -> BlockPrediction:
    weight_sq = weights.sq.get(block.name, math.nan)
    bare = BlockPrediction(
        name=block.name,
        kind=block.kind,
        layer=block.layer,
        shape=block.shape,
        numel=block.numel,
        fan_in=block.fan_in,
        fan_out=block.fan_out,
        kernel=block.kernel,
        groups=block.groups,
        weight_sq=weight_sq,
    )
    steps = [step for step in steps if step.x is not None and isinstance(step.out, Activation)]
    if not block.structured or len(block.owners) != 1 or len(steps) != 1:
        return bare
    (step,) = steps
    gradient = found.gradients.get(step.note)
    x, out = step.x, step.out
    assert x is not None
    assert isinstance(out, Activation)
    batch = found.graph.batch
    channels = block.fan_out if block.kind != "scalar" else (x.sq.shape[1] if x.sq.dim() > 1 else 1)
    elements_in = x.sq.numel() // batch
    sites_out = out.sq.numel() // batch // channels
    in_channels = block.fan_in * block.groups if block.kind != "scalar" else channels
    x_sq, out_sq = x.second_moment, out.second_moment
    known = replace(
        bare,
        sites_in=elements_in // in_channels,
        sites_out=sites_out,
        x_sq=float(x_sq.detach()),
        out_sq=float(out_sq.detach()),
    )
    if gradient is None:
        return known
    own = own_input_gradient(step, gradient)
    delta, x_delta = gradient.second_moment, own.second_moment
    assert found.loss is not None
    deltas, x_deltas = float(delta.detach()), float(x_delta.detach())
    varsigma = scaling.activation_scaling(elements_in, x_deltas, known.x_sq)
    if block.kind == "bias":
        gamma = scaling.gamma_bias(sites_out=sites_out, delta_sq=deltas, out_sq=known.out_sq)
    else:
        gamma = scaling.gamma_extrinsic(
            fan_in=channels if block.kind == "scalar" else block.fan_in,
            kernel=math.prod(block.kernel),
            sites_out=sites_out,
            x_sq=known.x_sq,
            delta_sq=deltas,
            out_sq=known.out_sq,
        )
    typical, low, high = 1.0, math.nan, math.nan
    if moments == KERNEL and math.isfinite(gamma) and gamma > 0:
        name = step.note
        nothing = torch.zeros_like(found.slopes[name])
        of_x = found.slopes.get(step.source.name, nothing) if step.source else nothing
        of_out, of_delta, of_own = found.slopes[name], found.gradient_slopes[name], found.own_slopes[name]
        power = 0.0 if block.kind == "bias" else 2.0
        shift = variances.shift(of_delta) - variances.shift(of_out) + power * variances.shift(of_x)
        width = QUANTILE * variances.deviation(of_delta - of_out + power * of_x)
        typical = math.exp(shift)
        gamma *= typical
        low, high = gamma * math.exp(-width), gamma * math.exp(width)
        varsigma *= math.exp(variances.shift(of_x) + variances.shift(of_own))
    intrinsic = math.nan
    if block.kind != "bias":
        intrinsic = scaling.gamma_intrinsic(scaling=varsigma, numel=block.numel, weight_sq=weight_sq)
    return replace(
        known,
        activation_scaling=varsigma,
        gamma=gamma,
        gamma_intrinsic=intrinsic,
        gamma_curvature=gamma * found.loss.curvature,
        nu=_nu(block, x, gradient.sites if moments == KERNEL else 0.0, sites_out, delta, weight_sq, channels) * typical,
        avg_sq_singular_value=gamma,
        x_gradient_sq=x_deltas,
        out_gradient_sq=deltas,
        gamma_low=low,
        gamma_high=high,
    )


def _nu(
    block: Block, x: Activation, gradient_sites: float, sites: int, delta: Tensor, weight_sq: float, channels: int
) -> float:
    """E[ΔW²] / E[W²], with E[ΔW²] = ρ² E[x²] E[Δ²] (1 + (ρ² - 1) c_x c_Δ) and c the correlations between positions."""
    if block.kind == "bias":
        gradient_sq = sites * float(delta.detach()) * (1 + (sites - 1) * gradient_sites)
        return scaling.nu(gradient_sq=gradient_sq, weight_sq=weight_sq)
    count = sites * channels if block.kind == "scalar" else sites
    together = 1 + (sites - 1) * x.sites * gradient_sites
    gradient_sq = count * float(x.second_moment.detach()) * float(delta.detach()) * together
    return scaling.nu(gradient_sq=gradient_sq, weight_sq=weight_sq)
