"""Many multi-layer perceptrons of one shape as one batched program: forward, loss and backward by batched products.

The weights of G networks are (G, n, m) tensors that live as long as the stack does and are changed in place: a stack
made anew from the networks' own tensors at every step would leave those untrained. The backward pass is written out:
autograd takes 1.3 to 1.7 times as long for the gradients of the same stack (`scripts/benchmark_stacked.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.errors import HessdiagError


@dataclass(frozen=True)
class GradientFactors:
    """The gradient of one stacked parameter, (G, n, m), as the product of inputs (G, B, n) and deltas (G, B, m)."""

    inputs: Tensor
    deltas: Tensor

    def product(self) -> Tensor:
        """Multiply the factors."""
        return torch.bmm(self.inputs.transpose(1, 2), self.deltas)


@dataclass(frozen=True)
class StackedMLP:
    """G perceptrons with ReLU between their linear layers.

    Attributes:
        weights: (G, n, m) of each layer, transposed with respect to `nn.Linear`.
        biases: (G, 1, m) of each layer.
        logit_scale: (G, 1, 1) fixed multipliers of the outputs.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    logit_scale: Tensor

    @property
    def count(self) -> int:
        """How many networks there are."""
        return len(self.logit_scale)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Weight and bias of each layer in turn; training changes these tensors in place."""
        return tuple(tensor for pair in zip(self.weights, self.biases, strict=True) for tensor in pair)

    def logits(self, inputs: Tensor) -> Tensor:
        """Run all networks; inputs (G, B, n), returns (G, B, classes)."""
        return self._forward(inputs)[-1]

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Sum of the cross-entropy over the batch, (G,); targets are (G, B)."""
        logits = self.logits(inputs)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape).sum(1)

    def gradients(self, inputs: Tensor, targets: Tensor) -> list[GradientFactors]:
        """Gradient of the mean cross-entropy with respect to each of `parameters`.

        Args:
            inputs: (G, B, n).
            targets: (G, B).
        """
        *activations, logits = self._forward(inputs)
        deltas = torch.softmax(logits, -1)  # (G, B, classes)
        one = torch.ones((), dtype=deltas.dtype, device=deltas.device).expand(*targets.shape, 1)
        deltas.scatter_add_(2, targets.unsqueeze(2), -one).mul_(self.logit_scale / targets.shape[1])
        found: list[GradientFactors] = []
        for layer in reversed(range(len(self.weights))):
            # A bias is a weight that reads 1.
            found += [GradientFactors(one, deltas), GradientFactors(activations[layer], deltas)]
            if layer:
                behind = torch.bmm(deltas, self.weights[layer].transpose(1, 2))
                deltas = torch.ops.aten.threshold_backward(behind, activations[layer], 0)
        return found[::-1]

    def with_logit_std(self, std: float, inputs: Tensor) -> StackedMLP:
        """Choose the multipliers so that the logits for these inputs have that standard deviation in every network."""
        measured = self.logits(inputs).div_(self.logit_scale).flatten(1).std(1)  # (G,)
        scale = torch.where(measured > 0, std / measured, torch.ones_like(measured))
        return replace(self, logit_scale=scale.view(-1, 1, 1))

    def keep(self, chosen: Tensor) -> StackedMLP:
        """Leave out networks; `chosen` are the numbers of those that stay."""
        return StackedMLP(
            tuple(weight[chosen] for weight in self.weights),
            tuple(bias[chosen] for bias in self.biases),
            self.logit_scale[chosen],
        )

    def _forward(self, inputs: Tensor) -> list[Tensor]:
        """Inputs of each layer, and the scaled logits at the end."""
        values = [inputs]
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True), start=1):
            value = torch.baddbmm(bias, values[-1], weight)
            values.append(value.mul_(self.logit_scale) if number == len(self.weights) else value.relu_())
        return values


def stack_networks(networks: Sequence[nn.Module]) -> StackedMLP:
    """Copy the linear layers of networks of one shape into a stack; ReLU is what stands between them.

    Raises:
        HessdiagError: the networks have different shapes.
    """
    layers = [[module for module in network.modules() if isinstance(module, nn.Linear)] for network in networks]
    shapes = [[tuple(layer.weight.shape) for layer in each] for each in layers]
    if any(shape != shapes[0] for shape in shapes):
        raise HessdiagError("networks of different shapes cannot be stacked: pass networks with the same layers")
    weights, biases = [], []
    for column in zip(*layers, strict=True):
        weights.append(torch.stack([layer.weight.detach().T for layer in column]).contiguous())
        biases.append(torch.stack([_bias(layer).unsqueeze(0) for layer in column]))
    first = weights[0]
    scale = torch.ones(len(networks), 1, 1, dtype=first.dtype, device=first.device)
    return StackedMLP(tuple(weights), tuple(biases), scale)


def _bias(layer: nn.Linear) -> Tensor:
    if not isinstance(layer.bias, Tensor):
        raise HessdiagError("a linear layer without bias cannot be stacked: build it with bias=True")
    return layer.bias.detach()
