"""Whether a network is blind to the scale of a weight, as it is where a normalisation follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.results.signals import LayerSignals

FEW = 4  # examples that tell
NOISES = 3  # vectors sent back: one alone is near 0 by chance in a percent of cases


def radial_shares(model: nn.Module, batch: Batch, layers: Sequence[LayerSignals], *, chunk: int) -> dict[str, float]:
    """Measure how much the outputs change along each weight matrix that a normalisation follows.

    Args:
        model, batch: of which a few examples are taken.
        layers: what is known of where outputs go.
        chunk: examples at once.

    Returns:
        By name of the parameter what `hessdiag.results.signals.ParameterSignals` calls radial.
    """
    behind = {layer.path for layer in layers if "norm" in layer.labels}
    found = {
        name: p
        for name, p in model.named_parameters()
        if p.dim() > 1 and name.rpartition(".")[0] in behind and bool((p.detach() != 0).any())
    }
    if not found or not any(layer.normalises for layer in layers):
        return {}
    parts = list(batch.narrow(0, FEW).chunks(chunk))
    kept = parts[0].outputs(model).y if len(parts) == 1 else None
    shares = dict.fromkeys(found, 0.0)
    for number in range(1, NOISES + 1):
        gradients = _sent_back(model, parts, kept, found, number)
        for name, p in found.items():
            share = _radial_share(p.detach().double(), gradients[name].double()) if name in gradients else math.nan
            shares[name] = max(shares[name], share) if share == share else math.nan
    return shares


def noise(y: Tensor, batch: Batch, number: int = 0) -> Tensor:
    """Draw normal numbers like the outputs of a batch; those of an example are the same in whatever batch it is.

    Args:
        y: outputs (B, *out).
        batch: of which they are.
        number: of the vector, up to NOISES.
    """
    rows = []
    for example in batch.numbers:
        generator = torch.Generator().manual_seed(example * (NOISES + 1) + number)
        rows.append(torch.randn(y.shape[1:], generator=generator))
    return torch.stack(rows).to(y)


def _sent_back(
    model: nn.Module, parts: Sequence[Batch], kept: Tensor | None, weights: Mapping[str, Tensor], number: int
) -> dict[str, Tensor]:
    """Gradients of one random vector in the weights that it reaches, summed over chunks."""
    sums: dict[str, Tensor] = {}
    for part in parts:
        y = part.outputs(model).y if kept is None else kept
        found = torch.autograd.grad(
            y, list(weights.values()), noise(y.detach(), part, number), allow_unused=True, retain_graph=kept is not None
        )
        for name, gradient in zip(weights, found, strict=True):
            if gradient is not None:
                sums[name] = sums[name] + gradient if name in sums else gradient
    return sums


def _radial_share(w: Tensor, g: Tensor) -> float:
    norms = float(w.square().sum() * g.square().sum())
    return w.numel() * float((w * g).sum()) ** 2 / norms if norms > 0 else math.nan
