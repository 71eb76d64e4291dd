"""What the calculus knows of an activation and of the gradient that comes back to it: second moments, no values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Activation:
    """Second moments of one tensor, over random weights and inputs.

    The moments are a tensor of the activation's own shape, so that reshaping, slicing and concatenating are done to
    its moments by the very same operation. Equal entries are expanded views: they take no memory.

    Attributes:
        sq: E[x²], float64, of the tensor's shape (B, ...).
        mean: part of the second moment that is the square of the mean over channels; 1/π after a ReLU.
        site_correlation: E[x_s x_s'] / E[x²] of one channel at two positions s ≠ s' of an example.
        example_correlation: E[x_a x_b] / E[x²] of one entry for two examples a ≠ b.
        width: channels that the last weight layer gave it; what fluctuations average over.
        positions: number of positions per example.
        parameter: name of the parameter or buffer whose values it holds; empty for an activation.
        before: the Gaussian that a nonlinearity was applied to, for max pooling, which needs the distribution.
    """

    sq: Tensor
    mean: float = 0.0
    site_correlation: float = 0.0
    example_correlation: float = 0.0
    width: int = 1
    positions: int = 1
    parameter: str = ""
    before: Before | None = None

    @property
    def second_moment(self) -> Tensor:
        """Average E[x²] over all entries."""
        return average(self.sq)

    @property
    def elements(self) -> int:
        """Count the entries per example."""
        return self.sq.numel() // self.sq.shape[0]

    def scaled(self, factor: Tensor | float) -> Activation:
        """Multiply all second moments by a factor."""
        return replace(self, sq=compactly(lambda sq: sq * factor, self.sq), before=None)

    def uniform(self) -> Activation:
        """Give every entry the mean moment, as the paper's i.i.d. assumption has it."""
        return replace(self, sq=average(self.sq).expand(self.sq.shape))


@dataclass(frozen=True)
class Before:
    """A Gaussian N(mean, 1 - mean²), its correlation between positions, and the name of what acted on it."""

    nonlinearity: str
    parameters: tuple[float, ...]
    mean: float
    site_correlation: float


@dataclass(frozen=True)
class Gradient:
    """Second moments of the gradient of an activation; correlations as in `Activation`.

    Attributes:
        sq, site_correlation, example_correlation: as there.
        slope: factor on E[φ'²] of the nonlinearity below, where the gradient lies on entries that are not like all:
            the largest ones behind a max pooling, or those that a second ReLU has let pass already.
    """

    sq: Tensor
    site_correlation: float = 0.0
    example_correlation: float = 0.0
    slope: float = 1.0

    @property
    def second_moment(self) -> Tensor:
        """Average E[Δx²] over all entries."""
        return average(self.sq)

    def scaled(self, factor: Tensor | float) -> Gradient:
        """Multiply all second moments by a factor."""
        return replace(self, sq=compactly(lambda sq: sq * factor, self.sq))

    def uniform(self) -> Gradient:
        """Give every entry the mean moment."""
        return replace(self, sq=average(self.sq).expand(self.sq.shape))


def compactly(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply a function entry by entry to tensors of one shape, once where all are expanded views.

    >>> import torch
    >>> compactly(lambda a, b: a + b, torch.ones(1).expand(5), torch.ones(1).expand(5)).stride()
    (0,)
    """
    shape = tensors[0].shape
    repeated = [
        d for d, size in enumerate(shape) if size > 1 and all(tensor.stride(d) == 0 for tensor in tensors)
    ]  # fmt: skip
    small = list(tensors)
    for d in repeated:
        small = [tensor.narrow(d, 0, 1) for tensor in small]
    return function(*small).expand(shape)


def average(sq: Tensor) -> Tensor:
    """Average all entries; of an expanded view, those that it has in memory."""
    for d, size in enumerate(sq.shape):
        if size > 1 and sq.stride(d) == 0:
            sq = sq.narrow(d, 0, 1)
    return sq.mean()


def add_gradients(gradients: Sequence[Gradient]) -> Gradient:
    """Add gradients that come back along several paths, uncorrelated because each went through other weights."""
    if len(gradients) == 1:
        return gradients[0]
    sizes = [float(average(g.sq.detach())) for g in gradients]
    total = sum(sizes) or 1.0
    return Gradient(
        sq=compactly(lambda *parts: sum(parts[1:], parts[0]), *(g.sq for g in gradients)),
        site_correlation=sum(s * g.site_correlation for s, g in zip(sizes, gradients, strict=True)) / total,
        example_correlation=sum(s * g.example_correlation for s, g in zip(sizes, gradients, strict=True)) / total,
        slope=sum(s * g.slope for s, g in zip(sizes, gradients, strict=True)) / total if sum(sizes) else 1.0,
    )
