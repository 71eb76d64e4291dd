"""`hessdiag.sharpness`: traces and extreme eigenvalues of a batch's curvature, of the whole and of each block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessdiag.arguments import check_number
from hessdiag.curvature.measurement import EXACT_BATCH_OUTPUTS, Settings, check_choice
from hessdiag.curvature.operator import Part, parts_of
from hessdiag.curvature.spectrum import (
    DENSE,
    dense_spectrum,
    described,
    gram_spectra,
    products_of,
    sampled_spectrum,
    told_from_rounding,
)
from hessdiag.data.batch import BatchDim, Inputs
from hessdiag.data.memory import MemoryBudget
from hessdiag.derivatives.losses import LossFunction
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.operator import opened, operator_of
from hessdiag.network.blocks import block_parameter
from hessdiag.parallel.progress import Progress, advance, announce, showing
from hessdiag.results.sharpness import BlockSharpness, Sharpness

PRODUCT = 2.0  # gradients that a product costs, of many at once


def sharpness(  # noqa: PLR0913, public keyword-only options
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    targets: Tensor | None = None,
    *,
    loss: str | LossFunction | None = None,
    class_dim: int | None = None,
    output: str | int | None = None,
    batch_dim: BatchDim = 0,
    examples: str = "batch",
    matrix: str = "ggn",
    mode: str = "train",
    blocks: str | Sequence[str] | None = None,
    split: str | None = "auto",
    density: bool = False,
    rtol: float = 1e-3,
    max_memory: int | str | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> Sharpness:
    """Measure traces, extreme eigenvalues and norms of the batch-mean loss's curvature, whole and block by block.

    All eigenvalues are exact where they are few: of a Gauss-Newton matrix with up to 1,024 outputs of all examples, and
    of blocks of up to 256 entries. Others are sampled, each with its error. The model is left exactly as it was.

    Args:
        model, inputs, targets, loss, class_dim, output, batch_dim, examples, matrix, mode, max_memory, progress: as of
            `hessdiag.diagnose`; of an iterable, all batches together are the one batch.
        blocks: patterns of the names of parameters or modules: measure these alone; the whole is these together.
        split: `"qkv"`, `"heads"` or `"experts"`: blocks that pack these become a block for each, where the layer is one
            whose packing is known; `"auto"`: queries, keys and values do, if any layer packs them; `None`: none does.
        density: also measure how the eigenvalues are distributed.
        rtol: residual of a sampled extreme eigenvalue, relative to the largest in size; its own error is far smaller.
        seed: of a random quadratic loss and of all random vectors.

    Returns:
        A `Sharpness`; printing it shows the table.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be measured right; one sentence says why.

    >>> found = sharpness(nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0]]), torch.ones(1, 1), loss="mse")
    >>> [round(number, 6) for number in (found.largest, found["weight"].trace, found.edge)]  # 2 x xᵀ: 10 and 0
    [10.0, 10.0, 0.2]
    """
    settings = Settings(matrix=matrix, per="batch", mode=mode, seed=seed, class_dim=class_dim, output=output)
    if split is not None:
        check_choice("split", split, ("auto", "qkv", "heads", "experts"))
    check_number("rtol", rtol, "pass a relative error above 0, such as 0.001", above=0)
    how: dict[str, Any] = {"loss": loss, "batch_dim": batch_dim, "examples": examples, "blocks": blocks}
    with (
        opened(model, inputs, targets, settings, max_memory=max_memory, **how) as (problem, memory),
        showing(progress, title=f"measuring {type(model).__name__}"),
    ):
        parts = parts_of(model, problem.blocks, split)
        spectra, why = measure(problem, settings, memory, parts, density=density, rtol=rtol)
        first = block_parameter(model, parts[0].block)
    found = told_from_rounding(spectra, torch.finfo(first.dtype).eps)
    share, stderr = off_diagonal(found[:-1], found[-1])
    if not density:
        nothing = np.zeros((0, 0))
        found = [replace(each, nodes=nothing, weights=nothing) for each in found]
    return Sharpness(
        **vars(found.pop()) | {"name": type(model).__name__},
        blocks=tuple(found),
        off_diagonal_share=share,
        off_diagonal_stderr=stderr,
        matrix=matrix,
        mode=mode,
        loss=problem.loss.name,
        batch_size=problem.batch.rows or 1,
        how=why,
        seed=seed,
        device=first.device.type,
        dtype=str(first.dtype).removeprefix("torch."),
        versions={"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__},
        skipped=problem.skipped,
    )


def measure(
    problem: Problem, settings: Settings, memory: MemoryBudget, parts: Sequence[Part], *, density: bool, rtol: float
) -> tuple[list[BlockSharpness], str]:
    """Spectra of parts, and of all together as the last, and which way was taken to them."""
    outputs = problem.batch.size * problem.shape.outputs
    held = problem.batch.size * problem.shape.bytes_per_example(problem.shape.outputs)
    if settings.matrix == "ggn" and outputs <= EXACT_BATCH_OUTPUTS and held <= memory.total // 2:
        chunk = problem.shape.chunk(problem.shape.outputs, memory=memory.chunk)
        for ruled in (True, False):
            read = [replace(block, structured=ruled and block.structured) for block in problem.blocks]
            if (found := gram_spectra(problem.read_as(read), parts, chunk=chunk)) is not None:
                return found, f"{outputs} outputs of all examples: all eigenvalues, by Gram matrices in output space"
    operator, spectra = operator_of(problem, settings, memory), []
    sampling: dict[str, Any] = {"density": density, "rtol": rtol, "memory": memory.total // 2, "seed": settings.seed}
    groups = [*([part] for part in parts), parts]
    costs = [PRODUCT * products_of(sum(part.numel for part in some), density=density) for some in groups]
    announce("first spectrum", 1, gradients=costs[0])
    for number, some in enumerate(groups):
        if number == 1:  # the first one has told how long they take
            announce("other spectra", len(parts), gradients=sum(costs[1:]))
        own, of = operator.only(some), described(some)
        spectra.append(dense_spectrum(own, **of) if own.shape[0] <= DENSE else sampled_spectrum(own, **of, **sampling))
        advance("other spectra" if number else "first spectrum")
    *blocks, whole = spectra
    trace_stderr = math.hypot(*(each.trace_stderr for each in blocks))
    if trace_stderr < whole.trace_stderr:  # the blocks' sum is the more certain
        whole = replace(whole, trace=sum(each.trace for each in blocks), trace_stderr=trace_stderr)
    return [*blocks, whole], f"blocks over {DENSE} entries are sampled, {operator.reason}"


def off_diagonal(own: Sequence[BlockSharpness], whole: BlockSharpness) -> tuple[float, float]:
    """Share of ‖H‖_F² that is not in diagonal blocks, and its standard error."""
    if not whole.frobenius_sq > 0:
        return math.nan, math.nan
    share = sum(each.frobenius_sq for each in own) / whole.frobenius_sq
    errors = [*(each.frobenius_sq_stderr for each in own), share * whole.frobenius_sq_stderr]
    return 1 - share, math.hypot(*errors) / whole.frobenius_sq
