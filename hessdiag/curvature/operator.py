"""The curvature matrix of the batch-mean loss as a linear operator.

The mean over the batch is summed up in chunks of examples; where these meet, as in batch normalisation, all are one.
Each chunk is gone through once for all vectors that fit the memory, vmapped over them: a product alone is mostly
overhead, and twenty together cost about two. They may be of different blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch.func import vmap

from hessdiag.data.batch import Batch
from hessdiag.data.memory import unless_out_of_memory
from hessdiag.derivatives.backward import FunctionalModel, Values
from hessdiag.derivatives.losses import CallableLoss, Loss, MeanLoss
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import AD_MODES, PRODUCTS, Matrix, Products
from hessdiag.network.blocks import block_parameter

CHECKED = 4  # examples on which the ways to a product are compared
MIN_BYTES = 2**16  # of a chunk, which are never too many
Column = tuple[int, Tensor]  # number of an entry, and a vector from it on


class CurvatureOperator(LinearOperator):  # type: ignore[misc]
    """H of the batch-mean loss over a problem's blocks, one after the other, each as `flatten` orders it.

    Products are taken `around` a context, in chunks of `memory` bytes. `names` are those of the blocks; `reason` says
    which way to a product is taken, and why not a faster one; where none is right, a `HessdiagError` is raised.
    """

    def __init__(
        self, problem: Problem, matrix: Matrix, *, memory: int, seed: int = 0,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:  # fmt: skip
        self.problem, self.matrix, self.memory, self.around = problem, matrix, memory, around
        self.network = FunctionalModel(problem.model)
        few = problem if problem.batch.as_one else replace(problem, batch=problem.batch.narrow(0, CHECKED))
        products = Products(few.as_one_example(), matrix, seed=seed)
        self.mode, self.reason = products.mode, products.reason
        self.names = tuple(block.name for block in problem.blocks)
        self.at: Values = {b.name: block_parameter(problem.model, b).detach() for b in problem.blocks}
        self.like = next(iter(self.at.values()))
        *self.starts, size = accumulate((block.numel for block in problem.blocks), initial=0)
        super().__init__(np.dtype(str(self.like.dtype).removeprefix("torch.")), (size, size))

    def torch_matmat(self, V: Tensor) -> Tensor:
        """H V of vectors V (P, K), on the model's device: (P, K)."""
        rows = self.products([(0, v) for v in V.detach().to(self.like).T])
        return torch.stack(rows, dim=1) if rows else torch.empty_like(V)

    def products(self, columns: Sequence[Column], *, whole: bool = False) -> list[Tensor]:
        """H times vectors: of each the same entries, at the cost of these, or all."""

        def measure() -> list[Tensor]:
            return [w for some in self._fitting(columns, whole) for w in self._products(some, whole)]

        with self.around():
            found = unless_out_of_memory(measure, examples=max(1, self.memory // MIN_BYTES))
        if found is None:
            self.memory //= 4
            return self.products(columns, whole=whole)
        return found

    def _fitting(self, columns: Sequence[Column], whole: bool) -> Iterator[list[Column]]:
        """As many together as fit the memory of one chunk, at least 1."""
        some: list[Column] = []
        examples = min(self.problem.batch.size, self._examples_at_once) * self.problem.shape.bytes_per_example(1)
        low, high = self.shape[0], 0
        for start, v in columns:
            low, high = min(low, start), max(high, start + len(v))
            numbers = 3 * (self.shape[0] if whole else high - low) * v.element_size()  # tangent, gradient, product
            if some and (len(some) + 1) * (examples + numbers) > self.memory:
                yield some
                some, low, high = [], start, start + len(v)
            some.append((start, v))
        if some:
            yield some

    def _products(self, columns: Sequence[Column], whole: bool) -> list[Tensor]:
        low, high = min(start for start, _ in columns), max(start + len(v) for start, v in columns)
        places = [slice(start - low, start - low + len(v)) for start, v in columns]
        rows = self.like.new_zeros(len(columns), high - low)
        for row, place, (_, v) in zip(rows, places, columns, strict=True):
            row[place] = v
        some = {name: self.at[name] for name, start in zip(self.names, self.starts, strict=True) if low <= start < high}
        entries = torch.split(rows, [value.numel() for value in some.values()], dim=1)
        tangents = {name: v.view(-1, *value.shape) for (name, value), v in zip(some.items(), entries, strict=True)}
        at, total = (self.at, rows.new_zeros(len(rows), self.shape[0])) if whole else (some, torch.zeros_like(rows))
        for piece, loss, share in self.pieces():

            def one(r: Values, piece: Batch = piece, loss: Loss = loss) -> Tensor:
                found = PRODUCTS[self.matrix][self.mode](self.network, loss, at, r, piece)
                # Detached: a model may read a parameter from elsewhere, which has a gradient still.
                return torch.cat([found[name].detach().flatten() for name in at])

            if self.mode == AD_MODES[0]:
                total += share * vmap(one, randomness="same")(tangents).detach()
            else:
                each = [one({name: r[k] for name, r in tangents.items()}) for k in range(len(rows))]
                total += share * torch.stack(each)
        return [row if whole else row[place] for row, place in zip(total, places, strict=True)]

    def pieces(self) -> Iterator[tuple[Batch, Loss, float]]:
        """Examples that fit the memory, and their loss, which counts so much in the batch's mean."""
        batch, loss = self.problem.batch, self.problem.loss
        for chunk in batch.chunks(self._examples_at_once):
            if isinstance(loss, CallableLoss):  # which calls its function for each example on its own
                yield replace(chunk, as_one=True, size=1), MeanLoss(loss), chunk.size / batch.size
            else:
                yield chunk, loss, 1 / batch.size

    @property
    def _examples_at_once(self) -> int:
        return self.problem.shape.chunk(1, memory=self.memory)

    def _matmat(self, X: Any) -> Any:
        given = torch.from_numpy(np.array(X, dtype=self.dtype))
        return self.torch_matmat(given.to(self.like.device)).cpu().numpy()

    def _matvec(self, x: Any) -> Any:
        return self._matmat(np.reshape(x, (-1, 1)))

    def _adjoint(self) -> CurvatureOperator:
        return self

    _transpose = _adjoint
