"""`hessdiag.operator`: the curvature matrix of a user's model on a batch, as SciPy's algorithms take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from hessdiag.arguments import check_loss, check_model
from hessdiag.curvature.measurement import Settings, as_one_example
from hessdiag.curvature.operator import CurvatureOperator
from hessdiag.data.batch import Batch, BatchDim, Inputs
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.stream import batches_of
from hessdiag.derivatives.losses import LossFunction
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import Matrix
from hessdiag.diagnosis.checks import FEW
from hessdiag.diagnosis.diagnose import check_few, read_first, stream_of
from hessdiag.loading.conventions import reader, state_of
from hessdiag.loading.first_call import check_tensors
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import fixed_statistics


def operator(  # noqa: PLR0913, public keyword-only options
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
    max_memory: int | str | None = None,
    seed: int = 0,
) -> CurvatureOperator:
    """Return the Hessian or Gauss-Newton matrix of the batch-mean loss as a `scipy.sparse.linalg.LinearOperator`.

    Rows and columns are the entries of the trainable parameters in the order of `names`, each flattened. The weights
    are those at the time of a product; the model is left exactly as it was by each.

    Args:
        model, inputs, targets, loss, class_dim, output, batch_dim, examples, matrix, mode, max_memory: as of
            `hessdiag.diagnose`; of an iterable, all batches together are the one batch.
        blocks: patterns of the names of parameters or modules: the diagonal block of these alone, at their cost.
        seed: of a random quadratic loss, and of the vectors that products are checked on.

    Returns:
        The operator (P, P); `.names` are its parameters, `.torch_matmat` multiplies tensors (P, K) on their device.

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
        few = problem.batch.narrow(0, 2)
        again: dict[str, Any] = {"seed": seed, "mode": mode, "call": lambda: few.run(model)}
        return operator_of(problem, settings, memory, around=lambda: preserve_state(model, **again))


def operator_of(problem: Problem, settings: Settings, memory: MemoryBudget, **around: Any) -> CurvatureOperator:
    """The matrix of an opened problem."""
    matrix = cast(Matrix, settings.matrix)
    return CurvatureOperator(problem, matrix, memory=memory.chunk, seed=settings.seed, **around)


@contextmanager
def opened(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    targets: Tensor | None,
    settings: Settings,
    *,
    loss: str | LossFunction | None,
    max_memory: int | str | None = None,
    blocks: str | Sequence[str] | None = None,
    **read: Any,
) -> Iterator[tuple[Problem, MemoryBudget]]:
    """In this context, what is measured on the mean loss of the whole batch, and the memory that may be taken.

    All that is trained is a block, or those that are asked for; where examples meet they are one. `read` has
    `batch_dim` and `examples`; see `hessdiag.operator` for the others.
    """
    check_model(model)
    check_loss(loss)
    given = batches_of(inputs, targets, read=reader(model, read["batch_dim"], read["examples"], loss))
    first: Batch = next(stream_of(given, settings, most=None))
    device, _ = check_tensors(model, first)
    few = first.narrow(0, 2)
    state = preserve_state(model, seed=settings.seed, call=lambda: few.run(model), mode=settings.mode)
    with state, state_of(loss, settings.seed):
        _, problem, y = read_first(model, first, iter(()), loss, settings, vectors=True)
        problem = problem if blocks is None else problem.only(blocks)
        with fixed_statistics() if problem.coupled else nullcontext():
            problem, _ = check_few(problem, problem.batch.narrow(0, FEW), settings)
        problem = replace(problem, loss=problem.loss.of_batch(problem.batch.targets, y))
        whole = as_one_example(problem) if problem.coupled or problem.loss.couples else problem
        yield whole, MemoryBudget.of(max_memory, device)
