"""The gradient in the input of a strided convolution of few channels, as a convolution of sub-pixels.

Libraries send a gradient back through a strided convolution in blocks of 16 channels, and slowly. What arrives at the
pixels of one phase (a, b), the rows and columns s q + a and s q' + b of the padded input, is a plain convolution of
the gradient with every s-th row and column of the kernel (Shi et al., arXiv 1609.05158): one convolution of stride 1
makes all s² phases, and they are written to where they belong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MAX_CHANNELS = 16  # that the layer reads: with up to so many it was 1.1 to 11 times as fast
DTYPES = (torch.float32,)  # in float64 it takes twice as long: there are no blocks
PIECE = 2**20  # bytes of the phases that are at hand at once, which stay in a processor's inner cache


@dataclass(frozen=True)
class Strided:
    """Sizes of a convolution without groups and dilation, by axis.

    Attributes:
        read: pixels of its input.
        stride, padding: of the layer.
    """

    read: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    @classmethod
    def of(cls, module: nn.Module, x: Tensor) -> Strided | None:
        """Of a layer that reads x, where it does what its class says, and where this is the faster way; else None."""
        if type(module) is not nn.Conv2d or {"forward", "_conv_forward"} & vars(module).keys():
            return None
        if isinstance(module.padding, str) or module.padding_mode != "zeros" or x.dim() != 4 or x.is_cuda:
            return None
        if x.dtype not in DTYPES or module.weight.dtype != x.dtype:
            return None
        plain = module.groups == 1 and set(module.dilation) == {1}
        if not (plain and min(module.stride) > 1 and module.in_channels <= MAX_CHANNELS):
            return None
        return cls(tuple(x.shape[2:]), tuple(module.stride), tuple(module.padding))

    def input_gradient(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient (R, d, *read) in the input, of that in the output, (R, n, h, w); the weight is (n, d, kh, kw).

        >>> x, weight = torch.zeros(1, 1, 5, 5, requires_grad=True), torch.arange(9.0).view(1, 1, 3, 3)
        >>> y = F.conv2d(x, weight, stride=2)
        >>> (expected,) = torch.autograd.grad(y.sum(), x)
        >>> bool((Strided((5, 5), (2, 2), (0, 0)).input_gradient(torch.ones_like(y), weight) == expected).all())
        True
        """
        phases = self._phases(weight)
        taps = phases.shape[2:]
        (sh, sw), d, (h, w) = self.stride, weight.shape[1], gradient.shape[2:]
        count = (h + taps[0] - 1, w + taps[1] - 1)  # pixels of a phase
        places = [[self._places(axis, phase, count[axis]) for phase in range(self.stride[axis])] for axis in (0, 1)]
        written = (sum(rows.stop - rows.start for rows, _ in each) for each in places)
        every = all(count == size for count, size in zip(written, self.read, strict=True))  # some pixels have no kernel
        result = (gradient.new_empty if every else gradient.new_zeros)(len(gradient), d, *self.read)
        piece = max(1, PIECE // (len(phases) * math.prod(count) * gradient.element_size()))
        for start in range(0, len(gradient), piece):
            found = F.conv2d(gradient[start : start + piece], phases, padding=(taps[0] - 1, taps[1] - 1))
            found = found.view(len(found), sh, sw, d, *count)
            for a, (rows, to_rows) in enumerate(places[0]):
                for b, (columns, to_columns) in enumerate(places[1]):
                    result[start : start + piece, :, to_rows, to_columns] = found[:, a, b, :, rows, columns]
        return result

    def _phases(self, weight: Tensor) -> Tensor:
        """The kernels (sh sw d, n, taps) of all phases, each every s-th row and column of the weight, turned round."""
        n, d = weight.shape[:2]
        (sh, sw), (kh, kw) = self.stride, weight.shape[2:]
        mh, mw = math.ceil(kh / sh), math.ceil(kw / sw)
        whole = F.pad(weight, (0, mw * sw - kw, 0, mh * sh - kh)).view(n, d, mh, sh, mw, sw)
        return whole.flip(2, 4).permute(3, 5, 1, 0, 2, 4).reshape(sh * sw * d, n, mh, mw)

    def _places(self, axis: int, phase: int, count: int) -> tuple[slice, slice]:
        """Which of the `count` numbers of a phase are pixels that are no padding, and which pixels these are."""
        size, step, pad = self.read[axis], self.stride[axis], self.padding[axis]
        first = max(0, math.ceil((pad - phase) / step))
        start = step * first + phase - pad
        number = max(0, min(count - first, math.ceil((size - start) / step)))
        return slice(first, first + number), slice(start, start + step * number, step)


def attach(written: Tensor, x: Tensor, layer: nn.Module, sizes: Strided) -> Tensor:
    """What a layer wrote without its input x attached, with it attached: gradients get there as described above."""
    return SentBack.apply(x, written, layer.get_parameter("weight").detach(), sizes)  # type: ignore[no-any-return, no-untyped-call]


def is_attached(node: Any) -> bool:
    """Whether what a node of the autograd graph made was attached so."""
    return bool(node.name() == f"{SentBack.__name__}Backward")


class SentBack(torch.autograd.Function):
    """What a layer wrote without its input attached, whose gradient is sent back to the input here.

    The layer's own node keeps what is sent to its weight and bias.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, written: Tensor, weight: Tensor, sizes: Strided) -> Tensor:
        """`written`, as it is. Nothing is saved by autograd's own means, which a checkpoint would count."""
        ctx.weight, ctx.sizes = weight, sizes
        ctx.mark_dirty(written)
        return written

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """To the input, and on to the layer's own node."""
        found = _InputGradient.apply(gradient, ctx.weight, ctx.sizes)  # type: ignore[no-untyped-call]
        return found, gradient, None, None


class _InputGradient(torch.autograd.Function):
    """`Strided.input_gradient`, of several cotangents at once."""

    @staticmethod
    def forward(gradient: Tensor, weight: Tensor, sizes: Strided) -> Tensor:
        """Of one cotangent."""
        return sizes.input_gradient(gradient, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is differentiated again."""

    @staticmethod
    def vmap(_: Any, in_dims: tuple[Any, ...], gradient: Tensor, weight: Tensor, sizes: Strided) -> tuple[Tensor, int]:
        """Of several; each example's lie together in memory, as its Jacobian takes them."""
        every = gradient.movedim(in_dims[0], 1)  # (B, C, n, h, w)
        found = sizes.input_gradient(every.flatten(0, 1), weight)
        return found.view(*every.shape[:2], *found.shape[1:]), 1
