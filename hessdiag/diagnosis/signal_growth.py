"""The size of the signals in a network: second moments forward and backward, layer by layer, and of the outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Reading, resolve_loss
from hessdiag.diagnosis.moments import sum_of_squares
from hessdiag.network.hooks import backpropagate, trace
from hessdiag.network.layers import fans, initialised_layers, stores_inputs_first
from hessdiag.network.preserve import preserve_state
from hessdiag.results.records import Record

CHUNK = 16  # examples at a time


@dataclass(frozen=True)
class SignalGrowth(Record):
    """Second moments over elements and examples.

    Attributes:
        layers: paths of the linear and convolutional layers that ran, in the order of their first calls.
        forward_sq: of each, E[x_{l+1}²], of what it writes.
        backward_sq: of each, E[Δx_{l+1}²], Δ being the gradient of each example's own loss.
        bias_balance: n k² E[x²]² of the first layer: γ of its weight over γ of its bias, had it one (Section 8.1).
        output_sq: E[y²].
        output_variance: E[y²] − E[y]².
    """

    schema: ClassVar[str] = "hessdiag.signals/1"

    layers: tuple[str, ...]
    forward_sq: tuple[float, ...]
    backward_sq: tuple[float, ...]
    bias_balance: float
    output_sq: float
    output_variance: float


def measure_signals(
    model: nn.Module,
    batch: Batch,
    *,
    loss: str = "random-quadratic",
    class_dim: int | None = None,
    seed: int = 0,
) -> SignalGrowth:
    """Run a batch forward and the gradient of every example's own loss backward.

    Args:
        model: left as it was.
        batch: inputs and, where the loss compares with some, targets.
        loss, class_dim, seed: as of `hessdiag.diagnose`.

    >>> import torch
    >>> identity = nn.Linear(2, 2, bias=False)
    >>> identity.weight.data.copy_(torch.eye(2))
    tensor([[1., 0.],
            [0., 1.]])
    >>> measure_signals(identity, Batch.of(torch.tensor([[1.0, -1.0]]), None)).output_variance
    1.0
    """
    layers = dict(initialised_layers(model))
    sums: dict[str, list[float]] = {}  # path: squares and counts forward, squares and counts backward, squares read
    total, squares, count = 0.0, 0.0, 0
    with preserve_state(model, seed=seed):
        first = batch.narrow(0, 2).outputs(model)
        reading = Reading(class_dim, first.class_dim, first.scalar)
        chosen = resolve_loss(loss, y=first.y.detach(), targets=batch.targets, seed=seed, reading=reading)
        for part in batch.chunks(CHUNK):
            seen = trace(model, part, list(layers), keep_outputs=True)
            y = seen.y.detach()
            own = chosen.gradient(y, part.targets).unsqueeze(0)  # (1, B, *out)
            gradients = backpropagate(seen.y, [call.output_edge for call in seen.calls], own)
            for call, gradient in zip(seen.calls, gradients, strict=True):
                assert call.output is not None
                row = sums.setdefault(call.owner, [0.0] * 5)
                row[0] += sum_of_squares(call.output)
                row[1] += call.output.numel()
                row[2] += 0.0 if gradient is None else sum_of_squares(gradient)
                row[3] += sum_of_squares(call.x)
                row[4] += call.x.numel()
            total += float(y.double().sum())
            squares += sum_of_squares(y)
            count += y.numel()
    return SignalGrowth(
        layers=tuple(sums),
        forward_sq=tuple(row[0] / row[1] for row in sums.values()),
        backward_sq=tuple(row[2] / row[1] for row in sums.values()),
        bias_balance=_bias_balance(layers, sums),
        output_sq=squares / count,
        output_variance=squares / count - (total / count) ** 2,
    )


def _bias_balance(layers: dict[str, nn.Module], sums: dict[str, list[float]]) -> float:
    if not sums:
        return math.nan
    path = next(iter(sums))
    layer = layers[path]
    assert isinstance(layer.weight, Tensor)
    n, _, k = fans(layer.weight, groups=int(getattr(layer, "groups", 1)), transposed=stores_inputs_first(layer))
    return n * k**2 * (sums[path][3] / sums[path][4]) ** 2
