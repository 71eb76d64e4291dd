"""The diagnostic: capture, moments, curvature, report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import cast

import torch
from torch import Tensor, nn

from hessdiag.batch import Batch, Inputs
from hessdiag.blocks import Block, find_blocks
from hessdiag.comparison import compare
from hessdiag.curvature.measurement import measure_curvature
from hessdiag.curvature.plan import MATRICES, METHODS, VIEWS, check_choice, plan
from hessdiag.curvature.products import Matrix
from hessdiag.curvature.stopping import Budget
from hessdiag.errors import HessdiagError
from hessdiag.guard import unharmed
from hessdiag.losses import LossFunction, resolve_loss
from hessdiag.moments import Moments, measure_moments
from hessdiag.problem import Problem
from hessdiag.report import Heatmap, Report
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
    if not blocks:
        why = "; ".join(f"{name}: {reason}" for name, reason in skipped[:1])
        raise HessdiagError(f"the model {type(model).__name__} has no weight matrix, bias or scalar to measure ({why})")
    with unharmed(model, seed=seed):
        y = batch.narrow(0, 2).call(model).detach()
        problem = Problem(model, batch, resolve_loss(loss, y=y, targets=batch.targets, seed=seed), blocks)
        shape = measure_shapes(model, batch, blocks)
        memory = default_memory(device)
        problem, moments = _read_right(problem, chunk=shape.chunk(4, memory=memory), seed=seed)
        progress("moments")
        skipped += tuple(moments.misread.items())
        problem = replace(problem, blocks=_in_execution_order(problem.blocks, moments, shape.order))
        how = plan(method=method, matrix=matrix, per=per, outputs=shape.outputs, batch_size=batch.size)
        curvature = measure_curvature(
            problem,
            how,
            shape,
            matrix=cast(Matrix, matrix),
            per=per,
            budget=Budget(rtol, max_products, exhaustive=how.method == "exact"),
            seed=seed,
            memory=memory,
            progress=progress,
        )
    names = tuple(block.name for block in problem.weights)
    numel = tuple(block.numel for block in problem.weights)
    return Report(
        blocks=compare(problem, moments, curvature, per),
        heatmap=Heatmap(names=names, numel=numel, frobenius_sq=curvature.frobenius_sq, stderr=curvature.stderr),
        skipped=skipped,
        model=type(model).__name__,
        init="as given",
        loss=problem.loss.name,
        matrix=matrix,
        per=per,
        method=how.method,
        method_reason="; ".join(filter(None, (how.reason, curvature.how))),
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
    lazy = [name for name, parameter in model.named_parameters() if nn.parameter.is_lazy(parameter)]
    if lazy:
        raise HessdiagError(f"parameter {lazy[0]!r} has no shape yet: run the model once before measuring it")
    tensors = list(model.parameters())
    if not tensors:
        raise HessdiagError(f"the model {type(model).__name__} has no parameters: there is nothing to measure")
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise HessdiagError(f"parameter {name!r} holds NaN or infinite values: initialise or load it first")
    inputs = [v for v in (*batch.args, *batch.kwargs.values()) if isinstance(v, Tensor)]
    devices = {str(t.device) for t in (*tensors, *inputs)}
    if len(devices) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in (*tensors, *inputs) if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both to float32 or float64")
    return tensors[0].device, dtypes.pop()


def _read_right(problem: Problem, *, chunk: int, seed: int) -> tuple[Problem, Moments]:
    """Moments; a block whose gradient the hooks do not explain is measured again without a structural rule."""
    moments = measure_moments(problem, chunk=chunk, seed=seed)
    if moments.misread:
        blocks = [replace(b, structured=b.structured and b.name not in moments.misread) for b in problem.blocks]
        problem = replace(problem, blocks=blocks)
        moments = measure_moments(problem, chunk=chunk, seed=seed)
    return problem, moments


def _in_execution_order(blocks: Sequence[Block], moments: Moments, order: Sequence[str]) -> tuple[Block, ...]:
    """Blocks that were read right, by the first call of their layers; those never called come last."""
    place = {owner: number for number, owner in enumerate(order)}
    kept = [block for block in blocks if block.name not in moments.misread]
    return tuple(sorted(kept, key=lambda block: min(place.get(owner, len(place)) for owner in block.owners)))
