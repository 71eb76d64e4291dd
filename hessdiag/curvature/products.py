"""Hessian- and Gauss-Newton-vector products restricted to one block of columns, in weight space, with torch.func.

One product H[:, j] r gives the norms ‖H_ij r‖² of a whole column of blocks. Everything but the blocks concerned is a
constant, and products are vmapped: over probes, and in the per-example view over examples too, each with its own probe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp, vmap

from hessdiag.batch import Batch
from hessdiag.blocks import Block, block_parameter
from hessdiag.functional import FunctionalModel
from hessdiag.problem import Problem

Matrix = Literal["hessian", "ggn"]
ColumnNorms = Callable[[Tensor, Batch], Tensor]


class Products:
    """Products with the Hessian or the Gauss-Newton matrix of a model's loss."""

    def __init__(self, problem: Problem, matrix: Matrix) -> None:
        self.network = FunctionalModel(problem.model)
        self.model = problem.model
        self.loss = problem.loss
        self.matrix = matrix

    def column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, part: Batch) -> Tensor:
        """‖H_ij r‖² per example, of each example's own matrix.

        Args:
            column: block j.
            rows: blocks i.
            probes: (B, M, *shape of block j), M probes for each example.
            part: the B examples.

        Returns:
            (B, M, len(rows)).
        """

        def one(args: tuple[Any, ...], kwargs: dict[str, Any], target: Tensor | None, r: Tensor) -> Tensor:
            single = Batch(_unsqueeze(args), _unsqueeze(kwargs), _unsqueeze(target), 1)
            return self._norms(column, rows, r, single)

        inner = vmap(one, in_dims=(None, None, None, 0), randomness="same")
        dims = (_dims(part.args), _dims(dict(part.kwargs)), _dims(part.targets), 0)
        outer = vmap(inner, in_dims=dims, randomness="same")
        return outer(part.args, dict(part.kwargs), part.targets, probes)

    def batch_column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> Tensor:
        """‖H_ij r‖² of the batch-mean loss; `probes` is (M, *shape of block j), the result (M, len(rows))."""
        return vmap(lambda r: self._norms(column, rows, r, batch), randomness="same")(probes)

    def batch_column(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> list[Tensor]:
        """The products H_ij r themselves, with the batch-mean loss: (M, P_i) for each row block i.

        With a batch of one example they are those of that example's own matrix.
        """
        return list(vmap(lambda r: tuple(self._parts(column, rows, r, batch)), randomness="same")(probes))

    def _norms(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> Tensor:
        return torch.stack([part.square().sum() for part in self._parts(column, rows, r, batch)])

    def _parts(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> list[Tensor]:
        product = self._hessian if self.matrix == "hessian" else self._ggn
        parts = product(column, rows, r, batch)
        return [parts[row.name].flatten() / batch.size for row in rows]

    def _values(self, blocks: Sequence[Block]) -> dict[str, Tensor]:
        return {block.name: block_parameter(self.model, block).detach() for block in blocks}

    def _hessian(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Forward over reverse mode: the tangent of the gradient of the summed loss.

        Float targets go in as primals with zero tangents: some losses crash otherwise (pytorch#123996).
        """
        float_targets = batch.targets is not None and batch.targets.is_floating_point()

        def gradient(moved: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
            def total(values: dict[str, Tensor]) -> Tensor:
                return self.loss.value(self.network(values, batch), targets).sum()

            return cast(dict[str, Tensor], grad(total)(self._values(rows) | {column.name: moved}))

        at = block_parameter(self.model, column).detach()
        if float_targets:
            assert batch.targets is not None
            primals, tangents = (at, batch.targets), (r, torch.zeros_like(batch.targets))
            return cast(dict[str, Tensor], jvp(gradient, primals, tangents)[1])
        return cast(dict[str, Tensor], jvp(lambda moved: gradient(moved, batch.targets), (at,), (r,))[1])

    def _ggn(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> dict[str, Tensor]:
        """J_i^T S J_j r: forward mode, the loss's Hessian product, reverse mode."""
        at = block_parameter(self.model, column).detach()
        y, moved, *_ = jvp(lambda w: self.network({column.name: w}, batch), (at,), (r,))
        curved = self.loss.hessian_product(y, batch.targets, moved)
        _, pull, *_ = vjp(lambda values: self.network(values, batch), self._values(rows))
        return cast(dict[str, Tensor], pull(curved)[0])


def _unsqueeze(values: Any) -> Any:
    if isinstance(values, tuple):
        return tuple(_unsqueeze(v) for v in values)
    if isinstance(values, dict):
        return {key: _unsqueeze(v) for key, v in values.items()}
    return values.unsqueeze(0) if isinstance(values, Tensor) else values


def _dims(values: Any) -> Any:
    if isinstance(values, tuple):
        return tuple(_dims(v) for v in values)
    if isinstance(values, dict):
        return {key: _dims(v) for key, v in values.items()}
    return 0 if isinstance(values, Tensor) else None
