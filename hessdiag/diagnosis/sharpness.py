"""`hessdiag.operator` and `hessdiag.sharpness`: the curvature matrix of a batch's mean loss, and its eigenvalues."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

from torch import nn

from hessdiag.arguments import check_choice, check_number
from hessdiag.curvature.measurement import Settings
from hessdiag.curvature.spectrum import parts_of, spectra
from hessdiag.data.batch import BatchDim, Inputs
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.stream import batches_for
from hessdiag.derivatives.losses import LossFunction
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import CurvatureOperator, Matrix
from hessdiag.diagnosis.checks import FEW
from hessdiag.diagnosis.measure import check_few
from hessdiag.loading.first_call import first_call
from hessdiag.network.blocks import block_parameter
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.parallel.progress import Progress, showing
from hessdiag.results.records import versions
from hessdiag.results.sharpness import Sharpness


def operator(  # noqa: PLR0913, public keyword-only options
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, *,
    loss: str | LossFunction | None = None, class_dim: int | None = None, output: str | int | None = None,
    batch_dim: BatchDim = 0, examples: str = "batch", matrix: str = "ggn", mode: str = "train",
    blocks: str | Sequence[str] | None = None, max_memory: int | str | None = None, seed: int = 0,
) -> CurvatureOperator:  # fmt: skip
    """Return the Hessian or Gauss-Newton matrix of the batch-mean loss as a `scipy.sparse.linalg.LinearOperator`.

    Rows and columns are the entries of the trainable parameters in the order of `names`, each flattened. The weights
    are those at the time of a product; the model is left exactly as it was by each.

    Args:
        model, inputs, targets, loss, class_dim, output, batch_dim, examples, matrix, mode, max_memory: as of
            `hessdiag.diagnose`; of an iterable, all batches together are the one batch.
        blocks: patterns of the names of parameters or modules: the diagonal block of these alone, at their cost.
        seed: of a random quadratic loss, and of the vectors that products are checked on.

    Returns:
        The operator (P, P); `.torch_matmat` multiplies tensors (P, K) on their device.

    Raises:
        HessdiagError: an argument cannot be used, or no product can be had right.

    >>> import torch
    >>> H = operator(nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0]]), torch.ones(1, 1), loss="mse")
    >>> H @ [1.0, 0.0]  # 2 x xᵀ
    array([2., 4.], dtype=float32)
    """
    settings = Settings(matrix=matrix, per="batch", mode=mode, seed=seed, class_dim=class_dim, output=output)
    how: dict[str, Any] = {"loss": loss, "batch_dim": batch_dim, "examples": examples, "blocks": blocks}
    with opened(model, inputs, targets, settings, max_memory=max_memory, **how) as (problem, memory):
        call = partial(problem.batch.narrow(0, 2).run, model)
        around = partial(preserve_state, model, seed=seed, mode=mode, call=call)
        return CurvatureOperator(problem, cast(Matrix, matrix), memory=memory.chunk, around=around, seed=seed)


def sharpness(  # noqa: PLR0913, public keyword-only options
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, *,
    loss: str | LossFunction | None = None, class_dim: int | None = None, output: str | int | None = None,
    batch_dim: BatchDim = 0, examples: str = "batch", matrix: str = "ggn", mode: str = "train",
    blocks: str | Sequence[str] | None = None, split: str | None = "auto", density: bool = False, rtol: float = 1e-3,
    max_memory: int | str | None = None, seed: int = 0, progress: Progress = None,
) -> Sharpness:  # fmt: skip
    """Measure traces, extreme eigenvalues and norms of the batch-mean loss's curvature, whole and block by block.

    All eigenvalues are exact where they are few: of a Gauss-Newton matrix with up to 1,024 outputs of all examples, and
    of up to 1,024 weights. Others are sampled, each with its error. The model is left exactly as it was.

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

    >>> import torch
    >>> found = sharpness(nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0]]), torch.ones(1, 1), loss="mse")
    >>> [round(number, 6) for number in (found.largest, found["weight"].trace, found.edge)]  # 2 x xᵀ: 10 and 0
    [10.0, 10.0, 0.2]
    """
    settings = Settings(matrix=matrix, per="batch", mode=mode, seed=seed, class_dim=class_dim, output=output)
    if split is not None:
        check_choice("split", split, ("auto", "qkv", "heads", "experts"))
    check_number("rtol", rtol, "pass a relative error above 0, such as 0.001", above=0)
    how: dict[str, Any] = {"loss": loss, "batch_dim": batch_dim, "examples": examples, "blocks": blocks}
    shown = showing(progress, title=f"measuring {type(model).__name__}")
    with opened(model, inputs, targets, settings, max_memory=max_memory, **how) as (problem, memory), shown:
        parts, kind = parts_of(model, problem.blocks, split), cast(Matrix, matrix)
        (*found, whole), why = spectra(problem, kind, parts, memory, density=density, rtol=rtol, seed=seed)
    norm, errors = whole.frobenius_sq or math.nan, [each.frobenius_sq_stderr for each in found]
    share = sum(each.frobenius_sq for each in found) / norm
    error = sum(errors) if matrix == "ggn" else math.hypot(*errors)  # blocks have their signs in common, or not
    first = block_parameter(model, parts[0].block)
    return Sharpness(
        **vars(whole) | {"name": type(model).__name__}, blocks=tuple(found), off_diagonal_share=1 - share,
        off_diagonal_stderr=math.hypot(error, share * whole.frobenius_sq_stderr) / norm, matrix=matrix, mode=mode,
        loss=problem.loss.name, batch_size=problem.batch.rows or 1, how=why, seed=seed, device=first.device.type,
        dtype=str(first.dtype).removeprefix("torch."), skipped=problem.skipped, versions=versions(),
    )  # fmt: skip


@contextmanager
def opened(
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None, settings: Settings, *,
    loss: str | LossFunction | None, max_memory: int | str | None, blocks: str | Sequence[str] | None, **read: Any,
) -> Iterator[tuple[Problem, MemoryBudget]]:  # fmt: skip
    """In this context, what is measured on the mean loss of the whole batch, and the memory that may be taken.

    All that is trained is a block, or those that are asked for; where examples meet they are one. `read` has
    `batch_dim` and `examples`; see `hessdiag.operator` for the others.
    """
    first = next(batches_for(model, inputs, targets, loss=loss, output=settings.output, **read, whole=True))
    look = partial(first.look, model, settings.per)
    with preserve_state(model, seed=settings.seed, mode=settings.mode, call=look, loss=loss):
        ready = first_call(model, first, iter(()), loss, settings, vectors=True)
        problem = ready.problem.only(blocks)
        with fixed_statistics() if problem.coupled else nullcontext():
            problem, _ = check_few(problem, problem.batch.narrow(0, FEW), settings, before=ready.y)
        problem = replace(problem, loss=problem.loss.of_batch(problem.batch.targets, ready.y))
        whole = problem.as_one_example() if problem.coupled or problem.loss.couples else problem
        yield whole, MemoryBudget.of(max_memory, next(iter(model.parameters())).device)
