"""Operations whose derivatives torch gets wrong, written out by their formulas while a model is measured.

Found with torch 2.13 on the CPU; each has a test that compares values and derivatives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from hessdiag.network.replaced import replaced

Operation = Callable[..., Tensor]


@contextmanager
def written_out() -> Iterator[None]:
    """Replace torch's operations by formulas inside this context."""
    old = sys.modules["torch.nn.utils.weight_norm"]
    batch_norm, instance_norm = _batch_norm(torch.batch_norm), _instance_norm(torch.instance_norm)
    with ExitStack() as stack:
        stack.enter_context(replaced(torch, _weight_norm=_weight_norm, prelu=_prelu))
        stack.enter_context(replaced(torch, batch_norm=batch_norm, instance_norm=instance_norm))
        stack.enter_context(replaced(torch.nn.functional, prelu=_prelu))
        stack.enter_context(replaced(old, _weight_norm=_weight_norm))
        yield


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / ‖v‖, norms over every dimension but `dim`, or over all with -1.

    The second derivatives of torch's own kernel are wrong: its Hessian is not symmetric.
    """
    axes = [axis for axis in range(v.dim()) if axis != dim]
    return v * (g / v.square().sum(axes, keepdim=True).sqrt())


def _prelu(input: Tensor, weight: Tensor) -> Tensor:  # named as torch has them
    """x where positive, else a x, with one a for all channels or one for each.

    Torch's own backward pass is wrong, or fails, inside two vmaps.
    """
    slope = weight.view(-1, *[1] * (input.dim() - 2)) if weight.numel() > 1 else weight.view(())
    return torch.where(input > 0, input, slope * input)


def _batch_norm(torchs: Operation) -> Operation:
    """Torch's batch normalisation, but for a batch of one.

    There torch's own backward pass is wrong for a gradient that comes back transposed, as from
    `flatten(2).transpose(1, 2)` behind a stem.
    """

    def batch_norm(
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Tensor:
        if len(input) != 1:
            return torchs(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
        axes = [0, *range(2, input.dim())]
        return _normalised(input, axes, (weight, bias), None if training else (running_mean, running_var), eps)

    return batch_norm


def _instance_norm(torchs: Operation) -> Operation:
    """Torch's instance normalisation, but for a batch of one: it is torch's batch normalisation inside."""

    def instance_norm(
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        use_input_stats: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Tensor:
        if len(input) != 1:
            return torchs(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled)
        kept = None if use_input_stats else (running_mean, running_var)
        return _normalised(input, [*range(2, input.dim())], (weight, bias), kept, eps)

    return instance_norm


def _normalised(
    x: Tensor, axes: list[int], affine: Sequence[Tensor | None], kept: Sequence[Tensor | None] | None, eps: float
) -> Tensor:
    """(x - E[x]) / sqrt(Var[x] + eps) · weight + bias, with channels in the second dimension.

    Running statistics are not updated: a measurement puts them back anyway.

    Args:
        x: (B, C, ...).
        axes: dimensions that moments are taken over.
        affine: weight and bias, (C,) each or None.
        kept: running mean and variance; None takes those of x.
        eps: added to the variance.
    """
    shape = (-1, *[1] * (x.dim() - 2))
    mean, var = (None, None) if kept is None else kept
    weight, bias = (None if each is None else each.view(shape) for each in affine)
    if mean is None or var is None:
        x, centre = x - x.mean(axes, keepdim=True), None
        scale = (x.square().mean(axes, keepdim=True) + eps).rsqrt()
    else:
        centre, scale = mean.view(shape), (var + eps).rsqrt().view(shape)
    scale = scale if weight is None else scale * weight
    shift = bias
    if centre is not None:
        shift = -centre * scale if bias is None else bias - centre * scale
    return x * scale if shift is None else torch.addcmul(shift, x, scale)
