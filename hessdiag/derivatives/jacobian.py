"""Per-example Jacobians ∂y/∂W_l of all blocks, from what their layers read and the gradients in what they write.

In which form a block's is held follows from its layers: `Sites`, `Lookup`, `Dense`, or a sum of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.class_sites import ClassSites
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.functional import functional_jacobians, output_tangent
from hessdiag.derivatives.jacobian_form import Dense, Jacobian, fitting
from hessdiag.derivatives.lookup import Lookup
from hessdiag.derivatives.sites import Sites
from hessdiag.derivatives.summed import merge
from hessdiag.network.blocks import Block
from hessdiag.network.hooks import LayerCall
from hessdiag.network.layers import CONVOLUTIONS

PIECE = 2**22  # bytes of the factors that are multiplied at once, where J is formed from them


def jacobians_of(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    calls: Sequence[LayerCall],
    phis: Sequence[Tensor | None],
    cotangents: Tensor,
    own: Mapping[str, Tensor | None] | None = None,
) -> Iterator[Jacobian | None]:
    """As `all_jacobians`, with the gradients `phis` in the outputs of the watched `calls` already at hand.

    Those in parameters themselves, (C, *shape) by block name, are `own` where there is but one example.
    """
    own = own or {}
    others = [b for b in blocks if not b.structured and b.kind != "scalar" and b.name not in own]
    dense = functional_jacobians(model, others, part, cotangents) if others else {}
    for block in blocks:
        if block.kind == "scalar":
            column = output_tangent(model, block, part)  # (B, *out)
            yield Dense.of((cotangents * column).flatten(2).sum(dim=2).T.unsqueeze(2))
        elif block.structured:
            yield block_jacobian(model, block, calls, phis, examples=part.size)
        elif block.name in own:
            gradient = own[block.name]
            yield None if gradient is None else Dense.of(gradient.detach().flatten(1).unsqueeze(0))
        else:
            yield Dense.of(dense.pop(block.name))


def block_jacobian(
    model: nn.Module,
    block: Block,
    calls: Sequence[LayerCall],
    phis: Sequence[Tensor | DrawnClasses | None],
    *,
    examples: int,
) -> Jacobian | None:
    """Jacobian of a weight or bias block from the calls of its layers; None where nothing depends on it.

    Args:
        model: the model.
        block: a block of kind `"weight"` or `"bias"`.
        calls: calls of its owners, and of other layers.
        phis: for each call the (C, *output shape) gradients of C outputs in the call's output, or None; or the drawn
            classes that they are.
        examples: B.
    """
    parts: list[Jacobian] = []
    for call, phi in zip(calls, phis, strict=True):
        if phi is None or call.owner not in block.owners:
            continue
        module = model.get_submodule(call.owner)
        if isinstance(phi, DrawnClasses):
            u = call.x.reshape(examples, -1, call.x.shape[-1]).transpose(1, 2)
            parts.append(ClassSites.of(u if block.kind == "weight" else torch.ones_like(u[:, :1]), phi))
        elif block.kind == "bias":
            parts.append(bias_jacobian(module, phi, examples=examples))
        elif isinstance(module, nn.Embedding):
            parts.append(lookup_jacobian(module, call.x, phi, examples=examples))
        else:
            parts.append(weight_jacobian(module, call.x, phi, examples=examples))
    return merge(parts) if parts else None


def rule_fits(module: nn.Module, block: Block, call: LayerCall) -> bool:
    """Whether a call has the shapes of a layer that does what its class says.

    A subclass may have a forward pass of its own, such as one that pads first. The values are checked elsewhere: the
    rule's gradient must be autograd's.
    """
    x, y = call.x.shape, call.output_shape
    if isinstance(module, nn.Embedding):
        return (*x, block.shape[1]) == y
    if not isinstance(module, CONVOLUTIONS):
        n, d = y[-1], x[-1]
        if block.kind == "bias":
            return n == block.numel
        return x[:-1] == y[:-1] and block.shape == ((n, d) if isinstance(module, nn.Linear) else (d, n))
    dims = 2 + len(module.kernel_size)
    if len(y) != dims or (block.kind == "weight" and len(x) != dims):  # (channels, ...) of a single example
        return False
    if block.kind == "bias":
        return y[1] == block.numel
    return x[0] == y[0] and block.shape[:2] == (y[1], x[1] // module.groups) and y[2:] == _sites(module, x[2:])


def _sites(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, reads: Sequence[int]) -> tuple[int, ...]:
    """Positions at which a convolution writes, for the positions that it reads."""
    pads = module._reversed_padding_repeated_twice[::-1]
    padded = [size + pads[2 * axis] + pads[2 * axis + 1] for axis, size in enumerate(reads)]
    reach = [(k - 1) * d + 1 for k, d in zip(module.kernel_size, module.dilation, strict=True)]
    return tuple((size - r) // step + 1 for size, r, step in zip(padded, reach, module.stride, strict=True))


def weight_jacobian(module: nn.Module, x: Tensor, phi: Tensor, *, examples: int) -> Jacobian:
    """Jacobian of a linear or convolutional layer's weight.

    Args:
        module: the layer.
        x: its input; the first dimension is `examples`, or a multiple of it when each example holds several rows.
        phi: (C, *output shape) gradients of C outputs in the layer's outputs.
        examples: B.
    """
    rows = by_site(module, phi, examples=examples)  # (B, C, n, T)
    if not isinstance(module, CONVOLUTIONS):
        u = x.reshape(examples, -1, x.shape[-1]).transpose(1, 2)  # (B, d, T)
        return Sites.of(u, rows, transposed=not isinstance(module, nn.Linear))
    if module.groups == 1:
        x, size = fitting(x)  # smaller than what is unfolded from it, and as large
        if rows.shape[3] > module.in_channels * math.prod(module.kernel_size):
            return _formed_in_pieces(module, x, *fitting(rows), size)
        return Sites.of(_patches(module, x, examples=examples), rows, size=size)
    u = _patches(module, x, examples=examples)
    B, C, n, T = rows.shape
    g = module.groups
    per_group = rows.view(B, C, g, n // g, T).transpose(1, 2).reshape(B * g, C * (n // g), T)
    J = torch.bmm(per_group, u.reshape(B * g, -1, T).transpose(1, 2))  # (B g, C n/g, d)
    return Dense.of(J.view(B, g, C, n // g, -1).transpose(1, 2).flatten(2))


def _patches(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, *, examples: int) -> Tensor:
    """What the sites of each example read, (B, d groups, T)."""
    patches = unfold(module, x)  # (R, d groups, sites)
    return patches.view(examples, -1, *patches.shape[1:]).transpose(1, 2).flatten(2)


def _formed_in_pieces(
    module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, phi: Tensor, phi_size: float, x_size: float
) -> Dense:
    """J of a layer with more sites than inputs of each, which is smaller than the factors it is made of.

    A few examples at a time: what is unfolded stays in a processor's inner cache, and is never held for all.
    """
    B, C, n, T = phi.shape
    d = module.in_channels * math.prod(module.kernel_size)
    J = phi.new_empty(B, C * n, d)
    piece = max(1, PIECE // (T * (d + C * n) * phi.element_size()))
    calls = len(x) // B
    for start in range(0, B, piece):
        stop = min(start + piece, B)
        u = _patches(module, x[calls * start : calls * stop], examples=stop - start)
        torch.bmm(phi[start:stop].reshape(-1, C * n, T), u.transpose(1, 2), out=J[start:stop])
    return Dense(J.view(B, C, n * d), x_size * phi_size)


def lookup_jacobian(module: nn.Embedding, x: Tensor, phi: Tensor, *, examples: int) -> Lookup:
    """Jacobian of an embedding's weight.

    Args:
        module: the layer.
        x: the rows that it looked up; the first dimension as in `weight_jacobian`.
        phi: (C, *x.shape, n) gradients of C outputs in the layer's outputs.
        examples: B.
    """
    rows = phi.reshape(len(phi), examples, -1, phi.shape[-1]).transpose(0, 1)  # (B, C, T, n)
    height = len(module.weight)
    padding = None if module.padding_idx is None else module.padding_idx % height
    return Lookup.of(x.reshape(examples, -1), rows, height, padding=padding)


def bias_jacobian(module: nn.Module, phi: Tensor, *, examples: int) -> Dense:
    """Jacobian of a bias: the output gradients summed over sites, (B, C, n)."""
    return Dense.of(by_site(module, phi, examples=examples).sum(dim=3))


def by_site(module: nn.Module, phi: Tensor, *, examples: int) -> Tensor:
    """Gradients (C, *output shape) in a layer's outputs as (B, C, channels, sites)."""
    if not isinstance(module, CONVOLUTIONS):
        return phi.reshape(len(phi), examples, -1, phi.shape[-1]).permute(1, 0, 3, 2)
    flat = phi.flatten(3)  # (C, R, n, S)
    if flat.shape[1] == examples:
        return flat.transpose(0, 1)
    C, R, n, S = flat.shape
    return flat.reshape(C, examples, R // examples, n, S).permute(1, 0, 3, 2, 4).flatten(3)


def unfold(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """The inputs that each output site of a convolution reads, (N, in_channels * prod(kernel), sites).

    >>> unfold(nn.Conv1d(1, 1, 2), torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[1., 2.],
             [2., 3.]]])
    """
    # Strided views and one copy: three times faster than F.unfold, and right for 1-d and 3-d and every padding mode.
    if any(module._reversed_padding_repeated_twice):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = F.pad(x, list(module._reversed_padding_repeated_twice), mode=mode)
    spatial = x.dim() - 2
    for axis in range(spatial):
        reach = (module.kernel_size[axis] - 1) * module.dilation[axis] + 1
        x = x.unfold(2 + axis, reach, module.stride[axis])[..., :: module.dilation[axis]]
    sites = tuple(range(2, 2 + spatial))
    kernel = tuple(range(2 + spatial, 2 + 2 * spatial))
    return x.permute(0, 1, *kernel, *sites).flatten(2 + spatial).flatten(1, 1 + spatial)  # (N, in k, T)
