"""The diagnostic: capture, moments, curvature, report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import cast

import torch
from torch import Tensor, nn

from hessdiag import scaling
from hessdiag.batch import Batch, Inputs
from hessdiag.blocks import Block, block_parameter, find_blocks
from hessdiag.curvature.exact import exact_per_batch, exact_per_example
from hessdiag.curvature.plan import MATRICES, METHODS, VIEWS, check_choice, plan
from hessdiag.curvature.probe import Budget, probe
from hessdiag.curvature.products import Matrix
from hessdiag.curvature.result import Curvature
from hessdiag.errors import HessdiagError
from hessdiag.guard import unharmed
from hessdiag.losses import LossFunction, check_targets, resolve_loss
from hessdiag.moments import LayerMoments, Moments, measure_moments
from hessdiag.problem import Problem
from hessdiag.report import BlockReport, Heatmap, Report
from hessdiag.shapes import default_memory, measure_shapes

Progress = Callable[[str], None]


def diagnose(
    model: nn.Module,
    inputs: Inputs,
    targets: Tensor | None = None,
    *,
    loss: str | LossFunction = "random-quadratic",
    matrix: str = "ggn",
    per: str = "example",
    method: str = "auto",
    rtol: float = 0.05,
    seed: int = 0,
    max_products: int = 400,
    progress: Progress = lambda step: None,
) -> Report:
    """Measure curvature, scaling factor and weight-gradient ratio of every block of a model on one batch.

    The model is left exactly as it was: weights, buffers, `.grad`, modes, hooks and random state, also after an error.

    Args:
        model: any module that maps a batch to one tensor (B, *outputs).
        inputs: a tensor (B, ...), a tuple of positional or a dict of keyword arguments.
        targets: what the loss compares with; the first dimension runs over examples.
        loss: `"random-quadratic"` (yᵀRy, the paper's), `"cross-entropy"`, `"mse"`, or a callable
            `(outputs, targets) -> mean over the examples it is given`.
        matrix: `"ggn"` (generalised Gauss-Newton) or `"hessian"`.
        per: `"example"` averages ‖G^(b)‖²/P over each example's own matrix, as the theory has it; `"batch"` takes the
            matrix and the gradient of the batch-mean loss, and γ/B.
        method: `"exact"`, `"probe"`, or `"auto"` to pick; the report says which ran and why.
        rtol: relative standard error of the diagonal at which random probing stops.
        seed: of the loss and of all probes.
        max_products: matrix-vector products that probing may spend on one block (per example).
        progress: called with the name of each step that is done.

    Returns:
        A `Report`; printing it shows the table.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be measured right; one sentence says why.

    >>> report = diagnose(nn.Linear(2, 1, bias=False), torch.ones(1, 2), loss=lambda y, t: y.square().sum())
    >>> report.blocks[0].avg_sq_singular_value  # G = 2 x x^T, so that ‖G‖² / P = 4 · 2² / 2
    8.0
    """
    check_choice("matrix", matrix, MATRICES)
    check_choice("per", per, VIEWS)
    check_choice("method", method, METHODS)
    if not (math.isfinite(rtol) and rtol > 0):
        raise HessdiagError(f"rtol {rtol!r}: pass a relative error above 0, such as 0.05")
    if max_products < 2:
        raise HessdiagError(f"max_products {max_products!r}: pass at least 2")
    batch = Batch.of(inputs, targets)
    device, dtype = _check_weights(model, batch)
    blocks, skipped = find_blocks(model)
    with unharmed(model, seed=seed):
        few = batch.narrow(0, 2)
        y = few.call(model).detach()
        check_targets(loss, y[:1].expand(batch.size, *y.shape[1:]), batch.targets)
        problem = Problem(model, batch, resolve_loss(loss, y=y, seed=seed), blocks)
        shape = measure_shapes(model, batch, blocks)
        memory = default_memory(device)
        moments = measure_moments(problem, chunk=shape.chunk(4, memory=memory), seed=seed)
        progress("moments")
        skipped += tuple(moments.misread.items())
        problem = replace(problem, blocks=_in_execution_order(blocks, moments))
        how = plan(method=method, matrix=matrix, per=per, outputs=shape.outputs, batch_size=batch.size)
        if how.in_output_space:
            exact = exact_per_example if per == "example" else exact_per_batch
            curvature = exact(problem, chunk=shape.chunk(shape.outputs, memory=memory))
        else:
            budget = Budget(rtol, max_products, exhaustive=how.method == "exact")
            curvature = probe(
                problem,
                matrix=cast(Matrix, matrix),
                per=per,
                budget=budget,
                seed=seed,
                memory=memory,
                progress=progress,
            )
    names = tuple(block.name for block in problem.weights)
    numel = tuple(block.numel for block in problem.weights)
    return Report(
        blocks=_block_reports(problem, moments, curvature, per),
        heatmap=Heatmap(names=names, numel=numel, frobenius_sq=curvature.frobenius_sq, stderr=curvature.stderr),
        skipped=skipped,
        model=type(model).__name__,
        init="as given",
        loss=problem.loss.name,
        matrix=matrix,
        per=per,
        method=how.method,
        method_reason=how.reason,
        seed=seed,
        batch_size=batch.size,
        outputs=shape.outputs,
        rtol=rtol,
        device=device.type,
        dtype=str(dtype).removeprefix("torch."),
        versions={"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__},
    )


def _check_weights(model: nn.Module, batch: Batch) -> tuple[torch.device, torch.dtype]:
    """The one device and dtype that all weights and inputs share."""
    for name, parameter in model.named_parameters():
        if not nn.parameter.is_lazy(parameter) and not bool(parameter.isfinite().all()):
            raise HessdiagError(f"parameter {name!r} holds NaN or infinite values: initialise or load it first")
    tensors = [p for p in model.parameters() if not nn.parameter.is_lazy(p)]
    if not tensors:
        raise HessdiagError(f"the model {type(model).__name__} has no parameters: there is nothing to measure")
    inputs = [v for v in (*batch.args, *batch.kwargs.values()) if isinstance(v, Tensor)]
    devices = {str(t.device) for t in (*tensors, *inputs)}
    if len(devices) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in (*tensors, *inputs) if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both to float32 or float64")
    return tensors[0].device, dtypes.pop()


def _in_execution_order(blocks: Sequence[Block], moments: Moments) -> tuple[Block, ...]:
    """Blocks that were read right, by the first call of their layers; those never called come last."""
    place = {owner: number for number, owner in enumerate(moments.layers)}
    kept = [block for block in blocks if block.name not in moments.misread]
    return tuple(sorted(kept, key=lambda block: min(place.get(owner, len(place)) for owner in block.owners)))


def _block_reports(problem: Problem, moments: Moments, curvature: Curvature, per: str) -> tuple[BlockReport, ...]:
    """Put theory and measurement of every block side by side."""
    size = problem.batch.size if per == "batch" else 1
    rows = []
    for block in problem.blocks:
        weight_sq = float(block_parameter(problem.model, block).detach().double().square().mean())
        scales = _Scales.of(block, moments, weight_sq)
        gradient_sq = (moments.batch_gradient_sq if per == "batch" else moments.gradient_sq)[block.name]
        measured = curvature.diagonal[block.name]
        sigma = measured.frobenius_sq / block.numel
        gamma = scales.gamma / size
        rows.append(
            BlockReport(
                name=block.name,
                kind=block.kind,
                layer=block.layer,
                shape=block.shape,
                numel=block.numel,
                fan_in=block.fan_in,
                fan_out=block.fan_out,
                kernel=block.kernel,
                groups=block.groups,
                sites_in=scales.sites_in,
                sites_out=scales.sites_out,
                activation_scaling=scales.activation_scaling,
                gamma=gamma,
                gamma_intrinsic=scales.gamma_intrinsic / size,
                gamma_curvature=scales.gamma_curvature / size,
                nu=scaling.nu(gradient_sq=gradient_sq, weight_sq=weight_sq),
                weight_sq=weight_sq,
                avg_sq_singular_value=sigma,
                stderr=measured.stderr / block.numel,
                ratio=gamma / sigma if sigma > 0 else math.nan,
                relative_ratio=math.nan,
                products=measured.products,
                ended=measured.ended,
            )
        )
    usual = geometric_mean([row.ratio for row in rows if row.kind == "weight"])
    return tuple(replace(row, relative_ratio=row.ratio / usual) for row in rows)


def geometric_mean(values: Sequence[float]) -> float:
    """Of the positive finite values; NaN when there is none.

    >>> geometric_mean([1.0, 4.0, math.nan])
    2.0
    """
    logarithms = [math.log(value) for value in values if value > 0 and math.isfinite(value)]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


@dataclass(frozen=True)
class _Scales:
    """Per-example scaling factors of one block; NaN where the theory has none or the layer was never called."""

    sites_in: int = 0
    sites_out: int = 0
    activation_scaling: float = math.nan
    gamma: float = math.nan
    gamma_intrinsic: float = math.nan
    gamma_curvature: float = math.nan

    @classmethod
    def of(cls, block: Block, moments: Moments, weight_sq: float) -> _Scales:
        layers = [moments.layers[owner] for owner in block.owners if owner in moments.layers]
        if len(layers) != 1:  # never called, or shared by layers whose surroundings differ
            return cls()
        layer = layers[0]
        varsigma = scaling.activation_scaling(layer.elements_in, layer.x_gradient_sq, layer.x_sq)
        intrinsic = math.nan
        if block.kind == "weight" or layer.multiplies:
            intrinsic = scaling.gamma_intrinsic(scaling=varsigma, numel=block.numel, weight_sq=weight_sq)
        return cls(
            layer.sites_in,
            layer.sites_out,
            varsigma,
            _gamma(block, layer, layer.out_gradient_sq),
            intrinsic,
            _gamma(block, layer, layer.out_curvature_sq * moments.output_sq),
        )


def _gamma(block: Block, layer: LayerMoments, delta_sq: float) -> float:
    """Extrinsic γ of a block, with E[Δx_{l+1}²] given."""
    if block.kind == "bias":
        return scaling.gamma_bias(sites_out=layer.sites_out, delta_sq=delta_sq, out_sq=layer.out_sq)
    if block.kind == "scalar" and not layer.multiplies:
        return math.nan
    # A scalar multiplies every element of its input: a 1x1 convolution's factor n ρ² with fan-in n.
    fan_in = layer.in_channels if block.kind == "scalar" else block.fan_in
    return scaling.gamma_extrinsic(
        fan_in=fan_in,
        kernel=math.prod(block.kernel),
        sites_out=layer.sites_out,
        x_sq=layer.x_sq,
        delta_sq=delta_sq,
        out_sq=layer.out_sq,
    )
