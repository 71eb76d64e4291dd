"""Targets of a loss: which dimension of the outputs is the classes, and refusals of targets that do not fit.

One rule for class indices, one-hot integers and probabilities alike: the classes are the dimension that was asked for;
else the first of the outputs, as in torch, or the last, as in language models, whichever the targets fit. Where they
fit both, the model's own convention decides, and without one it is refused.
"""

from __future__ import annotations

import math

from torch import Tensor

from hessdiag.errors import HessdiagError

IGNORED = -100  # torch's class index of positions that are left out
SUMS_TO_ONE = 1e-3


def required(loss: str, targets: Tensor | None) -> Tensor:
    """Refuse a loss of targets without any."""
    if targets is None:
        wanted = "a tensor of the outputs' shape" if loss == "mse" else "class indices of shape (batch,)"
        raise HessdiagError(f"loss {loss!r} needs targets: pass {wanted}")
    return targets


def check_values(y: Tensor, targets: Tensor) -> None:
    """Refuse targets that are not one number for each output."""
    alone = math.prod(y.shape[1:]) == 1 and targets.shape[1:] == ()
    if targets.shape[1:] != y.shape[1:] and not alone:
        labels = not targets.is_floating_point() and targets.dim() < y.dim()
        classes = "pass targets of that shape, or class indices as integers: targets.long()"
        remedy = "class indices are for loss 'cross-entropy'" if labels else classes
        raise HessdiagError(f"targets have shape {tuple(targets.shape)}, the outputs {_whole(y, targets)}: {remedy}")


def class_dimension(
    y: Tensor, targets: Tensor, *, asked: int | None = None, usual: int | None = None, ignore_index: int = IGNORED
) -> int:
    """The dimension of outputs y (B, *out) that runs over the classes, by what the targets of all examples fit.

    It is the one `asked` for; or, where two are possible, the `usual` one of the model's convention.
    """
    possible = sorted({1, y.dim() - 1}) if asked is None else [check_class_dim(y, asked)]
    if is_like_outputs(y, targets):
        fitting = _dims_of_probabilities(targets, possible)
    else:
        fitting = [dim for dim in possible if targets.shape[1:] == y.shape[1:dim] + y.shape[dim + 1 :]]
        if not fitting or targets.is_floating_point():
            raise HessdiagError(_misfit(y, targets, possible, fitting))
    if len(fitting) > 1 and usual is not None:
        fitting = [usual % y.dim()]
    if len(fitting) > 1:
        what = f"targets {tuple(targets.shape)} fit outputs {_whole(y, targets)} with the classes"
        raise HessdiagError(_two_dimensions(y, what))
    (dim,) = fitting
    if not is_like_outputs(y, targets):
        _check_indices(targets, y.shape[dim], ignore_index)
    return dim


def check_class_dim(y: Tensor, asked: int | None) -> int:
    """The dimension of the outputs that was asked for, counted from the first."""
    out = f"(batch, {', '.join(map(str, y.shape[1:]))})"
    if asked is None:
        raise HessdiagError(_two_dimensions(y, f"outputs {out} may hold the classes"))
    if not isinstance(asked, int) or asked == 0 or not -y.dim() < asked < y.dim():
        raise HessdiagError(f"class_dim {asked!r}: the outputs are {out}, pass 1 to {y.dim() - 1}, or -1 for the last")
    return asked % y.dim()


def _two_dimensions(y: Tensor, what: str) -> str:
    either = f"{what} in dimension 1, as in torch, or {y.dim() - 1}, as in sequences"
    return f"{either}: pass class_dim=1 or class_dim=-1 (--output :1 or --output :-1)"


def is_like_outputs(y: Tensor, targets: Tensor) -> bool:
    """Whether the targets hold a number for each output, rather than an index for each position."""
    return targets.shape[1:] == y.shape[1:]


def _dims_of_probabilities(targets: Tensor, possible: list[int]) -> list[int]:
    """Dimensions along which the targets sum to one; all, where floats do along none and may be anything."""
    sums = {dim: targets.double().sum(dim=dim) for dim in possible}
    fitting = [dim for dim in possible if bool(((sums[dim] - 1).abs() < SUMS_TO_ONE).all())]
    if targets.is_floating_point():
        return fitting or possible
    if not fitting or not bool(((targets == 0) | (targets == 1)).all()):
        message = f"targets are integers of the outputs' shape {tuple(targets.shape)}, but not one-hot: expected class"
        raise HessdiagError(f"{message} indices without the dimension of the classes, or probabilities as floats")
    return fitting


def _misfit(y: Tensor, targets: Tensor, possible: list[int], fitting: list[int]) -> str:
    if fitting:
        return f"targets are {targets.dtype} of shape {tuple(targets.shape)}: class indices are integers, use .long()"
    shapes = [(len(targets), *y.shape[1:dim], *y.shape[dim + 1 :]) for dim in possible]
    wanted = f"class indices of shape {' or '.join(map(str, shapes))}"
    what = f"or probabilities of the outputs' shape {_whole(y, targets)}"
    last = ": pass class_dim=-1 (--output :-1) where the classes are last" if targets.shape[1:] == y.shape[1:-1] else ""
    return f"targets have shape {tuple(targets.shape)}, expected {wanted}, {what}{last}"


def _whole(y: Tensor, targets: Tensor) -> tuple[int, ...]:
    return len(targets), *y.shape[1:]


def _check_indices(targets: Tensor, classes: int, ignore_index: int) -> None:
    if bool((((targets < 0) | (targets >= classes)) & (targets != ignore_index)).any()):
        message = f"targets hold class {int(targets.max())} (smallest {int(targets.min())}), but the network has"
        if classes == 1:
            raise HessdiagError(f"{message} 1 output: pass targets.float() for a regression")
        raise HessdiagError(f"{message} {classes} outputs: class indices run from 0 to {classes - 1}")
