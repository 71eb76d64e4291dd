"""Targets as losses take them: which dimension of the outputs runs over the classes, and what fits neither."""

import math

import torch
from torch import Tensor

from hessdiag.data.batch import IGNORED
from hessdiag.errors import HessdiagError

SUMS_TO_ONE = 1e-3
BINARY = "loss=nn.BCEWithLogitsLoss() (--loss ./FILE.py:NAME)"


def required(loss: str, targets: Tensor | None) -> Tensor:
    """Refuse a loss of targets without any."""
    if targets is None:
        wanted = "a tensor of the outputs' shape" if loss == "mse" else "class indices of shape (batch,)"
        raise HessdiagError(f"loss {loss!r} needs targets: pass {wanted}")
    if not torch._C._are_functorch_transforms_active() and not bool(targets.isfinite().all()):
        raise HessdiagError(f"targets hold NaN or infinite values, which loss {loss!r} reads: clean the data first")
    return targets


def check_values(y: Tensor, targets: Tensor) -> None:
    """Refuse targets that are not one number for each output."""
    if targets.shape[1:] != y.shape[1:] and (targets.shape[1:] or math.prod(y.shape[1:]) != 1):
        what = f"targets have shape {tuple(targets.shape)}, the outputs {(len(targets), *y.shape[1:])}"
        raise HessdiagError(f"{what}: pass targets of that shape; of classes targets.long(), with loss='cross-entropy'")


def class_dimension(
    y: Tensor, targets: Tensor, *, asked: int | None = None, usual: int | None = None, ignore_index: int = IGNORED
) -> int:
    """The dimension of outputs y (B, *out) that runs over the classes, by what the targets of all examples fit. For
    class indices, one-hot integers and probabilities alike: the one `asked` for, else the first, as in torch, or the
    last, as in language models. Where the targets fit both it is the `usual` one of the model, or refused.
    """
    possible = sorted({1, y.dim() - 1}) if asked is None else [check_class_dim(y, asked)]
    if is_like_outputs(y, targets):
        fitting = _dims_of_probabilities(targets, possible)
    else:
        shapes = {dim: y.shape[1:dim] + y.shape[dim + 1 :] for dim in possible}
        fitting = [dim for dim in possible if targets.shape[1:] == shapes[dim]]
        if not fitting or targets.is_floating_point():
            wanted = f"integers of shape {' or '.join(str((len(targets), *shape)) for shape in shapes.values())}"
            what = f"targets are {targets.dtype} of shape {tuple(targets.shape)}, expected class indices, {wanted},"
            raise HessdiagError(f"{what} or probabilities of the outputs' shape: {_instead(y, targets)}")
    fitting = [usual % y.dim()] if len(fitting) > 1 and usual is not None else fitting
    if len(fitting) > 1:
        what = f"targets {tuple(targets.shape)} fit outputs {(len(targets), *y.shape[1:])} with the classes"
        raise HessdiagError(_two_dimensions(y, what))
    (dim,) = fitting
    if not is_like_outputs(y, targets):
        _check_indices(targets, y.shape[dim], ignore_index)
    return dim


def _instead(y: Tensor, targets: Tensor) -> str:
    """What to pass in place of targets that are no class indices of outputs y (B, *out)."""
    shapes = [y.shape[1:dim] + y.shape[dim + 1 :] for dim in (1, y.dim() - 1)]
    whole = ".long()" if targets.is_floating_point() else ""
    if targets.shape[1:] in shapes:
        return f"pass targets{whole}" if whole else "pass class_dim=-1 (--output :-1)"
    ones = [d for d in range(1, targets.dim()) if targets.shape[d] == 1 and targets.select(d, 0).shape[1:] in shapes]
    fits = f"which is {(len(targets), *y.shape[1:])}{cut_short(y, targets)}"
    return f"pass targets.squeeze({ones[0]}){whole}" if ones else fits


def cut_short(y: Tensor, targets: Tensor | None) -> str:
    """What to add to a refusal of outputs (B, T, ...) that end before their targets (B, T', ...)."""
    short = targets is not None and targets.dim() > 1 < y.dim() and y.shape[1] < targets.shape[1]
    return "; if sequences end with the longest of a batch, give pad_packed_sequence its total_length" if short else ""


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


def sums_to_one(values: Tensor, dim: int) -> bool:
    """Whether values sum to 1 along a dimension, as probabilities do."""
    return bool(((values.detach().sum(dim, dtype=torch.float64) - 1).abs() < SUMS_TO_ONE).all())


def _dims_of_probabilities(targets: Tensor, possible: list[int]) -> list[int]:
    """Dimensions along which the targets sum to one; all, where floats do along none and may be anything."""
    fitting = [dim for dim in possible if sums_to_one(targets, dim)]
    if targets.is_floating_point():
        return fitting or possible
    if not fitting or not bool(((targets == 0) | (targets == 1)).all()):
        message = f"targets are integers of the outputs' shape {tuple(targets.shape)}, but not one-hot: pass class"
        raise HessdiagError(f"{message} indices, or for several labels an example targets.float() and {BINARY}")
    return fitting


def _check_indices(targets: Tensor, classes: int, ignore_index: int) -> None:
    if bool((((targets < 0) | (targets >= classes)) & (targets != ignore_index)).any()):
        held, asked = f"{int(targets.min())} to {int(targets.max())}", f"class indices run from 0 to {classes - 1}"
        what = f"targets hold classes {held}, but the network has {classes} outputs: {asked}"
        how = f"give it {int(targets.max()) + 1} outputs, or for a regression pass targets.float()"
        if int(targets.min()) == -1 and int(targets.max()) < classes:
            how = "where -1 is to be left out, pass loss=torch.nn.CrossEntropyLoss(ignore_index=-1)"
        elif classes == 1:
            how = f"pass targets.float().unsqueeze(1) with {BINARY}"
        elif int(targets.min()) == 1 and int(targets.max()) == classes:
            how = "pass targets - 1"
        raise HessdiagError(f"{what}: {how}")
