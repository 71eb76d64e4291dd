"""Three ways to the same product, from the fastest to the one that asks least of the model's operations.

1. `forward over reverse`: the tangent of the gradient. Fastest; needs forward-mode rules for every operation, and
   silently ignores a `torch.no_grad()` block inside the model (pytorch#128600).
2. `reverse over reverse`: the gradient of ⟨gradient, r⟩, vmapped over probes and examples.
3. `reverse over reverse, one by one`: the same by plain `torch.autograd.grad`, for operations that torch.func cannot
   transform, such as activation checkpointing or a custom `autograd.Function`.

The Jacobian of the gradient is symmetric if the derivatives are right, so a rung must pass ⟨u, H v⟩ = ⟨v, H u⟩ on
random u and v before it is used. `torch.func.hessian` is not among them: its `jacrev` is wrong on normalisation layers
(pytorch#196699).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp

from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import FunctionalModel
from hessdiag.derivatives.losses import Loss

Values = dict[str, Tensor]
Product = Callable[[FunctionalModel, Loss, Values, Mapping[str, Tensor], Batch], Values]

RUNGS = ("forward over reverse", "reverse over reverse", "reverse over reverse, one by one")


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


def hessian_reverse(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `hessian_forward`, by reverse mode alone: H is symmetric, so its rows are the gradient of ⟨gradient, r⟩."""

    def along(values: Values) -> Tensor:
        gradient = grad(lambda v: loss.value(network(v, batch), batch.targets).sum())(values)
        return torch.stack([(gradient[name] * r[name]).sum() for name in r]).sum()

    return cast(Values, grad(along)(at))


def hessian_plain(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `hessian_reverse`, without torch.func."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in at.items()}
    value = loss.value(network(leaves, batch), batch.targets).sum()
    if not value.requires_grad:  # this example takes a path without them
        return _plain_gradient([], leaves)
    gradient = torch.autograd.grad(value, [leaves[name] for name in r], create_graph=True, allow_unused=True)
    terms = [(g * r[name]).sum() for g, name in zip(gradient, r, strict=True) if g is not None and g.requires_grad]
    return _plain_gradient(terms, leaves)


def ggn_forward(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """Rows `at` of J^T S J r: forward mode, the loss's Hessian product, reverse mode."""
    moving = {name: at[name] for name in r}
    y, moved, *_ = jvp(lambda values: network(values, batch), (moving,), (dict(r),))
    _, pull, *_ = vjp(lambda values: network(values, batch), at)
    return cast(Values, pull(loss.hessian_product(y, batch.targets, moved))[0])


def ggn_reverse(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `ggn_forward`, with J r as the gradient of ⟨J^T v, r⟩ in v."""
    y, pull, *_ = vjp(lambda values: network(values, batch), at)

    def along(v: Tensor) -> Tensor:
        back = pull(v)[0]
        return torch.stack([(back[name] * r[name]).sum() for name in r]).sum()

    moved = grad(along)(torch.zeros_like(y))
    return cast(Values, pull(loss.hessian_product(y, batch.targets, moved))[0])


def ggn_plain(network: FunctionalModel, loss: Loss, at: Values, r: Mapping[str, Tensor], batch: Batch) -> Values:
    """As `ggn_reverse`, without torch.func."""
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
    "hessian": dict(zip(RUNGS, (hessian_forward, hessian_reverse, hessian_plain), strict=True)),
    "ggn": dict(zip(RUNGS, (ggn_forward, ggn_reverse, ggn_plain), strict=True)),
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
