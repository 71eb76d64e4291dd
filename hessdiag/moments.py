"""Second moments of activations, gradients and weights: one forward and one backward pass over the batch.

Gradients are those of each example's own loss. Moments are means over elements *and* examples, taken before any γ is
formed. The same pass verifies the capture: a weight gradient assembled from what the hooks saw must equal the one that
autograd computes, and the gradient of one example's loss must not reach another example. What fails is refused, so
that no number rests on a layer that hessdiag misread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.batch import Batch
from hessdiag.blocks import block_parameter, is_linear, owners_of
from hessdiag.capture import LayerCall, Trace, backpropagate, trace
from hessdiag.errors import HessdiagError
from hessdiag.jacobian import Jacobian, jacobians_of
from hessdiag.losses import Loss
from hessdiag.problem import Problem
from hessdiag.seeds import stream

MOST_CURVATURE_PROBES = 8  # per example, where the network has many outputs
SAME = {torch.float32: 3e-4, torch.float64: 1e-10}  # outputs of one example, in different batches
CURVATURE_SAMPLES = 1024  # enough for about 2 % noise in gamma_curvature at an effective rank of 4


@dataclass
class LayerMoments:
    """Sums over one layer's calls and `examples` examples; the properties turn them into second moments."""

    examples: int
    x_count: int = 0
    x_sum: float = 0.0
    x_gradient_sum: float = 0.0
    out_count: int = 0
    out_channels: int = 1
    in_channels: int = 1
    out_sum: float = 0.0
    out_gradient_sum: float = 0.0
    curvature_sum: float = 0.0
    multiplies: bool = True

    @property
    def elements_in(self) -> int:
        """Elements of the layer's input per example, n_l ρ_l²."""
        return self.x_count // self.examples

    @property
    def sites_in(self) -> int:
        """ρ_l²."""
        return self.elements_in // self.in_channels

    @property
    def sites_out(self) -> int:
        """ρ_{l+1}²."""
        return self.out_count // self.examples // self.out_channels

    @property
    def x_sq(self) -> float:
        """E[x_l²]."""
        return self.x_sum / self.x_count if self.x_count else math.nan

    @property
    def x_gradient_sq(self) -> float:
        """E[Δx_l²]."""
        return self.x_gradient_sum / self.x_count if self.x_count else math.nan

    @property
    def out_sq(self) -> float:
        """E[x_{l+1}²]."""
        return self.out_sum / self.out_count if self.out_count else math.nan

    @property
    def out_gradient_sq(self) -> float:
        """E[Δx_{l+1}²]."""
        return self.out_gradient_sum / self.out_count if self.out_count else math.nan

    @property
    def out_curvature_sq(self) -> float:
        """E[Δx_{l+1}²] with Δ the back-propagated S u, u ~ N(0, 1); multiply by E[y²] for γ_curvature."""
        return self.curvature_sum / self.out_count if self.out_count else math.nan


@dataclass
class Moments:
    """Moments of a whole batch.

    Attributes:
        examples: B.
        layers: by owner path, in order of their first calls.
        gradient_sq: by block name, E[ΔW²] with Δ the gradient of one example's loss.
        batch_gradient_sq: by block name, E[ΔW²] of the batch-mean loss.
        output_sq: E[y²].
        outputs: outputs per example, N.
        misread: by block name, why its gradient could not be reproduced.
    """

    examples: int
    layers: dict[str, LayerMoments] = field(default_factory=dict)
    gradient_sq: dict[str, float] = field(default_factory=dict)
    batch_gradient_sq: dict[str, float] = field(default_factory=dict)
    output_sq: float = math.nan
    outputs: int = 0
    misread: dict[str, str] = field(default_factory=dict)


def measure_moments(problem: Problem, *, chunk: int, seed: int) -> Moments:
    """Second moments of every block's surroundings, `chunk` examples at a time.

    Raises:
        HessdiagError: the model is random, or one example's loss depends on another example, as with batch
            normalisation in training mode.
    """
    model, batch, loss, blocks = problem.model, problem.batch, problem.loss, problem.blocks
    owners = owners_of(block for block in blocks if block.structured)
    moments = Moments(batch.size)
    gradients = {block.name: _GradientSum() for block in blocks}
    parameters = [block_parameter(model, block) for block in blocks]
    probes = torch.empty(0)
    done, output_sum = 0, 0.0
    if chunk == 1 < batch.size:  # one example cannot show that it depends on others
        two = batch.narrow(0, 2)
        _check_repeatable_and_independent(model, trace(model, two, owners), two, loss)
    for part in batch.chunks(chunk):
        seen = trace(model, part, owners, keep_outputs=True)
        y = seen.y.detach()
        if done == 0:
            _check_repeatable_and_independent(model, seen, part, loss)
            moments.outputs = math.prod(y.shape[1:])
            probes = _curvature_probes(y, batch.size, seed)
        output_sum += _sum_sq(y)
        own = loss.gradient(y, part.targets).unsqueeze(0)  # (1, B, *out)
        ends = [call.output_edge for call in seen.calls]
        starts = [call.input_edge for call in seen.calls]
        every = backpropagate(seen.y, [*starts, *ends, *map(get_gradient_edge, parameters)], own)
        calls = len(seen.calls)
        inputs, outputs, truth = every[:calls], every[calls : 2 * calls], every[2 * calls :]
        directions = [loss.hessian_product(y, part.targets, v) for v in probes[:, done : done + part.size].to(y)]
        curved = backpropagate(seen.y, ends, torch.stack(directions))
        for call, *gradients_of_call in zip(seen.calls, inputs, outputs, curved, strict=True):
            _add_call(moments, model.get_submodule(call.owner), call, gradients_of_call)
        found = jacobians_of(model, part, blocks, seen.calls, outputs, own)
        for block, jacobian, exact in zip(blocks, found, truth, strict=True):
            gradients[block.name].add(jacobian, exact)
        done += part.size
    moments.output_sq = output_sum / (batch.size * moments.outputs)
    floor = max((summed.squared for summed in gradients.values()), default=0.0)
    for block in blocks:
        summed = gradients[block.name]
        moments.gradient_sq[block.name] = summed.squared / (batch.size * block.numel)
        moments.batch_gradient_sq[block.name] = summed.total_sq() / (batch.size**2 * block.numel)
        if summed.wrong(floor):
            moments.misread[block.name] = (
                f"its gradient is not what {block.layer} {block.owners[0]!r} sees in its forward call:"
                " the parameter is also used elsewhere"
            )
    return moments


@dataclass
class _GradientSum:
    """Gradients of one block, summed over the batch and held against autograd's."""

    squared: float = 0.0
    total: Tensor | None = None
    mismatch: float = 0.0
    scale: float = 0.0
    eps: float = 0.0

    def add(self, found: Jacobian | None, exact: Tensor | None) -> None:
        if found is None:
            self.mismatch += 0.0 if exact is None else _sum_sq(exact)
            return
        total = found.total().flatten()  # (P,)
        self.squared += float(found.gram().sum(dtype=torch.float64))
        self.total = total if self.total is None else self.total + total
        error = total if exact is None else total - exact.flatten()
        self.mismatch += _sum_sq(error)
        self.scale += _sum_sq(total) if exact is None else _sum_sq(exact)
        self.eps = torch.finfo(error.dtype).eps

    def wrong(self, largest: float) -> bool:
        """Whether the two differ by more than rounding.

        For a sum that nearly cancels, the scale of the rounding error is that of its terms; for a gradient that is zero
        by symmetry, as of an attention's key bias, it is that of the `largest` gradient in the network.
        """
        return self.mismatch > self.eps * (self.scale + self.squared) + 1e4 * self.eps**2 * largest

    def total_sq(self) -> float:
        return 0.0 if self.total is None else _sum_sq(self.total)


def _curvature_probes(y: Tensor, size: int, seed: int) -> Tensor:
    """Directions u for every example, (Q, B, *out), such that the sum over Q averages u ~ N(0, 1) exactly or nearly.

    All basis vectors when there are few outputs, else Gaussian draws.
    """
    shape = y.shape[1:]
    count = math.prod(shape)
    wanted = min(-(-CURVATURE_SAMPLES // size), MOST_CURVATURE_PROBES)
    if count <= 2 * wanted:
        basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *shape)
        return basis.expand(count, size, *shape)
    generator = stream(seed, "curvature probes")
    return torch.randn(wanted, size, *shape, generator=generator) / math.sqrt(wanted)


def _add_call(
    moments: Moments,
    module: nn.Module,
    call: LayerCall,
    gradients: Sequence[Tensor | None],
) -> None:
    """Add one call's activations and gradients to its layer's sums."""
    layer = moments.layers.setdefault(call.owner, LayerMoments(moments.examples))
    assert call.output is not None
    layer.in_channels = _channels(module, call.x)
    layer.out_channels = _channels(module, call.output)
    layer.x_count += call.x.numel()
    layer.out_count += call.output.numel()
    layer.x_sum += _sum_sq(call.x)
    layer.out_sum += _sum_sq(call.output)
    dx, dout, dcurved = (0.0 if g is None else _sum_sq(g) for g in gradients)
    layer.x_gradient_sum += dx
    layer.out_gradient_sum += dout
    layer.curvature_sum += dcurved
    scalars = [p for p in module.parameters(recurse=False) if p.numel() == 1]
    layer.multiplies &= bool(scalars) and torch.allclose(call.output, call.x * scalars[0].detach())


def _channels(module: nn.Module, activation: Tensor) -> int:
    """Size of the channel dimension: the last one of a linear layer's activations, else the second."""
    return activation.shape[-1 if is_linear(module) or activation.dim() < 2 else 1]


def _check_repeatable_and_independent(model: nn.Module, seen: Trace, part: Batch, loss: Loss) -> None:
    """A second forward pass gives the same; so does an example on its own; losses reach nothing of other examples."""
    for call in seen.calls:
        if call.output_shape[0] % part.size or call.x.shape[0] % part.size:
            raise HessdiagError(
                f"layer {call.owner!r} gave a tensor of shape {tuple(call.output_shape)} for {part.size} examples:"
                " its first dimension must run over the examples"
            )
    y = seen.y.detach()
    if not bool(y.isfinite().all()):
        raise HessdiagError("the model returned NaN or infinite outputs: its inputs or weights are too large")
    if not torch.allclose(part.call(model).detach(), y, rtol=1e-4, atol=0):
        raise HessdiagError(
            "two forward passes of the same batch differ: dropout or another random layer is in training mode,"
            " call model.eval() first"
        )
    if part.size == 1:
        return
    half = part.size // 2  # not the first example alone: its gradient may be zero
    alone = loss.gradient(y, part.targets)
    alone[half:] = 0
    edges = [call.output_edge for call in seen.calls]
    for call, gradient in zip(seen.calls, backpropagate(seen.y, edges, alone.unsqueeze(0)), strict=True):
        if gradient is not None and bool(gradient.reshape(part.size, -1)[half:].any()):
            training = [
                n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training
            ]
            remedy = (
                f"batch normalisation {training[0]!r} is in training mode, call model.eval() first"
                if training
                else "the first dimension of every layer's input must run over the examples"
            )
            raise HessdiagError(f"the loss of one example depends on others at layer {call.owner!r}: {remedy}")
    try:
        single = part.narrow(0, 1).call(model).detach()
        same = float((single - y[:1]).norm()) <= SAME[y.dtype] * float(y.norm())
    except ValueError:  # batch normalisation in training mode refuses a single example
        same = False
    if not same:
        raise HessdiagError(
            "an example on its own gives other outputs than in the batch: the model uses statistics of the batch,"
            " branches on its values, or updates itself; call model.eval() first, or keep examples apart"
        )


def _sum_sq(values: Tensor) -> float:
    return float(values.detach().square().sum(dtype=torch.float64))
