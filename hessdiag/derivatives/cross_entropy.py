"""Cross-entropy in closed form, also of `nn.CrossEntropyLoss` with its options, and which dimension is the classes.

One rule for class indices, one-hot integers and probabilities alike: the classes are the dimension that was asked for;
else the first of the outputs, as in torch, or the last, as in language models, whichever the targets fit. Where they
fit both, the model's own convention decides, and without one it is refused.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.errors import HessdiagError

IGNORED = -100  # torch's class index of positions that are left out
SUMS_TO_ONE = 1e-3


class CrossEntropy:
    """Log-softmax cross-entropy −Σ_c τ_c log p_c, averaged over an example's further positions.

    Targets are class indices (B, *positions), where `ignore_index` is left out as in torch, or one-hot integers or
    probabilities of y's shape. τ are these, smoothed and weighted as `nn.CrossEntropyLoss` has it.

    Args:
        class_dim: dimension of the classes: 1 as in torch, or -1 for sequences (B, T, V).
        weight: of each class, (C,); an example's sum is divided by the weights of its indices.
        label_smoothing: share of the uniform distribution in the targets.
        ignore_index: class index of positions that are left out.
        divisor: what the sum over an example's positions is divided by, where it is the same for all examples.
        name: as shown in tables and files.
    """

    has_root = True

    def __init__(
        self,
        class_dim: int = 1,
        *,
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
        divisor: float | None = None,
        name: str = "cross-entropy",
    ) -> None:
        self.class_dim = class_dim
        self.weight = weight
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.divisor = divisor
        self.name = name

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

    def hessian_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        """`hessian_product` of several v, (q, B, *out)."""
        t, weight = self._targets(y, targets)
        p = self._softmax(y)
        return self._projected(p * self._sum(t) * weight, p, z)

    def root_products(self, y: Tensor, targets: Tensor | None, z: Tensor) -> Tensor:
        """`root_product` of several v, (q, B, *out)."""
        t, weight = self._targets(y, targets)
        p = self._softmax(y)
        return self._projected(p.sqrt() * (self._sum(t) * weight).sqrt(), p, z)

    def _projected(self, factor: Tensor, p: Tensor, z: Tensor) -> Tensor:
        """f∘v − p Σ f∘v of several v; what all have in common, and does not fit a cache, is computed once."""
        found = torch.empty_like(z)
        for v, each in zip(z, found, strict=True):
            torch.mul(factor, v, out=each)
            each.addcmul_(p, self._sum(each), value=-1)
        return found

    def divisors(self, y: Tensor, targets: Tensor) -> Tensor:
        """What torch's mean divides the sum over each example's positions by, (B,): positions, or their weights."""
        if _is_like_outputs(y, targets):
            return torch.full_like(targets.flatten(1)[:, 0], y[0].numel() // y.shape[self.class_dim], dtype=y.dtype)
        return self._counted(y, targets).reshape(len(targets), -1).sum(dim=1)

    def label_weights(self, y: Tensor, targets: Tensor | None) -> Tensor | None:
        """w (B, *positions) with gradients w (p − e_c) of one class c a position; None where targets are no indices.

        w is zero at positions that are left out; the Hessian there is w (diag(p) − p pᵀ).
        """
        if targets is None or self.label_smoothing or _is_like_outputs(y, targets):
            return None
        return self._counted(y, targets) * self._shares(y, targets).squeeze(self.class_dim)

    def _counted(self, y: Tensor, targets: Tensor) -> Tensor:
        """What each position of class indices counts, like `targets`: the weight of its class, or 1; 0 if left out."""
        kept = targets != self.ignore_index
        counted = kept.to(y.dtype)
        if self.weight is None:
            return counted
        return counted * self.weight.to(y)[torch.where(kept, targets, 0).long()]

    def _softmax(self, y: Tensor) -> Tensor:
        return F.softmax(y, dim=self.class_dim)

    def _sum(self, values: Tensor) -> Tensor:
        return values.sum(dim=self.class_dim, keepdim=True)

    def _along_classes(self, values: Tensor, y: Tensor) -> Tensor:
        shape = [1] * y.dim()
        shape[self.class_dim] = -1
        return values.to(y.device).view(shape)

    def _one_hot(self, y: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Class indices as one-hot rows like `y`, and 1 or 0 for positions that count."""
        kept = (targets != self.ignore_index).unsqueeze(self.class_dim)
        index = torch.where(kept, targets.unsqueeze(self.class_dim), 0)
        classes = self._along_classes(torch.arange(y.shape[self.class_dim]), y)
        counted = kept.to(y.dtype)
        return (index == classes).to(y.dtype) * counted, counted

    def _targets(self, y: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """τ like `y`, and one over what each example's sum is divided by."""
        if targets is None:
            raise HessdiagError(f"loss {self.name!r} needs targets: pass class indices of shape (batch,)")
        if _is_like_outputs(y, targets):
            t, counted = targets.to(y.dtype), torch.ones_like(y.narrow(self.class_dim, 0, 1))
        else:
            t, counted = self._one_hot(y, targets)
        if self.label_smoothing:
            t = (1 - self.label_smoothing) * t + self.label_smoothing / y.shape[self.class_dim] * counted
        if self.weight is not None:
            t = t * self._along_classes(self.weight.to(y.dtype), y)
        return t, self._shares(y, targets)

    def _shares(self, y: Tensor, targets: Tensor) -> Tensor:
        """One over what each example's sum is divided by, of as many dimensions as y."""
        if self.divisor is not None:
            return torch.full((1,) * y.dim(), 1 / self.divisor, dtype=y.dtype, device=y.device)
        number = self.divisors(y, targets)
        return (1 / torch.where(number > 0, number, 1)).view(-1, *[1] * (y.dim() - 1))


def cross_entropy_of_module(
    module: nn.CrossEntropyLoss, y: Tensor, targets: Tensor, class_dim: int | None, per: str
) -> CrossEntropy:
    """`nn.CrossEntropyLoss` of one example at a time, or as it averages over a whole batch.

    Args:
        module: the loss; its classes are dimension 1, if nothing else is asked for.
        y: outputs of the first examples.
        targets: of all examples.
        class_dim: dimension that was asked for.
        per: `"example"`: the function of one example; `"batch"`: the share of an example in that of all.
    """
    name, weight, reduction = type(module).__name__, module.weight, module.reduction
    dim = class_dimension(y, targets, asked=1 if class_dim is None else class_dim, ignore_index=module.ignore_index)
    classes = y.shape[dim]
    if weight is not None and len(weight) != classes:
        raise HessdiagError(f"loss {name!r} has {len(weight)} class weights, but the network has {classes} outputs")
    if reduction == "none" and y.dim() > 2:
        raise HessdiagError(f"loss {name!r} has reduction='none': use 'mean' or 'sum', one number an example")
    if reduction == "sum" and per == "batch":
        raise HessdiagError(f"loss {name!r} has reduction='sum': per='batch' is of the mean loss, use 'mean'")
    options: dict[str, Any] = {
        "weight": weight,
        "label_smoothing": module.label_smoothing,
        "ignore_index": module.ignore_index,
    }
    divisor = None if reduction == "mean" else 1.0
    if reduction == "mean" and per == "batch":
        whole = CrossEntropy(dim, **options).divisors(y[:1].expand(len(targets), *y.shape[1:]), targets)
        divisor = float(whole.mean()) or 1.0
    return CrossEntropy(dim, **options, divisor=divisor, name=name)


def class_dimension(
    y: Tensor, targets: Tensor, *, asked: int | None = None, usual: int | None = None, ignore_index: int = IGNORED
) -> int:
    """The dimension of the outputs that runs over the classes, by what the targets fit.

    Args:
        y: outputs (B, *out), of any number of examples.
        targets: class indices, one-hot integers or probabilities of all examples.
        asked: dimension that was asked for.
        usual: dimension by the model's convention, which decides where two are possible.
        ignore_index: class index of positions that are left out.

    Raises:
        HessdiagError: the targets fit in no way, or in two.
    """
    possible = sorted({1, y.dim() - 1}) if asked is None else [check_class_dim(y, asked)]
    if _is_like_outputs(y, targets):
        fitting = _dims_of_probabilities(targets, possible)
    else:
        fitting = [dim for dim in possible if targets.shape[1:] == y.shape[1:dim] + y.shape[dim + 1 :]]
        if not fitting or targets.is_floating_point():
            raise HessdiagError(_misfit(y, targets, possible, fitting))
    if len(fitting) > 1 and usual is not None:
        fitting = [usual % y.dim()]
    if len(fitting) > 1:
        raise HessdiagError(
            f"targets {tuple(targets.shape)} fit outputs {_whole(y, targets)} with the classes in dimension 1, as in"
            f" torch, or {y.dim() - 1}, as in sequences: pass class_dim=1 or class_dim=-1 (--class-dim)"
        )
    (dim,) = fitting
    if not _is_like_outputs(y, targets):
        _check_indices(targets, y.shape[dim], ignore_index)
    return dim


def check_class_dim(y: Tensor, asked: int | None) -> int:
    """The dimension of the outputs that was asked for, counted from the first.

    Raises:
        HessdiagError: none was, or there is no such dimension.
    """
    out = f"(batch, {', '.join(map(str, y.shape[1:]))})"
    if asked is None:
        raise HessdiagError(
            f"outputs {out} may hold the classes in dimension 1, as in torch, or {y.dim() - 1}, as in sequences:"
            " pass class_dim=1 or class_dim=-1 (--class-dim)"
        )
    if not isinstance(asked, int) or asked == 0 or not -y.dim() < asked < y.dim():
        raise HessdiagError(f"class_dim {asked!r}: the outputs are {out}, pass 1 to {y.dim() - 1}, or -1 for the last")
    return asked % y.dim()


def _is_like_outputs(y: Tensor, targets: Tensor) -> bool:
    """Whether the targets hold a number for each output, rather than an index for each position."""
    return targets.shape[1:] == y.shape[1:]


def _dims_of_probabilities(targets: Tensor, possible: list[int]) -> list[int]:
    """Dimensions along which the targets sum to one; all, where floats do along none and may be anything."""
    sums = {dim: targets.double().sum(dim=dim) for dim in possible}
    fitting = [dim for dim in possible if bool(((sums[dim] - 1).abs() < SUMS_TO_ONE).all())]
    if targets.is_floating_point():
        return fitting or possible
    if not fitting or not bool(((targets == 0) | (targets == 1)).all()):
        raise HessdiagError(
            f"targets are integers of the outputs' shape {tuple(targets.shape)}, but not one-hot: expected class"
            " indices without the dimension of the classes, or probabilities as floats"
        )
    return fitting


def _misfit(y: Tensor, targets: Tensor, possible: list[int], fitting: list[int]) -> str:
    if fitting:
        return f"targets are {targets.dtype} of shape {tuple(targets.shape)}: class indices are integers, use .long()"
    shapes = [(len(targets), *y.shape[1:dim], *y.shape[dim + 1 :]) for dim in possible]
    wanted = f"class indices of shape {' or '.join(map(str, shapes))}"
    what = f"or probabilities of the outputs' shape {_whole(y, targets)}"
    return f"targets have shape {tuple(targets.shape)}, expected {wanted}, {what}"


def _whole(y: Tensor, targets: Tensor) -> tuple[int, ...]:
    return len(targets), *y.shape[1:]


def _check_indices(targets: Tensor, classes: int, ignore_index: int) -> None:
    if bool((((targets < 0) | (targets >= classes)) & (targets != ignore_index)).any()):
        raise HessdiagError(
            f"targets hold class {int(targets.max())} (smallest {int(targets.min())}), but the network has"
            f" {classes} outputs: class indices run from 0 to {classes - 1}"
        )
