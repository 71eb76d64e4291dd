"""The map of all Gauss-Newton blocks from explicit Jacobians: every example alone, by plain `torch.autograd.grad`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.oracles import dense_rows, frobenius_sq


def batch_norm(
    x: Tensor, mean: Tensor | None, var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """As the formula has it; running statistics are left as they are."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    if training or mean is None or var is None:
        mean, var = x.mean(axes), x.var(axes, correction=0)
    scale = (var + eps).rsqrt() * (1 if weight is None else weight)
    shape = (1, -1, *[1] * (x.dim() - 2))
    return (x - mean.view(shape)) * scale.view(shape) + (0 if bias is None else bias.view(shape))


@contextmanager
def right_derivatives() -> Iterator[None]:
    """Operations whose derivatives torch has wrong, or not twice, are replaced by the formulas that they stand for. The
    fused weight normalisation has wrong second derivatives, batch normalisation of a single example has wrong first
    ones where its gradient is not contiguous, and fused attention has no second ones.
    """
    with sdpa_kernel(SDPBackend.MATH), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "_weight_norm", lambda v, g, dim: v * (g / torch.norm_except_dim(v, 2, dim)))
        patch.setattr(torch.nn.functional, "batch_norm", batch_norm)
        yield


LossOfExample = Callable[[Tensor, int], Tensor]  # of the outputs (1, *out) of the example of that number


@dataclass(frozen=True)
class Dense:
    """Squared norms of all blocks."""

    map: Tensor  # (L, L) of the curvature matrix
    rounding: Tensor  # (L, L) upper bounds of `map`, which rounding errors in float64 are proportional to
    gradient_sq: Tensor  # (L,) of the gradient, averaged over examples

    def error(self, found: Tensor) -> Tensor:
        """Errors of a map relative to this one, (L, L); of what is zero but for rounding, relative to that."""
        return (found - self.map).abs() / (self.map + 1e-4 * self.rounding + 1e-12 * self.rounding.max() + 1e-300)


def dense_ggn(
    call: Callable[[int], Tensor], at: Sequence[Tensor], loss: LossOfExample, *, examples: int, per: str = "example"
) -> Dense:
    """‖J_iᵀ S J_j‖² of every pair of parameters, of outputs `call(b)` (1, *out): a mean over examples, or of the mean.
    By tr(S K_j S K_i) with K = J Jᵀ where the mean is taken after the norm, so that large layers are affordable.
    """
    with right_derivatives():
        if per == "batch":
            return _of_the_batch(call, list(at), loss, examples)
        return _mean(call, list(at), loss, examples)


def _mean(call: Callable[[int], Tensor], at: list[Tensor], loss: LossOfExample, examples: int) -> Dense:
    found = []
    for b in range(examples):
        g, S, Js = _example(call(b), at, loss, b)
        found.append((*_map(S, Js), torch.stack([(g @ J).square().sum() for J in Js])))
    return Dense(*(torch.stack(values).mean(0) for values in zip(*found, strict=True)))


def _of_the_batch(call: Callable[[int], Tensor], at: list[Tensor], loss: LossOfExample, examples: int) -> Dense:
    found = [_example(call(b), at, loss, b) for b in range(examples)]
    S = torch.block_diag(*[S for _, S, _ in found]) / examples  # (B N, B N)
    gradient = torch.stack([g @ torch.cat(Js, 1) for g, _, Js in found]).mean(0)
    gradient_sq = torch.stack([part.square().sum() for part in gradient.split([a.numel() for a in at])])
    return Dense(*_map(S, [torch.cat([Js[i] for _, _, Js in found]) for i in range(len(at))]), gradient_sq)


def _example(y: Tensor, at: list[Tensor], loss: LossOfExample, b: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Gradient (N,) and Hessian (N, N) of the loss in one example's outputs, and its Jacobians (N, P)."""
    z = y.detach().requires_grad_()
    J = dense_rows(y, at) if y.requires_grad else [a.new_zeros(y.numel(), a.numel()) for a in at]
    (g,) = torch.autograd.grad(loss(z, b), z, create_graph=True)
    S = dense_rows(g, [z])[0] if g.requires_grad else torch.zeros(z.numel(), z.numel()).to(z)
    return g.detach().flatten(), S, J


def _map(S: Tensor, Js: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    SK = torch.stack([S @ (J @ J.T) for J in Js])  # (L, N, N)
    norms = SK.flatten(1).norm(dim=1)
    return torch.einsum("iab,jba->ij", SK, SK), torch.outer(norms, norms)


def dense_hessian(
    call: Callable[[int], Tensor], at: Sequence[Tensor], loss: LossOfExample, *, examples: int, per: str = "example"
) -> Dense:
    with right_derivatives():
        each = [_gradient_and_hessian(loss(call(b), b), list(at)) for b in range(examples)]
    gradients, hessians = zip(*each, strict=True)
    if per == "batch":
        gradients, hessians = (torch.stack(gradients).mean(0, True), torch.stack(hessians).mean(0, True))
    numel = [a.numel() for a in at]
    gradient_sq = torch.stack([torch.stack([part.square().sum() for part in g.split(numel)]) for g in gradients])
    map_ = torch.stack([frobenius_sq([rows.split(numel, 1) for rows in H.split(numel)]) for H in hessians]).mean(0)
    size = map_.diagonal().sqrt()
    return Dense(map_, torch.outer(size, size), gradient_sq.mean(0))


def _gradient_and_hessian(value: Tensor, at: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Gradient (P,) and Hessian (P, P) of one example's loss."""
    gradient = torch.cat([g.flatten() for g in _gradients(value, at)])
    if not gradient.requires_grad:
        return gradient, gradient.new_zeros(len(gradient), len(gradient))
    return gradient.detach(), torch.cat(dense_rows(gradient, at), 1)


def _gradients(value: Tensor, at: list[Tensor]) -> list[Tensor]:
    if not value.requires_grad:
        return [torch.zeros_like(a).detach() for a in at]
    found = torch.autograd.grad(value, at, create_graph=True, allow_unused=True)
    return [torch.zeros_like(a).detach() if g is None else g.to_dense() for a, g in zip(at, found, strict=True)]
