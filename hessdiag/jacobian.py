"""Per-example Jacobians ∂y/∂W_l, held as the factors they are made of.

A layer that multiplies its input by W at T sites has J_c = Σ_t φ_ct ⊗ u_t for output c, with u_t the (unfolded) input
that site t reads, of length d, and φ_ct the gradient of output c in what site t writes. Everything that hessdiag needs
is a Gram matrix J J^T, and for few sites that never takes forming J.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.batch import Batch
from hessdiag.blocks import CONVOLUTIONS, Block, owners_of
from hessdiag.capture import LayerCall, backpropagate, trace
from hessdiag.functional import functional_jacobians, output_tangent


@dataclass(frozen=True)
class Sites:
    """Rank-T form of a layer without groups: J[b, c] = Σ_t φ[b, c, :, t] u[b, :, t]^T.

    Attributes:
        u: (B, d, T) inputs.
        phi: (B, C, n, T) gradients of C outputs in the layer's outputs.
        transposed: the weight is stored as (inputs, outputs), which orders the entries of J.
    """

    u: Tensor
    phi: Tensor
    transposed: bool = False

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C), by the cheaper of two ways; J is never held whole."""
        B, C, n, T = self.phi.shape
        d = self.u.shape[1]
        if T == 1:
            rows = self.phi.squeeze(3)
            return torch.bmm(rows, rows.transpose(1, 2)) * self.u.square().sum(dim=(1, 2)).view(B, 1, 1)
        if (C * T) ** 2 * n + T * T * d <= C * n * d * T + C * C * n * d:
            rows = self.phi.transpose(2, 3).reshape(B, C * T, n)
            phi = torch.bmm(rows, rows.transpose(1, 2)).view(B, C, T, C, T)
            u = torch.bmm(self.u.transpose(1, 2), self.u)  # (B, T, T)
            return torch.einsum("bctes,bts->bce", phi, u)
        gram = self.phi.new_zeros(B, C, C)
        channels = max(1, FORMED // max(B * C * d, 1))
        for start in range(0, n, channels):
            J = Sites(self.u, self.phi[:, :, start : start + channels]).dense().J
            gram += torch.bmm(J, J.transpose(1, 2))
        return gram

    def cross(self, other: Sites | Dense) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        if not isinstance(other, Sites) or self.phi.shape[3] > 1:
            return self.dense().cross(other)
        u = self.u.squeeze(2) @ other.u.squeeze(2).T  # (B, B')
        phi = self.phi.squeeze(3).flatten(0, 1) @ other.phi.squeeze(3).flatten(0, 1).T  # (B C, B' C')
        shape = (len(self.phi), self.phi.shape[1], len(other.phi), other.phi.shape[1])
        return phi.view(shape) * u.view(shape[0], 1, shape[2], 1)

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        order = "bcnt,bdt->cdn" if self.transposed else "bcnt,bdt->cnd"
        return torch.einsum(order, self.phi, self.u).flatten(1)

    def narrow(self, start: int, stop: int) -> Sites:
        """The same for examples `start` up to `stop`."""
        return Sites(self.u[start:stop], self.phi[start:stop], self.transposed)

    def dense(self) -> Dense:
        """The same with J formed."""
        B, C, n, T = self.phi.shape
        J = torch.bmm(self.phi.reshape(B, C * n, T), self.u.transpose(1, 2))  # (B, C n, d)
        if self.transposed:
            return Dense(J.view(B, C, n, -1).transpose(2, 3).flatten(2))
        return Dense(J.view(B, C, -1))

    @staticmethod
    def concatenate(parts: list[Sites]) -> Sites:
        """The same layer on more examples."""
        return Sites(torch.cat([p.u for p in parts]), torch.cat([p.phi for p in parts]), parts[0].transposed)


@dataclass(frozen=True)
class Dense:
    """J itself, (B, C, P)."""

    J: Tensor

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""
        return torch.bmm(self.J, self.J.transpose(1, 2))

    def cross(self, other: Sites | Dense) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        there = other.dense().J
        product = self.J.flatten(0, 1) @ there.flatten(0, 1).T
        return product.view(*self.J.shape[:2], *there.shape[:2])

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        return self.J.sum(dim=0)

    def narrow(self, start: int, stop: int) -> Dense:
        """The same for examples `start` up to `stop`."""
        return Dense(self.J[start:stop])

    def dense(self) -> Dense:
        """Itself."""
        return self

    @staticmethod
    def concatenate(parts: list[Dense]) -> Dense:
        """The same layer on more examples."""
        return Dense(torch.cat([p.J for p in parts]))


Jacobian = Sites | Dense

FORMED = 2**26  # numbers of J held at once while its Gram matrix is summed up


def all_jacobians(
    model: nn.Module, part: Batch, blocks: Sequence[Block], cotangents_of: Callable[[Tensor], Tensor]
) -> Iterator[Jacobian | None]:
    """For each block in turn, cotangent^T ∂y/∂W for C cotangents of every example; None where y does not depend on W.

    Layers with a structural rule share one watched forward pass and C backward passes to all of them; other blocks go
    through `functional_jacobians`, scalars through one forward-mode pass each.

    Args:
        model: the model.
        part: B examples.
        blocks: the blocks.
        cotangents_of: makes the cotangents (C, B, *out) from the outputs (B, *out).
    """
    seen = trace(model, part, owners_of(block for block in blocks if block.structured))
    cotangents = cotangents_of(seen.y.detach())
    phis = backpropagate(seen.y, [call.output_edge for call in seen.calls], cotangents)
    yield from jacobians_of(model, part, blocks, seen.calls, phis, cotangents)


def jacobians_of(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    calls: Sequence[LayerCall],
    phis: Sequence[Tensor | None],
    cotangents: Tensor,
) -> Iterator[Jacobian | None]:
    """As `all_jacobians`, with the gradients `phis` in the outputs of the watched `calls` already at hand."""
    others = [block for block in blocks if not block.structured and block.kind != "scalar"]
    dense = functional_jacobians(model, others, part, cotangents) if others else {}
    for block in blocks:
        if block.kind == "scalar":
            column = output_tangent(model, block, part)  # (B, *out)
            yield Dense((cotangents * column).flatten(2).sum(dim=2).T.unsqueeze(2))
        elif block.structured:
            yield block_jacobian(model, block, calls, phis, examples=part.size)
        else:
            yield Dense(dense.pop(block.name))


def block_jacobian(
    model: nn.Module, block: Block, calls: Sequence[LayerCall], phis: Sequence[Tensor | None], *, examples: int
) -> Jacobian | None:
    """Jacobian of a weight or bias block from the calls of its layers; None where nothing depends on it.

    Args:
        model: the model.
        block: a block of kind `"weight"` or `"bias"`.
        calls: calls of its owners, and of other layers.
        phis: for each call the (C, *output shape) gradients of C outputs in the call's output, or None.
        examples: B.
    """
    parts: list[Jacobian] = []
    for call, phi in zip(calls, phis, strict=True):
        if phi is None or call.owner not in block.owners:
            continue
        module = model.get_submodule(call.owner)
        if block.kind == "bias":
            parts.append(bias_jacobian(module, phi, examples=examples))
        else:
            parts.append(weight_jacobian(module, call.x, phi, examples=examples))
    if len(parts) <= 1:
        return parts[0] if parts else None
    return Dense(torch.stack([part.dense().J for part in parts]).sum(dim=0))


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
        return Sites(u, rows, transposed=not isinstance(module, nn.Linear))
    patches = unfold(module, x)  # (R, d groups, sites)
    u = patches.view(examples, -1, *patches.shape[1:]).transpose(1, 2).flatten(2)  # (B, d groups, T)
    if module.groups == 1:
        return Sites(u, rows)
    B, C, n, T = rows.shape
    g = module.groups
    per_group = rows.view(B, C, g, n // g, T).transpose(1, 2).reshape(B * g, C * (n // g), T)
    J = torch.bmm(per_group, u.reshape(B * g, -1, T).transpose(1, 2))  # (B g, C n/g, d)
    return Dense(J.view(B, g, C, n // g, -1).transpose(1, 2).flatten(2))


def bias_jacobian(module: nn.Module, phi: Tensor, *, examples: int) -> Dense:
    """Jacobian of a bias: the output gradients summed over sites, (B, C, n)."""
    return Dense(by_site(module, phi, examples=examples).sum(dim=3))


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
