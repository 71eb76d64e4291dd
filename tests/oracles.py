"""Obviously right references: dense matrices, one row at a time, by plain `torch.autograd.grad`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import hessdiag
from hessdiag.derivatives.losses import RandomQuadratic

LossOfBatch = Callable[[Tensor, Tensor | None], Tensor]
Blocks = Sequence[Sequence[Tensor]]


def quadratic_matrix(outputs: int) -> Tensor:
    return RandomQuadratic.draw(outputs, seed=0, like=torch.zeros((), dtype=torch.float64)).R


def quadratic(outputs: int) -> LossOfBatch:
    R = quadratic_matrix(outputs)
    return lambda y, t: ((y @ R.to(y)) * y).sum() / len(y)


def dense_rows(values: Tensor, at: list[Tensor]) -> list[Tensor]:
    """For each tensor in `at`, the matrix whose rows are the gradients of the values, in their order."""
    rows = []
    for one in torch.eye(values.numel()).to(values).view(-1, *values.shape):
        grads = torch.autograd.grad(values, at, one, retain_graph=True, allow_unused=True)
        rows.append([torch.zeros_like(a) if g is None else g.to_dense() for a, g in zip(at, grads, strict=True)])
    return [torch.stack([row[i].flatten() for row in rows]) for i in range(len(at))]


def hessian_blocks(model: nn.Module, x: Tensor, t: Tensor | None, loss: LossOfBatch, names: list[str]) -> Blocks:
    """All blocks of the Hessian of `loss(model(x), t)`."""
    at, blocks = [model.get_parameter(name) for name in names], []
    with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
        grads = torch.autograd.grad(loss(model(x), t), at, create_graph=True, allow_unused=True)
        for a, g in zip(at, grads, strict=True):
            flat = g is None or not g.requires_grad
            blocks.append([a.new_zeros(a.numel(), b.numel()) for b in at] if flat else dense_rows(g, at))
    return blocks


def ggn_blocks(model: nn.Module, x: Tensor, t: Tensor | None, loss: LossOfBatch, names: list[str]) -> Blocks:
    """All blocks of the generalised Gauss-Newton matrix J^T S J of `loss(model(x), t)`."""
    at = [model.get_parameter(name) for name in names]
    with sdpa_kernel(SDPBackend.MATH):
        y = model(x)
    J = dense_rows(y, at)  # (B N, P) each
    z = y.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(z, t), z, create_graph=True)
    S = dense_rows(g, [z])[0] if g.requires_grad else torch.zeros(z.numel(), z.numel()).to(z)
    return [[Ji.T @ S @ Jj for Jj in J] for Ji in J]


DENSE = {"ggn": ggn_blocks, "hessian": hessian_blocks}


def joined(blocks: Blocks) -> Tensor:
    return torch.cat([torch.cat([*row], dim=1) for row in blocks]).detach()


def frobenius_sq(blocks: Blocks) -> Tensor:
    return torch.stack([torch.stack([block.square().sum() for block in row]) for row in blocks]).detach()


def mean_over_examples(
    of: Callable[..., Blocks], model: nn.Module, x: Tensor, t: Tensor | None, loss: LossOfBatch, names: list[str]
) -> Tensor:
    """Mean of the (L, L) squared norms of each example's own matrix."""
    own = zip(x.split(1), [None] * len(x) if t is None else t.split(1), strict=True)
    return torch.stack([frobenius_sq(of(model, *each, loss, names)) for each in own]).mean(dim=0)


def dense_norms(
    model: nn.Module, x: Tensor, t: Tensor | None, loss: LossOfBatch, names: list[str], matrix: str, per: str
) -> Tensor:
    """(L, L) squared norms of a matrix, of the batch or as a mean over each example's own."""
    if per == "batch":
        return frobenius_sq(DENSE[matrix](model, x, t, loss, names))
    return mean_over_examples(DENSE[matrix], model, x, t, loss, names)


def values_of(report: Any, key: str = "avg_sq_singular_value") -> dict[str, float]:
    """A number of every block of a report or prediction by its name, σ² where no other is asked for."""
    return {block.name: getattr(block, key) for block in report.blocks}


def equals_dense(report: hessdiag.Report, names: list[str], dense: Tensor, *, rel: float = 1e-10) -> None:
    """Blocks and map are the squared norms (L, L) of the dense blocks of these names, but for rounding."""
    floor = 1e-12 * float(dense.max())
    for block in report.blocks:
        i = names.index(block.name)
        found = block.avg_sq_singular_value * block.numel
        assert found == pytest.approx(float(dense[i, i]), rel=rel, abs=floor), block.name
    order = [names.index(name) for name in report.heatmap.names]
    np.testing.assert_allclose(report.heatmap.frobenius_sq, dense[order][:, order], rtol=rel, atol=floor)
