"""Per-example Jacobians ∂y/∂W_l, held as the factors they are made of.

A layer that multiplies its input by W at T sites has J_c = Σ_t φ_ct ⊗ u_t for output c, with u_t the (unfolded) input
that site t reads, of length d, and φ_ct the gradient of output c in what site t writes. Everything that hessdiag needs
is a Gram matrix J J^T, and for few sites that never takes forming J.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import functional_jacobians, output_tangent
from hessdiag.network.blocks import Block, owners_of
from hessdiag.network.hooks import LayerCall, Trace, backpropagate, trace
from hessdiag.network.layers import CONVOLUTIONS


@dataclass(frozen=True)
class Sites:
    """Rank-T form of a layer without groups: J[b, c] = Σ_t φ[b, c, :, t] u[b, :, t]^T.

    Attributes:
        u: (B, d, T) inputs.
        phi: (B, C, n, T) gradients of C outputs in the layer's outputs.
        transposed: the weight is stored as (inputs, outputs), which orders the entries of J.
        size: J is this many times what `u` and `phi` make.
    """

    u: Tensor
    phi: Tensor
    transposed: bool = False
    size: float = 1.0

    @classmethod
    def of(cls, u: Tensor, phi: Tensor, *, transposed: bool = False) -> Sites:
        """With factors whose squares fit their dtype."""
        (u, u_size), (phi, phi_size) = fitting(u), fitting(phi)
        return cls(u, phi, transposed, u_size * phi_size)

    @property
    def examples(self) -> int:
        """B."""
        return len(self.phi)

    @property
    def is_cheaper_formed(self) -> bool:
        """Whether the Gram matrix takes fewer operations from J itself than from its factors."""
        _, C, n, T = self.phi.shape
        d = self.u.shape[1]
        return T > 1 and (C * T) ** 2 * n + T * T * d > C * n * d * T + C * C * n * d

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C), by the cheaper of two ways; J is never held whole."""
        return _enlarged(self._gram(), self.size**2)

    def _gram(self) -> Tensor:
        B, C, n, T = self.phi.shape
        d = self.u.shape[1]
        if T == 1:
            rows = self.phi.squeeze(3)
            return torch.bmm(rows, rows.transpose(1, 2)) * self.u.square().sum(dim=(1, 2)).view(B, 1, 1)
        if not self.is_cheaper_formed:
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
        if not isinstance(other, Sites):
            return self.dense().cross(other)
        if self.phi.shape[3] > 1:
            return self._formed_cross(other)
        size = self.size * other.size
        u = self.u.squeeze(2) @ other.u.squeeze(2).T  # (B, B')
        phi = self.phi.squeeze(3).flatten(0, 1) @ other.phi.squeeze(3).flatten(0, 1).T  # (B C, B' C')
        shape = (len(self.phi), self.phi.shape[1], len(other.phi), other.phi.shape[1])
        return _enlarged(phi.view(shape) * u.view(shape[0], 1, shape[2], 1), size)

    def _formed_cross(self, other: Sites) -> Tensor:
        """The same by forming J, some channels at a time."""
        B, C, n, _ = self.phi.shape
        E, D = other.phi.shape[:2]
        product = self.phi.new_zeros(B * C, E * D)
        channels = max(1, FORMED // max((B * C + E * D) * self.u.shape[1], 1))
        for start in range(0, n, channels):
            rows = self._of_channels(start, start + channels).flatten(0, 1)
            product += rows @ (rows if other is self else other._of_channels(start, start + channels).flatten(0, 1)).T
        return _enlarged(product.view(B, C, E, D), self.size * other.size)

    def _of_channels(self, start: int, stop: int) -> Tensor:
        """Rows of J of some channels, (B, C, channels d)."""
        return Sites(self.u, self.phi[:, :, start:stop], self.transposed).dense().J

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        B, C, n, T = self.phi.shape
        rows = self.phi.permute(1, 2, 0, 3).reshape(C * n, B * T)
        J = (rows @ self.u.transpose(1, 2).reshape(B * T, -1)).view(C, n, -1)
        return (J.transpose(1, 2) if self.transposed else J).flatten(1) * self.size

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O)."""
        B, C, n, T = self.phi.shape
        matrices = u.view(len(u), -1, n).transpose(1, 2) if self.transposed else u.view(len(u), n, -1)
        rows = matrices.reshape(len(u) * n, -1)
        # What the layer writes when its weight moves; few rows times many columns, which is faster than transposed.
        moved = (self.u.squeeze(2) @ rows.T if T == 1 else torch.matmul(rows, self.u)).reshape(B, len(u), n * T)
        along = torch.bmm(moved, self.phi.reshape(B, C, n * T).transpose(1, 2))  # (B, O, C)
        return along.transpose(1, 2).double() * self.size

    def narrow(self, start: int, stop: int) -> Sites:
        """The same for examples `start` up to `stop`."""
        return Sites(self.u[start:stop], self.phi[start:stop], self.transposed, self.size)

    def of_cotangent(self, number: int) -> Sites:
        """The same for one of the C cotangents alone."""
        return Sites(self.u, self.phi[:, number : number + 1], self.transposed, self.size)

    def dense(self) -> Dense:
        """The same with J formed."""
        B, C, n, T = self.phi.shape
        J = torch.bmm(self.phi.reshape(B, C * n, T), self.u.transpose(1, 2))  # (B, C n, d)
        if self.transposed:
            return Dense(J.view(B, C, n, -1).transpose(2, 3).flatten(2), self.size)
        return Dense(J.view(B, C, -1), self.size)

    @staticmethod
    def concatenate(parts: list[Sites]) -> Sites:
        """The same layer on more examples."""
        size = max(part.size for part in parts)
        phi = torch.cat([part.phi * (part.size / size) for part in parts])
        return Sites(torch.cat([part.u for part in parts]), phi, parts[0].transposed, size)


@dataclass(frozen=True)
class Dense:
    """`size` times J, (B, C, P), itself."""

    J: Tensor
    size: float = 1.0

    @classmethod
    def of(cls, J: Tensor) -> Dense:
        """With entries whose squares fit their dtype."""
        return cls(*fitting(J))

    @property
    def examples(self) -> int:
        """B."""
        return len(self.J)

    @property
    def is_cheaper_formed(self) -> bool:
        """It is formed."""
        return False

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""
        return _enlarged(torch.bmm(self.J, self.J.transpose(1, 2)), self.size**2)

    def cross(self, other: Sites | Dense) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        there = other.dense()
        product = self.J.flatten(0, 1) @ there.J.flatten(0, 1).T
        return _enlarged(product.view(*self.J.shape[:2], *there.J.shape[:2]), self.size * there.size)

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        return self.J.sum(dim=0) * self.size

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O)."""
        return torch.matmul(self.J, u.T).double() * self.size

    def narrow(self, start: int, stop: int) -> Dense:
        """The same for examples `start` up to `stop`."""
        return Dense(self.J[start:stop], self.size)

    def of_cotangent(self, number: int) -> Dense:
        """The same for one of the C cotangents alone."""
        return Dense(self.J[:, number : number + 1], self.size)

    def dense(self) -> Dense:
        """Itself."""
        return self

    @staticmethod
    def concatenate(parts: list[Dense]) -> Dense:
        """The same layer on more examples."""
        size = max(part.size for part in parts)
        return Dense(torch.cat([part.J * (part.size / size) for part in parts]), size)


Jacobian = Sites | Dense


def fitting(values: Tensor) -> tuple[Tensor, float]:
    """Values whose squares fit their dtype, and their size: deep networks leave the range of float32."""
    if values.dtype == torch.float64 or not values.numel():
        return values, 1.0
    low, high = torch.aminmax(values)  # twenty times faster than the infinity norm, which is not vectorised
    largest = max(-float(low), float(high))
    if SMALL < largest < 1 / SMALL or largest == 0 or not math.isfinite(largest):
        return values, 1.0
    return values / largest, largest


def _enlarged(gram: Tensor, factor: float) -> Tensor:
    return gram if factor == 1.0 else gram.double() * factor


SMALL = 1e-8  # its fourth power is about the least normal float32
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
    seen = watch(model, part, blocks)
    yield from sent_to_blocks(model, part, blocks, seen, cotangents_of(seen.y.detach()))


def watch(model: nn.Module, part: Batch, blocks: Sequence[Block]) -> Trace:
    """One forward pass with the layers watched that have a structural rule."""
    return trace(model, part, owners_of(block for block in blocks if block.structured))


def sent_to_blocks(
    model: nn.Module, part: Batch, blocks: Sequence[Block], seen: Trace, cotangents: Tensor
) -> Iterator[Jacobian | None]:
    """As `all_jacobians`, of cotangents (C, B, *out) and a forward pass that are at hand."""
    phis = backpropagate(seen.y, [call.output_edge for call in seen.calls], cotangents)
    yield from jacobians_of(model, part, blocks, seen.calls, phis, cotangents)


def unit_cotangents(y: Tensor) -> Tensor:
    """The N basis vectors of an example's outputs for every example, (N, B, *out)."""
    count = math.prod(y.shape[1:])
    basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:])
    return basis.expand(count, *y.shape)


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
            yield Dense.of((cotangents * column).flatten(2).sum(dim=2).T.unsqueeze(2))
        elif block.structured:
            yield block_jacobian(model, block, calls, phis, examples=part.size)
        else:
            yield Dense.of(dense.pop(block.name))


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
    whole = [part.dense() for part in parts]
    size = max(part.size for part in whole)
    return Dense(torch.stack([part.J * (part.size / size) for part in whole]).sum(dim=0), size)


def rule_fits(module: nn.Module, block: Block, call: LayerCall) -> bool:
    """Whether a call has the shapes of a layer that does what its class says.

    A subclass may have a forward pass of its own, such as one that pads first. The values are checked elsewhere: the
    rule's gradient must be autograd's.
    """
    x, y = call.x.shape, call.output_shape
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
    patches = unfold(module, x)  # (R, d groups, sites)
    u = patches.view(examples, -1, *patches.shape[1:]).transpose(1, 2).flatten(2)  # (B, d groups, T)
    if module.groups == 1:
        return Sites.of(u, rows)
    B, C, n, T = rows.shape
    g = module.groups
    per_group = rows.view(B, C, g, n // g, T).transpose(1, 2).reshape(B * g, C * (n // g), T)
    J = torch.bmm(per_group, u.reshape(B * g, -1, T).transpose(1, 2))  # (B g, C n/g, d)
    return Dense.of(J.view(B, g, C, n // g, -1).transpose(1, 2).flatten(2))


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
