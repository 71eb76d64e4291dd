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
from hessdiag.curvature.measurement import EXACT_BATCH_OUTPUTS, Settings
from hessdiag.curvature.operator import Part
from hessdiag.curvature.spectrum import (
    DENSE,
    Spectrum,
    dense_spectrum,
    gram_spectra,
    sampled_spectrum,
    told_from_rounding,
)
from hessdiag.data.batch import BatchDim, Inputs
from hessdiag.derivatives.losses import LossFunction
from hessdiag.diagnosis.operator import Subject, opened
from hessdiag.network.blocks import block_parameter
from hessdiag.parallel.progress import Progress, advance, announce, showing
from hessdiag.results.sharpness import BlockSharpness, Sharpness


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
        model, inputs, targets, loss, class_dim, output, batch_dim, examples: as of `hessdiag.diagnose`; of an iterable,
            all batches together are the one batch.
        matrix: `"ggn"` (generalised Gauss-Newton) or `"hessian"`.
        mode: `"train"` for the network as it trains, through the statistics of the batch, or `"eval"`.
        blocks: patterns of the names of parameters or modules: measure these alone; the whole is these together.
        density: also measure how the eigenvalues are distributed.
        rtol: residual of a sampled extreme eigenvalue, relative to the largest in size; its own error is far smaller.
        max_memory: memory that the measurement may take, in bytes or as `"4GiB"`; by default half of what is free.
        seed: of a random quadratic loss and of all random vectors.
        progress: as in `hessdiag.diagnose`.

    Returns:
        A `Sharpness`; printing it shows the table.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be measured right; one sentence says why.

    >>> found = sharpness(nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0]]), torch.ones(1, 1), loss="mse")
    >>> [round(number, 6) for number in (found.largest, found["weight"].trace, found.edge)]  # 2 x xᵀ: 10 and 0
    [10.0, 10.0, 0.2]
    """
    settings = Settings(matrix=matrix, per="batch", mode=mode, seed=seed, class_dim=class_dim, output=output)
    check_number("rtol", rtol, "pass a relative error above 0, such as 0.001", above=0)
    how: dict[str, Any] = {"loss": loss, "batch_dim": batch_dim, "examples": examples, "blocks": blocks}
    with (
        opened(model, inputs, targets, settings, max_memory=max_memory, **how) as subject,
        showing(progress, title=f"measuring {type(model).__name__}"),
    ):
        parts = [Part(block.name, block) for block in subject.problem.blocks]
        spectra, why = measure(subject, parts, density=density, rtol=rtol)
        first = block_parameter(model, parts[0].block)
    *own, whole = told_from_rounding(spectra, torch.finfo(first.dtype).eps)
    found = [_block(part.name, part.shape, each, density) for part, each in zip(parts, own, strict=True)]
    share, stderr = off_diagonal(own, whole)
    together = vars(_block(type(model).__name__, (sum(part.numel for part in parts),), whole, density))
    return Sharpness(
        **together,
        blocks=tuple(found),
        off_diagonal_share=share,
        off_diagonal_stderr=stderr,
        matrix=matrix,
        mode=mode,
        loss=subject.problem.loss.name,
        batch_size=len(subject.problem.batch.leaves[0]) if subject.problem.batch.as_one else subject.problem.batch.size,
        how=why,
        seed=seed,
        device=first.device.type,
        dtype=str(first.dtype).removeprefix("torch."),
        versions={"hessdiag": metadata.version("hessdiag"), "torch": torch.__version__},
        skipped=subject.problem.skipped,
    )


def measure(subject: Subject, parts: Sequence[Part], *, density: bool, rtol: float) -> tuple[list[Spectrum], str]:
    """Spectra of parts, and of all together as the last, and which way was taken to them."""
    problem, memory, seed = subject.problem, subject.memory, subject.settings.seed
    outputs = problem.batch.size * problem.shape.outputs
    held = problem.batch.size * problem.shape.bytes_per_example(problem.shape.outputs)
    if subject.settings.matrix == "ggn" and outputs <= EXACT_BATCH_OUTPUTS and held <= memory.total // 2:
        chunk = problem.shape.chunk(problem.shape.outputs, memory=memory.chunk)
        for ruled in (True, False):
            read = [replace(block, structured=ruled and block.structured) for block in problem.blocks]
            if (found := gram_spectra(problem.read_as(read), parts, chunk=chunk)) is not None:
                return found, f"{outputs} outputs of all examples: all eigenvalues, by Gram matrices in output space"
    operator, spectra = subject.operator(), []
    announce("spectra of blocks", len(parts) + 1)
    for some in [*([part] for part in parts), parts]:
        own, name = operator.only(some), some[0].name if len(some) == 1 else "all blocks"
        if own.shape[0] <= DENSE:
            spectra.append(dense_spectrum(own))
        elif some is parts and len(parts) == 1:
            spectra.append(spectra[0])
        else:
            room = memory.total // 2
            spectra.append(sampled_spectrum(own, density=density, rtol=rtol, memory=room, seed=seed, name=name))
        advance("spectra of blocks")
    *own_spectra, whole = spectra
    trace_stderr = math.hypot(*(each.trace_stderr for each in own_spectra))
    if trace_stderr < whole.trace_stderr:  # the blocks' sum is the more certain
        whole = replace(whole, trace=sum(each.trace for each in own_spectra), trace_stderr=trace_stderr)
    return [*own_spectra, whole], f"blocks over {DENSE} entries are sampled, {operator.reason}"


def off_diagonal(own: Sequence[Spectrum], whole: Spectrum) -> tuple[float, float]:
    """Share of ‖H‖_F² that is not in diagonal blocks, and its standard error."""
    if not whole.frobenius_sq > 0:
        return math.nan, math.nan
    share = sum(each.frobenius_sq for each in own) / whole.frobenius_sq
    errors = [*(each.frobenius_sq_stderr for each in own), share * whole.frobenius_sq_stderr]
    return 1 - share, math.hypot(*errors) / whole.frobenius_sq


def _block(name: str, shape: tuple[int, ...], found: Spectrum, density: bool) -> BlockSharpness:
    nothing = np.zeros((0, 0))
    more = {} if density else {"nodes": nothing, "weights": nothing, "informative": True}
    return BlockSharpness(name=name, shape=shape, numel=math.prod(shape), **vars(found) | more)
