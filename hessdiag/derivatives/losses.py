"""Losses as the curvature sees them: value and gradient per example, and products with the Hessian in the outputs.

Every method works on outputs `y` of shape (B, *out) whose first dimension runs over examples, and treats each example
on its own. The three built-in losses have closed forms; any other callable goes through automatic differentiation, see
`hessdiag.derivatives.callable_loss`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import vmap

from hessdiag.data.seeds import stream
from hessdiag.derivatives.callable_loss import CallableLoss, LoopedLoss, callable_loss, check_mean_over_examples
from hessdiag.derivatives.cross_entropy import CrossEntropy, class_dimension, cross_entropy_of_module
from hessdiag.errors import HessdiagError

__all__ = [
    "NAMES",
    "CallableLoss",
    "CrossEntropy",
    "LoopedLoss",
    "Loss",
    "LossFunction",
    "MeanSquaredError",
    "RandomQuadratic",
    "Reading",
    "check_targets",
    "hessian_matrix",
    "hessian_products",
    "resolve_loss",
    "root_products",
]

LossFunction = Callable[[Tensor, "Tensor | None"], Tensor]

NAMES = ("random-quadratic", "cross-entropy", "mse")
MAX_OUTPUTS = 2**14  # of a random quadratic: 2 GiB


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
        if outputs > MAX_OUTPUTS:
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


class MeanSquaredError:
    """(y − t)² averaged over an example's outputs, so that the mean over a batch is torch's `mse_loss`.

    Written out, because `F.mse_loss` fails under forward over reverse mode (pytorch#123996).
    """

    name = "mse"
    has_root = True

    def value(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """Loss of each example, shape (B,)."""
        return (y - self._targets(y, targets)).square().flatten(1).mean(dim=1)

    def gradient(self, y: Tensor, targets: Tensor | None) -> Tensor:
        """2 (y − t) / N."""
        return (y - self._targets(y, targets)) * (2 / y[0].numel())

    def hessian_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """2 v / N."""
        return v * (2 / y[0].numel())

    def root_product(self, y: Tensor, targets: Tensor | None, v: Tensor) -> Tensor:
        """√(2 / N) v."""
        return v * math.sqrt(2 / y[0].numel())

    root_transposed_product = root_product

    def _targets(self, y: Tensor, targets: Tensor | None) -> Tensor:
        if targets is None:
            raise HessdiagError("loss 'mse' needs targets: pass a tensor of the outputs' shape")
        return targets.to(y.dtype).reshape(y.shape)  # (B,) for one output (B, 1) too


@dataclass(frozen=True)
class Reading:
    """How outputs and targets are to be read.

    Attributes:
        class_dim: dimension of the classes that was asked for.
        usual: dimension of the classes by the convention of the model, for where two are possible.
        scalar: the model returns (B,), of which `y` is (B, 1).
        per: `"example"` or `"batch"`: whose loss it is.
    """

    class_dim: int | None = None
    usual: int | None = None
    scalar: bool = False
    per: str = "example"


def resolve_loss(
    loss: str | LossFunction, *, y: Tensor, targets: Tensor | None, seed: int, reading: Reading | None = None
) -> Loss:
    """The loss that a name or a callable asks for.

    Args:
        loss: one of `NAMES`, or a callable.
        y: outputs of the first examples.
        targets: of all examples.
        seed: of a random quadratic.
        reading: how outputs and targets are to be read.

    Raises:
        HessdiagError: the name is not one of `NAMES`, the targets do not fit the outputs, or they do in two ways.
    """
    reading = reading or Reading()
    if type(loss) is nn.CrossEntropyLoss:
        return cross_entropy_of_module(loss, y, _needed("CrossEntropyLoss", targets), reading.class_dim, reading.per)
    if reading.class_dim is not None and loss != "cross-entropy":
        raise HessdiagError(f"class_dim {reading.class_dim}: it is for loss 'cross-entropy' alone, leave it out")
    if not isinstance(loss, str):
        few = None if targets is None else targets[: len(y)]
        chosen = callable_loss(loss, y, few, scalar=reading.scalar)
        if reading.per == "batch":
            check_mean_over_examples(chosen, y, few)
        return chosen
    if loss not in NAMES:
        raise HessdiagError(f"unknown loss {loss!r}: use one of {', '.join(NAMES)}, or a callable(outputs, targets)")
    if loss == "random-quadratic":
        return RandomQuadratic.draw(math.prod(y.shape[1:]), seed=seed, like=y)
    targets = _needed(loss, targets)
    if loss == "mse":
        _check_values(y, targets)
        return MeanSquaredError()
    return CrossEntropy(class_dimension(y, targets, asked=reading.class_dim, usual=reading.usual))


def check_targets(loss: Loss, *, like: Tensor, targets: Tensor | None) -> None:
    """Refuse targets of a later batch that do not fit outputs `like` these (of any number of examples)."""
    if isinstance(loss, MeanSquaredError):
        _check_values(like, _needed(loss.name, targets))
    elif isinstance(loss, CrossEntropy):
        class_dimension(like, _needed(loss.name, targets), asked=loss.class_dim, ignore_index=loss.ignore_index)


def _needed(loss: str, targets: Tensor | None) -> Tensor:
    if targets is None:
        wanted = "a tensor of the outputs' shape" if loss == "mse" else "class indices of shape (batch,)"
        raise HessdiagError(f"loss {loss!r} needs targets: pass {wanted}")
    return targets


def _check_values(y: Tensor, targets: Tensor) -> None:
    """Refuse targets that are not one number for each output."""
    alone = math.prod(y.shape[1:]) == 1 and targets.shape[1:] == ()
    if targets.shape[1:] != y.shape[1:] and not alone:
        whole = (len(targets), *y.shape[1:])
        labels = not targets.is_floating_point() and targets.dim() < y.dim()
        remedy = "class indices are for loss 'cross-entropy'" if labels else "pass targets of that shape"
        raise HessdiagError(f"targets have shape {tuple(targets.shape)}, the outputs {whole}: {remedy}")


def hessian_products(loss: Loss, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
    """S v of several v, (q, B, *out)."""
    if isinstance(loss, CrossEntropy):
        return loss.hessian_products(y, targets, z)
    return torch.stack([loss.hessian_product(y, targets, v) for v in z])


def sides_of(loss: Loss) -> int:
    """Cotangents of a direction z: A z where the loss has a root, else z and S z."""
    return 1 if loss.has_root else 2


def root_products(loss: Loss, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
    """A v of several v, (q, B, *out); only where the loss has a root."""
    if isinstance(loss, CrossEntropy):
        return loss.root_products(y, targets, z)
    return torch.stack([loss.root_product(y, targets, v) for v in z])


def hessian_matrix(loss: Loss, y: Tensor, targets: Tensor | None) -> Tensor:
    """S of every example as a matrix over its flattened outputs, shape (B, N, N)."""
    count = math.prod(y.shape[1:])
    if isinstance(loss, RandomQuadratic):
        return loss.S.expand(y.shape[0], count, count)
    if isinstance(loss, LoopedLoss):
        return loss.hessian_matrix(y, targets)
    basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:]).expand(count, *y.shape)
    columns = vmap(lambda v: loss.hessian_product(y, targets, v))(basis)  # (N, B, *out)
    return columns.flatten(2).permute(1, 2, 0)
