"""The loss of the best constant guess, from labels or targets alone: what an initial loss is to be compared with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hessdiag.derivatives.cross_entropy import CrossEntropy
from hessdiag.derivatives.losses import Loss, MeanSquaredError


def chance_loss(loss: Loss, y: Tensor, targets: Tensor | None) -> tuple[str, float]:
    """Kind of the loss and the loss of a constant guess; NaN where none is known.

    Each label is guessed from the counts of all *others*, plus one: the frequencies themselves would know a few labels
    of many classes far too well.

    Args:
        loss: of the network.
        y: outputs (B, *out).
        targets: of the same examples.

    >>> kind, chance = chance_loss(CrossEntropy(), torch.zeros(2, 2), torch.tensor([0, 1]))
    >>> kind, round(chance, 4)  # no better than ln 2
    ('cross-entropy', 0.6931)
    """
    if targets is None:
        return "other", math.nan
    if isinstance(loss, MeanSquaredError):
        return "mse", _of_values(targets.detach().double())
    plain = type(loss) is CrossEntropy and not loss.label_smoothing and loss.weight is None and loss.divisor is None
    if not plain:
        return "other", math.nan
    assert isinstance(loss, CrossEntropy)
    classes = y.shape[loss.class_dim]
    if targets.shape == y.shape:
        return "cross-entropy", _of_probabilities(targets.detach().movedim(loss.class_dim, -1).flatten(0, -2).double())
    labels = targets.detach().flatten()
    return "cross-entropy", _of_labels(labels[labels != loss.ignore_index].cpu(), classes)


def _of_labels(labels: Tensor, classes: int) -> float:
    if not len(labels):
        return math.nan
    counts = torch.bincount(labels, minlength=classes).double()
    guess = counts[labels] / (len(labels) - 1 + classes)  # its own count out, one for every class in
    return min(math.log(classes), float(-guess.log().mean()))


def _of_probabilities(rows: Tensor) -> float:
    count, classes = rows.shape
    guess = (rows.sum(0) - rows + 1) / (count - 1 + classes)
    return min(math.log(classes), float(-(rows * guess.log()).sum(1).mean()))


def _of_values(targets: Tensor) -> float:
    """Zero, the mean of all, or each output's mean over the others, whichever is best."""
    count = len(targets)
    own = float(targets.var(0).mean()) * count / (count - 1) if count > 1 else math.inf
    overall = float(targets.var()) if targets.numel() > 1 else math.inf
    return min(float(targets.square().mean()), overall, own)
