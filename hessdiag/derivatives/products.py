"""Hessian- and Gauss-Newton-vector products restricted to one block of columns, in weight space.

One product H[:, j] r gives the norms ‖H_ij r‖² of a whole column of blocks. Everything but the blocks concerned is a
constant. There are two ways to a product:

1. `forward over reverse`: the tangent of the gradient, vmapped over probes, and in the per-example view over examples
   too. Fast; needs forward-mode rules for every operation, and silently ignores a `torch.no_grad()` block inside the
   model (pytorch#128600).
2. `reverse over reverse, one by one`: the gradient of ⟨gradient, r⟩ by plain `torch.autograd.grad`, for all else.

The Jacobian of the gradient is symmetric if the derivatives are right, so a mode must pass ⟨u, H v⟩ = ⟨v, H u⟩ on
random u and v before it is used. `torch.func.hessian` is not among them: its `jacrev` is wrong on normalisation layers
(pytorch#196699).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.func import grad, jvp, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hessdiag.data.batch import Batch
from hessdiag.data.seeds import stream
from hessdiag.derivatives.functional import FunctionalModel
from hessdiag.derivatives.losses import Loss
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter

Matrix = Literal["hessian", "ggn"]
Values = dict[str, Tensor]
Product = Callable[[FunctionalModel, Loss, Values, Mapping[str, Tensor], Batch], Values]

AD_MODES = ("forward over reverse", "reverse over reverse, one by one")
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}  # of the symmetry check
LOW_PRECISIONS = {torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex32}
MIXED_TOLERANCE = 1e-4  # of it, in a float64 model of which parts compute in less


def hessian_forward(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """Rows `at` of H r for the summed loss, r a tangent of some of the blocks in `at`.

    Float targets go in as primals with zero tangents: some losses crash otherwise (pytorch#123996).
    """
    moving = {name: at[name] for name in r}

    def gradient(moved: Values, targets: Tensor | None) -> Values:
        return cast(Values, grad(lambda v: loss.value(network(v, batch), targets).sum())(at | moved))

    targets = batch.targets
    if targets is not None and targets.is_floating_point():
        return cast(Values, jvp(gradient, (moving, targets), (dict(r), torch.zeros_like(targets)))[1])
    return cast(Values, jvp(lambda moved: gradient(moved, targets), (moving,), (dict(r),))[1])


def hessian_plain(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `hessian_forward`, by reverse mode alone: H is symmetric, so its rows are the gradient of ⟨gradient, r⟩."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in at.items()}
    value = loss.value(network(leaves, batch), batch.targets).sum()
    if not value.requires_grad:  # this example takes a path without them
        return _plain_gradient([], leaves)
    gradient = torch.autograd.grad(value, [leaves[name] for name in r], create_graph=True, allow_unused=True)
    terms = [(g * r[name]).sum() for g, name in zip(gradient, r, strict=True) if g is not None and g.requires_grad]
    return _plain_gradient(terms, leaves)


def ggn_forward(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """Rows `at` of J^T S J r: forward mode, the loss's Hessian by reverse mode twice, reverse mode."""
    moving = {name: at[name] for name in r}
    y, moved, *_ = jvp(lambda values: network(values, batch), (moving,), (dict(r),))
    _, pull, *_ = vjp(lambda values: network(values, batch), at)

    def summed(outputs: Tensor) -> Tensor:
        return loss.value(outputs, batch.targets).sum()

    _, curve, *_ = vjp(grad(summed), y)
    return cast(Values, pull(curve(moved)[0])[0])


def ggn_plain(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `ggn_forward`, with J r as the gradient of ⟨J^T v, r⟩ in v."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in at.items()}
    y = network(leaves, batch)
    if not y.requires_grad:
        return _plain_gradient([], leaves)
    v = torch.zeros_like(y, requires_grad=True)
    back = torch.autograd.grad(y, [leaves[name] for name in r], v, create_graph=True, allow_unused=True)
    terms = [(g * r[name]).sum() for g, name in zip(back, r, strict=True) if g is not None and g.requires_grad]
    moved = torch.autograd.grad(torch.stack(terms).sum(), v, retain_graph=True)[0] if terms else torch.zeros_like(y)
    curved = loss.hessian_product(y.detach(), batch.targets, moved.detach())
    found = torch.autograd.grad(y, list(leaves.values()), curved, allow_unused=True)
    return {n: torch.zeros_like(leaf) if g is None else g for (n, leaf), g in zip(leaves.items(), found, strict=True)}


PRODUCTS: dict[str, dict[str, Product]] = {
    "hessian": dict(zip(AD_MODES, (hessian_forward, hessian_plain), strict=True)),
    "ggn": dict(zip(AD_MODES, (ggn_forward, ggn_plain), strict=True)),
}


SMALL_BLOCK = 1e-2  # of the largest block: smaller ones differ by more rounding, relative to them


def asymmetry(product: Product, network: FunctionalModel, loss: Loss, at: Values, batch: Batch, seed: int) -> float:
    """|⟨u, H v⟩ − ⟨v, H u⟩| over the size of the two, for random u and v of all blocks."""
    u, v = _random_directions(at, seed)
    Hu, Hv = (product(network, loss, at, r, batch) for r in (u, v))

    def dot(a: Values, b: Values) -> float:
        return float(sum((a[n].detach().double() * b[n].detach().double()).sum() for n in at))

    size = (dot(Hu, Hu) * dot(Hv, Hv)) ** 0.25
    return abs(dot(u, Hv) - dot(v, Hu)) / size if size > 0 else 0.0


def difference(
    product: Product, other: Product, network: FunctionalModel, loss: Loss, at: Values, batch: Batch, seed: int
) -> float:
    """Largest error of a block of H u by one way, relative to it by another; 0 where the other does not run.

    Symmetry alone does not tell: what forward mode makes of a `torch.no_grad()` may be symmetric too, as of one number.
    """
    u, _ = _random_directions(at, seed)
    try:
        expected = other(network, loss, at, u, batch)
    except (RuntimeError, NotImplementedError):
        return 0.0
    found = product(network, loss, at, u, batch)
    sizes = {name: float(expected[name].detach().double().norm()) for name in at}
    least = SMALL_BLOCK * max(sizes.values())
    errors = {name: float((found[name] - expected[name]).detach().double().norm()) for name in at}
    return max(error / max(sizes[name], least) if error > 0 else 0.0 for name, error in errors.items())


def _random_directions(at: Values, seed: int) -> tuple[Values, Values]:
    generator = torch.Generator().manual_seed(seed)
    u, v = ({n: torch.randn(w.shape, generator=generator).to(w) for n, w in at.items()} for _ in range(2))
    return u, v


def _plain_gradient(terms: Sequence[Tensor], leaves: Values) -> Values:
    if not terms:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(torch.stack(list(terms)).sum(), list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(leaf) if g is None else g for (n, leaf), g in zip(leaves.items(), found, strict=True)}


class Products:
    """Products with the Hessian or the Gauss-Newton matrix of a model's loss.

    Attributes:
        mode: which of `AD_MODES` runs.
        passed_over: for each faster mode, why not that one.
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
        self.mode = self._pick(problem, seed)

    @property
    def tolerance(self) -> float:
        """Of the checks."""
        mixed = self.precision != self.dtype
        return MIXED_TOLERANCE if mixed else TOLERANCE[self.precision]

    @property
    def reason(self) -> str:
        """The mode, and why not a faster one, as a clause."""
        against = "".join(f"; not {mode}: {why}" for mode, why in self.passed_over.items())
        parts = "; parts of the model compute in float32" if self.precision != self.dtype else ""
        return f"{self.mode}{against}{parts}"

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
        if self.mode == AD_MODES[1]:
            each = [self.batch_column_norms(column, rows, p, part.narrow(b, b + 1)) for b, p in enumerate(probes)]
            return torch.stack(each)

        def one(args: tuple[Any, ...], kwargs: dict[str, Any], target: Tensor | None, r: Tensor) -> Tensor:
            return self._norms(column, rows, r, part.single(args, kwargs, target))

        inner = vmap(one, in_dims=(None, None, None, 0), randomness="same")
        outer = vmap(inner, in_dims=(*part.batched_dims(), 0), randomness="same")
        return outer(part.args, dict(part.kwargs), part.targets, probes)

    def batch_column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> Tensor:
        """‖H_ij r‖² of the batch-mean loss; `probes` is (M, *shape of block j), the result (M, len(rows))."""
        if self.mode == AD_MODES[1]:
            return torch.stack([self._norms(column, rows, r, batch) for r in probes])
        return vmap(lambda r: self._norms(column, rows, r, batch), randomness="same")(probes)

    def batch_column(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> list[Tensor]:
        """The products H_ij r themselves, with the batch-mean loss: (M, P_i) for each row block i.

        With a batch of one example they are those of that example's own matrix.
        """
        if self.mode == AD_MODES[1]:
            each = [self._parts(column, rows, r, batch) for r in probes]
            return [torch.stack(row) for row in zip(*each, strict=True)]
        return list(vmap(lambda r: tuple(self._parts(column, rows, r, batch)), randomness="same")(probes))

    def _norms(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> Tensor:
        return torch.stack([part.double().square().sum() for part in self._parts(column, rows, r, batch)])

    def _parts(self, column: Block, rows: Sequence[Block], r: Tensor, batch: Batch) -> list[Tensor]:
        at = self._values((*rows, column))
        parts = PRODUCTS[self.matrix][self.mode](self.network, self.loss, at, {column.name: r}, batch)
        # Detached: a model may read a parameter from elsewhere, which is no block then, but has a gradient still.
        return [parts[row.name].detach().flatten() / batch.size for row in rows]

    def _values(self, blocks: Sequence[Block]) -> dict[str, Tensor]:
        return {block.name: block_parameter(self.model, block).detach() for block in blocks}

    def _pick(self, problem: Problem, seed: int) -> str:
        """The first mode that runs, whose product is symmetric, that of plain autograd, and the same when vmapped."""
        few = problem.batch.narrow(0, 2)
        one = few.narrow(0, 1)
        at = self._values(problem.blocks)
        if not at:
            return AD_MODES[0]
        tolerance, ways = self.tolerance, PRODUCTS[self.matrix]
        for mode in AD_MODES:
            self.mode = mode
            try:
                found = asymmetry(ways[mode], self.network, self.loss, at, one, seed)
                off = difference(ways[mode], ways[AD_MODES[1]], self.network, self.loss, at, one, seed)
                together = mode == AD_MODES[1] or self._same_together(at, few, seed)
            except (RuntimeError, NotImplementedError) as error:
                self.passed_over[mode] = " ".join(str(error).split())[:120] or type(error).__name__
                continue
            if found <= tolerance and off <= tolerance and together:
                return mode
            wrong = "changed by vmap" if off <= tolerance else f"not those of plain autograd (off by {off:.0e})"
            wrong = wrong if found <= tolerance else f"not symmetric (off by {found:.0e})"
            self.passed_over[mode] = f"its products are {wrong}"
        why = "; ".join(f"{mode}: {reason}" for mode, reason in self.passed_over.items())
        raise HessdiagError(
            f"no way to a right {self.matrix} product of this model ({why}): try matrix='ggn' (--matrix ggn)"
        )

    def _same_together(self, at: dict[str, Tensor], few: Batch, seed: int) -> bool:
        """Whether products vmapped over examples and probes are those of one at a time; torch's PReLU fails it."""
        product = PRODUCTS[self.matrix][self.mode]
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
