"""Hessian- and Gauss-Newton-vector products in weight space: of each example, and of the batch's mean.

One product H[:, j] r gives the norms ‖H_ij r‖² of a whole column of blocks. Everything but the blocks concerned is a
constant. There are two ways to a product:

1. `forward over reverse`: the tangent of the gradient, vmapped over probes, and in the per-example view over examples
   too. Fast; needs forward-mode rules for every operation, and ignores `torch.no_grad()` in the model (pytorch#128600).
2. `reverse over reverse, one by one`: the gradient of ⟨gradient, r⟩ by plain `torch.autograd.grad`, for all else.

A mode must pass ⟨u, H v⟩ = ⟨v, H u⟩ on random u and v before it is used, and agree with plain autograd.
`torch.func.hessian` is not among them: its `jacrev` is wrong on normalisation layers (pytorch#196699).

The mean over a batch is summed up in chunks of examples; where these meet, as in batch normalisation, all are one. Each
chunk is gone through once for all vectors that fit the memory, vmapped over them: a product alone is mostly overhead,
and twenty together cost about two. They may be of different blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, cast

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch.func import grad, vjp, vmap
from torch.utils._pytree import tree_map

from hessdiag.data.batch import Batch
from hessdiag.data.memory import unless_out_of_memory
from hessdiag.data.seeds import stream
from hessdiag.derivatives.backward import FunctionalModel, Values, inner_product, outputs_and_tangent, reverse_gradient
from hessdiag.derivatives.losses import CallableLoss, Loss, MeanLoss
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.torch_state import jvp

Matrix = Literal["hessian", "ggn"]
Product = Callable[[FunctionalModel, Loss, Values, Mapping[str, Tensor], Batch], Values]

Column = tuple[int, Tensor]  # number of an entry, and a vector from it on

AD_MODES = ("forward over reverse", "reverse over reverse, one by one")
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-4}  # of the checks; parts of a float64 model may compute in less
CHECKED = 4  # examples on whose mean the ways to a product are compared
MIN_BYTES = 2**16  # of a chunk, which are never too many


def hessian_forward(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """Rows `at` of H r for the summed loss. Float targets are primals, with zero tangents (pytorch#123996)."""
    moving = {name: at[name] for name in r}

    def gradient(moved: Values, targets: Tensor | None) -> Values:
        return cast(Values, grad(lambda v: loss.value(network(v, batch), targets).sum())(at | moved))

    if (targets := batch.targets) is not None and targets.is_floating_point():
        return cast(Values, jvp(gradient, (moving, targets), (dict(r), torch.zeros_like(targets)))[1])
    return cast(Values, jvp(lambda moved: gradient(moved, targets), (moving,), (dict(r),))[1])


def hessian_plain(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `hessian_forward`, by reverse mode alone: H is symmetric, so its rows are the gradient of ⟨gradient, r⟩."""
    leaves, y = network.leaves_and_outputs(at, batch)
    value = loss.value(y, batch.targets).sum()
    gradient = reverse_gradient(value, {name: leaves[name] for name in r}, create_graph=True)
    return reverse_gradient(inner_product(gradient, r), leaves)


def ggn_forward(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """Rows `at` of J^T S J r: forward mode, the loss's Hessian by reverse mode twice, reverse mode."""
    y, moved, *_ = jvp(lambda values: network(values, batch), ({name: at[name] for name in r},), (dict(r),))
    _, pull, *_ = vjp(lambda values: network(values, batch), at)

    def summed(outputs: Tensor) -> Tensor:
        return loss.value(outputs, batch.targets).sum()

    _, curve, *_ = vjp(grad(summed), y)
    return cast(Values, pull(curve(moved)[0])[0])


def ggn_plain(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `ggn_forward`, by reverse mode alone."""
    y, moved = outputs_and_tangent(network, {name: at[name] for name in r}, r, batch, forward_mode=False)
    curved = loss.hessian_product(y, batch.targets, moved)
    leaves, y = network.leaves_and_outputs(at, batch)
    return reverse_gradient(y, leaves, curved)


PRODUCTS: dict[str, dict[str, Product]] = {
    "hessian": dict(zip(AD_MODES, (hessian_forward, hessian_plain), strict=True)),
    "ggn": dict(zip(AD_MODES, (ggn_forward, ggn_plain), strict=True)),
}


SMALL_BLOCK = 1e-2  # of the largest block: smaller ones differ by more rounding, relative to them


def asymmetry(Hu: Values, v: Values, Hv: Values, u: Values) -> float:
    """|⟨Hu, v⟩ − ⟨Hv, u⟩| over the size of the two."""
    Hu, v, Hv, u = ({n: value.detach().double() for n, value in each.items()} for each in (Hu, v, Hv, u))
    size = float(inner_product(Hu, Hu) * inner_product(Hv, Hv)) ** 0.25
    return abs(float(inner_product(Hu, v) - inner_product(Hv, u))) / size if size > 0 else 0.0


def difference(found: Values, expected: Values) -> float:
    """Largest error of a block of a product, relative to its size."""
    sizes = {name: float(value.detach().double().norm()) for name, value in expected.items()}
    errors = {name: float((found[name] - value).detach().double().norm()) for name, value in expected.items()}
    least = SMALL_BLOCK * max(sizes.values())
    return max(error / max(sizes[name], least) if error > 0 else 0.0 for name, error in errors.items())


class Products:
    """Products with the Hessian or Gauss-Newton matrix of a loss; `passed_over` says why not the other mode."""

    def __init__(self, problem: Problem, matrix: Matrix, *, seed: int = 0) -> None:
        self.network, self.matrix = FunctionalModel(problem.model), matrix
        self.loss, self.passed_over = problem.loss, dict[str, str]()
        self.mode = self._pick(problem, seed)
        self.network = FunctionalModel(problem.model)  # reverse mode may have made its constants leaves of a graph

    @property
    def reason(self) -> str:
        """The mode, and why not a faster one, as a clause."""
        first = AD_MODES[0]
        return self.mode if self.mode == first else f"{self.mode}; not {first}: {self.passed_over[first]}"

    def column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, part: Batch) -> Tensor:
        """‖H_ij r‖² of each example's own matrix, (B, M, len(rows)), of M probes each (B, M, *shape of block j)."""

        def norms(products: Values) -> Tensor:
            return torch.stack([products[row.name].double().square().sum() for row in rows])

        return cast(Tensor, self._of_examples(self._values((*rows, column)), {column.name: probes}, part, norms))

    def of_each(self, at: Values, r: Values, batch: Batch, loss: Loss, look: Callable[[Values], Any]) -> Any:
        """`look` at the product with each of M tangents, whose values are (M, ...), vmapped where that is possible."""

        def one(r: Values) -> Any:
            return look(PRODUCTS[self.matrix][self.mode](self.network, loss, at, r, batch))

        if self.mode == AD_MODES[0]:
            return vmap(one, randomness="same")(r)
        each = [one(dict(zip(r, values, strict=True))) for values in zip(*r.values(), strict=True)]
        return tree_map(lambda *found: torch.stack(found), *each)

    def _of_examples(self, at: Values, probes: Values, part: Batch, look: Callable[[Values], Any]) -> Any:
        """The same of each of B examples' own probes, whose values are (B, M, ...)."""

        def one(single: Batch, r: Values) -> Any:
            return self.of_each(at, r, single, self.loss, look)

        if part.apart and self.mode == AD_MODES[0]:
            return vmap(lambda leaves, r: one(part.single(leaves), r), randomness="same")(part.leaves, probes)
        each = [one(part.narrow(b, b + 1), {name: r[b] for name, r in probes.items()}) for b in range(part.size)]
        return tree_map(lambda *found: torch.stack(found), *each)

    def _values(self, blocks: Sequence[Block]) -> Values:
        return {block.name: block_parameter(self.network.model, block).detach() for block in blocks}

    def _pick(self, problem: Problem, seed: int) -> str:
        """The first mode that runs, and whose products, vmapped, are symmetric and those of plain autograd. Symmetry
        alone does not tell: what forward mode makes of a `torch.no_grad()` may be symmetric too. Plain autograd may not
        run; then the products of one example at a time are held against those of several.
        """
        few, at = problem.batch.narrow(0, 2), self._values(problem.blocks)
        generator, right = stream(seed, "product check"), ""
        probes = {n: torch.randn(few.size, 2, *w.shape, generator=generator).to(w) for n, w in at.items()}
        u, v = ({name: r[-1, number] for name, r in probes.items()} for number in range(2))
        expected, tolerance = list[Values](), TOLERANCE[next(iter(at.values())).dtype]
        for mode in reversed(AD_MODES):
            self.mode = mode
            try:
                way, one = PRODUCTS[self.matrix][mode], few.narrow(few.size - 1, few.size)
                expected = expected or [way(self.network, self.loss, at, r, one) for r in (u, v)]
                found = expected
                if mode == AD_MODES[0]:
                    together = self._of_examples(at, probes, few, lambda product: product)
                    found = [{name: each[-1, number] for name, each in together.items()} for number in range(2)]
            except (RuntimeError, NotImplementedError) as error:
                self.passed_over[mode] = " ".join(str(error).split())[:120] or type(error).__name__
                continue
            odd, off = asymmetry(found[0], v, found[1], u), max(map(difference, found, expected))
            if odd > tolerance:
                self.passed_over[mode] = f"its products are not symmetric (off by {odd:.0e})"
            elif off > tolerance:
                self.passed_over[mode] = f"its products are not those of plain autograd (off by {off:.0e})"
            else:
                right = mode
        if not right:
            why = "; ".join(f"{mode}: {self.passed_over[mode]}" for mode in AD_MODES)
            what = f"no way to a right {self.matrix} product of this model ({why})"
            raise HessdiagError(f"{what}: try matrix='ggn' (--matrix ggn)")
        return right


@dataclass(frozen=True)
class Part:
    """Entries of a parameter that belong together: all of them, or those of an index."""

    name: str
    block: Block
    index: tuple[slice, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the entries."""
        return tuple(torch.empty(self.block.shape, device="meta")[self.index].shape)

    @property
    def numel(self) -> int:
        """How many they are."""
        return math.prod(self.shape)

    def of(self, values: Tensor) -> Tensor:
        """Its entries (K, *self.shape) of those of several whole parameters (K, *block.shape)."""
        return values[(slice(None), *self.index)]


class CurvatureOperator(LinearOperator):  # type: ignore[misc]
    """H of the batch-mean loss over parts of parameters, one after the other, each as `flatten` orders it. Products are
    taken `around` a context, in chunks of `memory` bytes. `names` are those of the parts; `reason` says which way to a
    product is taken, and why not a faster one; where none is right, a `HessdiagError` is raised.
    """

    def __init__(
        self, problem: Problem, matrix: Matrix, *, memory: int, parts: Sequence[Part] = (), seed: int = 0,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:  # fmt: skip
        self.problem, self.matrix, self.memory, self.around = problem, matrix, memory, around
        few = replace(problem, batch=problem.batch.narrow(0, CHECKED))
        self.ways = Products(few.as_one_example(), matrix, seed=seed)
        self.parts = tuple(parts) or tuple(Part(block.name, block) for block in problem.blocks)
        self.names = tuple(part.name for part in self.parts)
        self.at: Values = {b.name: block_parameter(problem.model, b).detach() for b in problem.blocks}
        self.like = next(iter(self.at.values()))
        *self.starts, size = accumulate((part.numel for part in self.parts), initial=0)
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
        some = [part for part, start in zip(self.parts, self.starts, strict=True) if low <= start < high]
        moving = {part.block.name: self.at[part.block.name] for part in some}
        tangents = {name: value.new_zeros(len(rows), *value.shape) for name, value in moving.items()}
        for part, entries in zip(some, torch.split(rows, [p.numel for p in some], dim=1), strict=True):
            part.of(tangents[part.block.name]).copy_(entries.view(-1, *part.shape))
        at, parts = (self.at, self.parts) if whole else (moving, some)
        total = rows.new_zeros(len(rows), sum(part.numel for part in parts))

        def taken(found: Values) -> Tensor:
            # Detached: a model may read a parameter from elsewhere, which has a gradient still.
            return torch.cat([part.of(found[part.block.name].detach().unsqueeze(0)).flatten() for part in parts])

        for piece, loss, share in self.pieces():
            total += share * self.ways.of_each(at, tangents, piece, loss, taken).detach()
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
        return self.torch_matmat(torch.from_numpy(np.array(X, dtype=self.dtype))).cpu().numpy()

    def _adjoint(self) -> CurvatureOperator:
        return self

    _transpose = _adjoint
