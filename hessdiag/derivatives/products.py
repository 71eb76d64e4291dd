"""Hessian- and Gauss-Newton-vector products restricted to one block of columns, in weight space.

One product H[:, j] r gives the norms ‖H_ij r‖² of a whole column of blocks. Everything but the blocks concerned is a
constant, and products are vmapped: over probes, and in the per-example view over examples too, each with its own probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hessdiag.data.batch import Batch
from hessdiag.data.seeds import stream
from hessdiag.derivatives.functional import FunctionalModel
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.product_modes import PRODUCTS, RUNGS, asymmetry, difference
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter

Matrix = Literal["hessian", "ggn"]

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}  # of the symmetry check
LOW_PRECISIONS = {torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex32}
MIXED_TOLERANCE = 1e-4  # of it, in a float64 model of which parts compute in less


class Products:
    """Products with the Hessian or the Gauss-Newton matrix of a model's loss.

    Attributes:
        rung: which of `hessdiag.derivatives.product_modes.RUNGS` runs.
        passed_over: for each faster rung, why not that one.
        precision: the least that the model computes in, which bounds what a check may ask.
    """

    def __init__(self, problem: Problem, matrix: Matrix, *, seed: int = 0) -> None:
        self.network = FunctionalModel(problem.model)
        self.model = problem.model
        self.loss = problem.loss
        self.matrix = matrix
        self.passed_over: dict[str, str] = {}
        self.dtype = next((p.dtype for p in problem.model.parameters() if p.is_floating_point()), torch.float64)
        self.precision = computed_in(problem.model, problem.batch.narrow(0, 1))
        self.rung = self._climb(problem, seed)

    @property
    def tolerance(self) -> float:
        """Of the checks."""
        mixed = self.precision != self.dtype
        return MIXED_TOLERANCE if mixed else TOLERANCE[self.precision]

    @property
    def reason(self) -> str:
        """The rung, and what spoke against faster ones, as a clause."""
        against = "".join(f"; not {rung}: {why}" for rung, why in self.passed_over.items())
        parts = "; parts of the model compute in float32" if self.precision != self.dtype else ""
        return f"{self.rung}{against}{parts}"

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
        if self.rung == RUNGS[2]:
            each = [self.batch_column_norms(column, rows, p, part.narrow(b, b + 1)) for b, p in enumerate(probes)]
            return torch.stack(each)

        def one(args: tuple[Any, ...], kwargs: dict[str, Any], target: Tensor | None, r: Tensor) -> Tensor:
            return self._norms(column, rows, r, part.single(args, kwargs, target))

        inner = vmap(one, in_dims=(None, None, None, 0), randomness="same")
        outer = vmap(inner, in_dims=(*part.batched_dims(), 0), randomness="same")
        return outer(part.args, dict(part.kwargs), part.targets, probes)

    def batch_column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> Tensor:
        """‖H_ij r‖² of the batch-mean loss; `probes` is (M, *shape of block j), the result (M, len(rows))."""
        if self.rung == RUNGS[2]:
            return torch.stack([self._norms(column, rows, r, batch) for r in probes])
        return vmap(lambda r: self._norms(column, rows, r, batch), randomness="same")(probes)

    def batch_column(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> list[Tensor]:
        """The products H_ij r themselves, with the batch-mean loss: (M, P_i) for each row block i.

        With a batch of one example they are those of that example's own matrix.
        """
        if self.rung == RUNGS[2]:
            each = [self._parts(column, rows, r, batch) for r in probes]
            return [torch.stack(row) for row in zip(*each, strict=True)]
        return list(vmap(lambda r: tuple(self._parts(column, rows, r, batch)), randomness="same")(probes))

    def _norms(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> Tensor:
        return torch.stack([part.double().square().sum() for part in self._parts(column, rows, r, batch)])

    def _parts(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> list[Tensor]:
        at = self._values((*rows, column))
        parts = PRODUCTS[self.matrix][self.rung](self.network, self.loss, at, {column.name: r}, batch)
        # Detached: a model may read a parameter from elsewhere, which is no block then, but has a gradient still.
        return [parts[row.name].detach().flatten() / batch.size for row in rows]

    def _values(self, blocks: Sequence[Block]) -> dict[str, Tensor]:
        return {block.name: block_parameter(self.model, block).detach() for block in blocks}

    def _climb(self, problem: Problem, seed: int) -> str:
        """The first rung that runs, whose product is symmetric, that of plain autograd, and the same when vmapped."""
        few = problem.batch.narrow(0, 2)
        one = few.narrow(0, 1)
        at = self._values(problem.blocks)
        if not at:
            return RUNGS[0]
        tolerance, ways = self.tolerance, PRODUCTS[self.matrix]
        for rung in RUNGS:
            self.rung = rung
            try:
                found = asymmetry(ways[rung], self.network, self.loss, at, one, seed)
                off = difference(ways[rung], ways[RUNGS[2]], self.network, self.loss, at, one, seed)
                together = rung == RUNGS[2] or self._same_together(at, few, seed)
            except (RuntimeError, NotImplementedError) as error:
                self.passed_over[rung] = " ".join(str(error).split())[:120] or type(error).__name__
                continue
            if found <= tolerance and off <= tolerance and together:
                return rung
            wrong = "changed by vmap" if off <= tolerance else f"not those of plain autograd (off by {off:.0e})"
            wrong = wrong if found <= tolerance else f"not symmetric (off by {found:.0e})"
            self.passed_over[rung] = f"its products are {wrong}"
        why = "; ".join(f"{rung}: {reason}" for rung, reason in self.passed_over.items())
        raise HessdiagError(
            f"no way to a right {self.matrix} product of this model ({why}): try matrix='ggn' (--matrix ggn)"
        )

    def _same_together(self, at: dict[str, Tensor], few: Batch, seed: int) -> bool:
        """Whether products vmapped over examples and probes are those of one at a time; torch's PReLU fails it."""
        product = PRODUCTS[self.matrix][self.rung]
        generator = stream(seed, "vmap check")
        probes = {n: torch.randn(few.size, 2, *w.shape, generator=generator).to(w) for n, w in at.items()}

        def norms(r: dict[str, Tensor], batch: Batch) -> Tensor:
            found = product(self.network, self.loss, at, r, batch)
            return torch.stack([found[name].detach().square().sum() for name in at])

        def one(args: tuple[Any, ...], kwargs: dict[str, Any], target: Tensor | None, r: dict[str, Tensor]) -> Tensor:
            return norms(r, few.single(args, kwargs, target))

        inner = vmap(one, in_dims=(None, None, None, 0), randomness="same")
        outer = vmap(inner, in_dims=(*few.batched_dims(), 0), randomness="same")
        together = outer(few.args, dict(few.kwargs), few.targets, probes)[-1, -1]
        alone = norms({name: r[-1, -1] for name, r in probes.items()}, few.narrow(few.size - 1, few.size))
        # A block that is zero up to rounding, as a bias before a normalisation layer, is held against the others.
        rounding = torch.finfo(self.precision).eps * float(alone.max())
        return torch.allclose(together, alone, rtol=self.tolerance, atol=rounding)


class _Precisions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note the floating-point types of all results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation."""
        results = func(*args, **(kwargs or {}))
        self.seen |= {leaf.dtype for leaf in tree_leaves(results) if isinstance(leaf, Tensor)}
        return results


def computed_in(model: nn.Module, example: Batch) -> torch.dtype:
    """float32 where the weights are, or where parts of a float64 model compute in it or less, as T5's normalisation."""
    with _Precisions() as precisions:  # with gradients: a model may take some in its own forward pass
        example.call(model)
    return torch.float32 if precisions.seen & LOW_PRECISIONS else torch.float64
