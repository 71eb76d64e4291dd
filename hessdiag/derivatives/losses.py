"""Losses as the curvature sees them: value and gradient per example, and products with the Hessian in the outputs.

Every method works on outputs `y` of shape (B, *out) whose first dimension runs over examples, and treats each example
on its own. The three built-in losses have closed forms; any other callable goes through automatic differentiation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, jvp, vmap

from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream

LossFunction = Callable[[Tensor, "Tensor | None"], Tensor]

NAMES = ("random-quadratic", "cross-entropy", "mse")
MOST_OUTPUTS = 2**14  # of a random quadratic: 2 GiB


class Loss(Protocol):
    """A loss of each example's outputs: (B, *out) in, one value an example out."""

    @property
    def name(self) -> str:
        """As shown in tables and files."""
        ...

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        ...

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Gradient of each example's loss in its own outputs, shape (B, *out)."""
        ...

    @property
    def has_root(self) -> bool:
        """Whether S = A Aᵀ is known in closed form."""
        ...

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """S v with S the Hessian of each example's loss in its own outputs; `v` and the result are (B, *out)."""
        ...

    def root_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """A v, of `v`'s shape; only where `has_root`."""
        ...

    def root_transposed_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """Aᵀ v, of `v`'s shape; only where `has_root`."""
        ...


def _no_root(loss: Loss, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
    raise TypeError(f"the Hessian of {loss.name} has no root in closed form")


class RandomQuadratic:
    """yᵀRy with the entries of R drawn from N(0, 1) (Section 5.1 of arXiv 1906.04267): the paper's random loss.

    Its Hessian R + Rᵀ is indefinite. R is drawn in float64 on the CPU, so that a seed means the same loss everywhere.

    >>> loss = RandomQuadratic(R=torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    >>> loss.value(torch.tensor([[1.0, 1.0]]), None)
    tensor([6.])
    >>> loss.gradient(torch.tensor([[1.0, 1.0]]), None)
    tensor([[4., 8.]])
    """

    name = "random-quadratic"
    has_root = False

    def __init__(self, R: Tensor) -> None:
        self.R = R
        self.S = R + R.T  # (N, N)

    @classmethod
    def draw(cls, outputs: int, *, seed: int, like: Tensor) -> RandomQuadratic:
        """R for a network with `outputs` outputs per example, with the device and dtype of `like`.

        Raises:
            HessdiagError: there are so many outputs, as of a language model, that R would not fit into memory.
        """
        if outputs > MOST_OUTPUTS:
            raise HessdiagError(
                f"loss 'random-quadratic' needs a matrix of {outputs} x {outputs} numbers for this network's outputs:"
                " use loss 'cross-entropy' or 'mse'"
            )
        generator = stream(seed, "loss")
        return cls(torch.randn(outputs, outputs, generator=generator, dtype=torch.float64).to(like))

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        flat = y.flatten(1)  # (B, N)
        return ((flat @ self.R) * flat).sum(dim=1)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """(R + Rᵀ) y."""
        return (y.flatten(1) @ self.S).view_as(y)

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """(R + Rᵀ) v."""
        return (v.flatten(1) @ self.S).view_as(v)

    root_product = root_transposed_product = _no_root


class CrossEntropy:
    """Log-softmax cross-entropy, averaged over an example's further positions.

    Targets are class indices (B, *positions), where -100 is left out as in torch, or probabilities of y's shape.

    Args:
        class_dim: dimension of the classes: 1 as in torch, or -1 for sequences (B, T, V).
    """

    name = "cross-entropy"
    has_root = True
    ignore_index = -100

    def __init__(self, class_dim: int = 1) -> None:
        self.class_dim = class_dim

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        t, weight = self._targets(y, targets)
        return -(t * F.log_softmax(y, dim=self.class_dim) * weight).flatten(1).sum(dim=1)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """p Σt − t at every position, for targets t that may sum to other than 1."""
        t, weight = self._targets(y, targets)
        return (self._softmax(y) * self._sum(t) - t) * weight

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """(diag(p) − p pᵀ) v at every position."""
        t, weight = self._targets(y, targets)
        pv = self._softmax(y) * v
        return (pv - self._softmax(y) * self._sum(pv)) * self._sum(t) * weight

    def root_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """A v with S = A Aᵀ: √p∘v − p (√p·v) at every position."""
        t, weight = self._targets(y, targets)
        p = self._softmax(y)
        scale = (self._sum(t) * weight).sqrt()
        return (p.sqrt() * v - p * self._sum(p.sqrt() * v)) * scale

    def root_transposed_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """Aᵀ v: √p∘v − √p (p·v) at every position."""
        t, weight = self._targets(y, targets)
        p = self._softmax(y)
        scale = (self._sum(t) * weight).sqrt()
        return p.sqrt() * (v - self._sum(p * v)) * scale

    def _softmax(self, y: Tensor) -> Tensor:
        return F.softmax(y, dim=self.class_dim)

    def _sum(self, values: Tensor) -> Tensor:
        return values.sum(dim=self.class_dim, keepdim=True)

    def _targets(self, y: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """Target probabilities like `y`, and 1 / (number of positions that count) of each example."""
        if targets is None:
            raise HessdiagError("loss 'cross-entropy' needs targets: pass class indices of shape (batch,)")
        if targets.is_floating_point():
            counted = torch.ones_like(y.narrow(self.class_dim, 0, 1))
            probabilities = targets
        else:
            kept = (targets != self.ignore_index).unsqueeze(self.class_dim)
            index = torch.where(kept, targets.unsqueeze(self.class_dim), 0)
            counted = kept.to(y.dtype)
            shape = [1] * y.dim()
            shape[self.class_dim] = -1
            classes = torch.arange(y.shape[self.class_dim], device=y.device).view(shape)
            probabilities = (index == classes).to(y.dtype) * counted
        number = counted.flatten(1).sum(dim=1).clamp(min=1)
        return probabilities, (1 / number).view(-1, *[1] * (y.dim() - 1))


class MeanSquaredError:
    """(y − t)² averaged over an example's outputs, so that the mean over a batch is torch's `mse_loss`.

    Written out, because `F.mse_loss` fails under forward over reverse mode (pytorch#123996).
    """

    name = "mse"
    has_root = True

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        return (y - self._targets(targets)).square().flatten(1).mean(dim=1)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """2 (y − t) / N."""
        return (y - self._targets(targets)) * (2 / y[0].numel())

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """2 v / N."""
        return v * (2 / y[0].numel())

    def root_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """√(2 / N) v."""
        return v * math.sqrt(2 / y[0].numel())

    root_transposed_product = root_product

    def _targets(self, targets: Tensor | None) -> Tensor:
        if targets is None:
            raise HessdiagError("loss 'mse' needs targets: pass a tensor of the outputs' shape")
        return targets


class CallableLoss:
    """Any `function(outputs, targets) -> scalar`, applied to one example (a batch of 1) at a time."""

    has_root = False

    def __init__(self, function: LossFunction) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        return self._each(lambda a, t: self._one(a, t), y, targets)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """By reverse mode, shape (B, *out)."""
        return self._each(lambda a, t: cast(Tensor, grad(self._one)(a, t)), y, targets)

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """By forward over reverse mode, or reverse mode twice where torch lacks a rule (Huber), shape (B, *out)."""

        def forward(a: Tensor, t: Tensor | None, u: Tensor) -> Tensor:
            if t is None or not t.is_floating_point():
                return cast(Tensor, jvp(lambda b: grad(self._one)(b, t), (a,), (u,))[1])
            # Float targets go in as primals with zero tangents: mse_loss crashes otherwise (pytorch#123996).
            return cast(Tensor, jvp(grad(self._one), (a, t), (u, torch.zeros_like(t)))[1])

        def reverse(a: Tensor, t: Tensor | None, u: Tensor) -> Tensor:
            return cast(Tensor, grad(lambda b: (grad(self._one)(b, t) * u).sum())(a))

        try:
            return self._each(forward, y, targets, v)
        except RuntimeError:  # NotImplementedError too
            return self._each(reverse, y, targets, v)

    root_product = root_transposed_product = _no_root

    def _one(self, a: Tensor, t: Tensor | None) -> Tensor:
        loss = self.function(a.unsqueeze(0), None if t is None else t.unsqueeze(0))
        if loss.numel() != 1:
            raise HessdiagError(
                f"the loss {self.name!r} gave a tensor of shape {tuple(loss.shape)} for one example:"
                " return a scalar, the mean over the examples it was given"
            )
        return loss.reshape(())

    @staticmethod
    def _each(function: Callable[..., Tensor], y: Tensor, targets: Tensor | None, *more: Tensor) -> Tensor:
        in_dims = (0, None if targets is None else 0, *[0] * len(more))
        return vmap(function, in_dims=in_dims, randomness="same")(y, targets, *more)


def resolve_loss(loss: str | LossFunction, *, y: Tensor, targets: Tensor | None, seed: int) -> Loss:
    """The loss that a name or a callable asks for, for outputs like `y` (of any number of examples) and all targets.

    Raises:
        HessdiagError: the name is not one of `NAMES`, or the targets do not fit the outputs.
    """
    if not isinstance(loss, str):
        return CallableLoss(loss)
    if loss not in NAMES:
        raise HessdiagError(f"unknown loss {loss!r}: use one of {', '.join(NAMES)}, or a callable(outputs, targets)")
    if loss == "random-quadratic":
        return RandomQuadratic.draw(math.prod(y.shape[1:]), seed=seed, like=y)
    if targets is None:
        wanted = "class indices of shape (batch,)" if loss == "cross-entropy" else "a tensor of the outputs' shape"
        raise HessdiagError(f"loss {loss!r} needs targets: pass {wanted}")
    if loss == "mse":
        _check_same_shape(y, targets)
        return MeanSquaredError()
    return _cross_entropy(y, targets)


def check_targets(loss: Loss, *, like: Tensor, targets: Tensor | None) -> None:
    """Refuse targets of a later batch that do not fit outputs `like` these (of any number of examples)."""
    if isinstance(loss, (CrossEntropy, MeanSquaredError)):
        resolve_loss(loss.name, y=like, targets=targets, seed=0)


def _cross_entropy(y: Tensor, targets: Tensor) -> CrossEntropy:
    """Classes along dimension 1, as in torch, or along the last one of a sequence (B, T, V)."""
    if targets.is_floating_point():
        _check_same_shape(y, targets)
        return CrossEntropy()
    first, last = (len(targets), *y.shape[2:]), (len(targets), *y.shape[1:-1])
    if tuple(targets.shape) not in (first, last):
        raise HessdiagError(f"targets have shape {tuple(targets.shape)}, expected class indices of shape {first}")
    chosen = CrossEntropy(1 if tuple(targets.shape) == first else -1)
    classes = y.shape[chosen.class_dim]
    if bool((((targets < 0) & (targets != CrossEntropy.ignore_index)) | (targets >= classes)).any()):
        raise HessdiagError(
            f"targets hold class {int(targets.max())} (smallest {int(targets.min())}), but the network has"
            f" {classes} outputs: class indices run from 0 to {classes - 1}"
        )
    return chosen


def _check_same_shape(y: Tensor, targets: Tensor) -> None:
    if targets.shape[1:] != y.shape[1:]:
        raise HessdiagError(
            f"targets have shape {tuple(targets.shape)}, the outputs {tuple(y.shape)}: pass targets of that shape"
        )


def hessian_matrix(loss: Loss, y: Tensor, targets: Tensor | None) -> Tensor:
    """S of every example as a matrix over its flattened outputs, shape (B, N, N)."""
    count = math.prod(y.shape[1:])
    if isinstance(loss, RandomQuadratic):
        return loss.S.expand(y.shape[0], count, count)
    basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:]).expand(count, *y.shape)
    columns = vmap(lambda v: loss.hessian_product(y, targets, v))(basis)  # (N, B, *out)
    return columns.flatten(2).permute(1, 2, 0)
