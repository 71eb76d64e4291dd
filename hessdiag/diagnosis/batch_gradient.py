"""Gradients of the batch-mean loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.magnitude import sum_of_squares
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import looked_up_in_common, measured_layers
from hessdiag.network.trace import Trace, backpropagate, trace


@dataclass
class GradientSum:
    """The gradient of a batch, added up from chunks that are measured for something else.

    It is no result of a unit of work, being as large as the model: what other ranks or an earlier run measured is
    missing here.
    """

    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    total: dict[str, Tensor] = field(default_factory=dict)
    examples: int = 0
    averaged: bool = False

    def start(self, model: nn.Module) -> None:
        """Forget what was added."""
        self.parameters, self.total, self.examples, self.averaged = trainable(model), {}, 0, False

    def add(self, gradients: Sequence[Tensor | None], *, examples: int) -> None:
        """Add summed gradients (1, *shape) of some examples, in the order of the parameters."""
        for name, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:  # the first one is no copy, being as large as the model
                added = gradient[0].detach()
                self.total[name] = self.total[name] + added if name in self.total else added
        self.examples += examples

    def differentiate(self, problem: Problem, *, chunk: int) -> None:
        """Add up the whole batch, `chunk` examples at a time.

        Layers are watched as where moments are measured, and send back as they do there: to the same bits.
        """
        self.start(problem.model)
        edges = [get_gradient_edge(parameter) for parameter in self.parameters.values()]
        for part in problem.batch.chunks(chunk):
            y = watch_measured(problem, part).y
            own = problem.loss.gradient(y.detach(), part.targets)
            self.add(backpropagate(y, edges, own.unsqueeze(0)), examples=part.size)

    def mean(self, size: int) -> dict[str, Tensor] | None:
        """The gradient of the batch-mean loss; None where not all of `size` examples were added."""
        found = self.reached(size)
        if found is None:
            return None
        return {name: torch.zeros_like(self.parameters[name]) if g is None else g for name, g in found.items()}

    def reached(self, size: int) -> dict[str, Tensor | None] | None:
        """The same, with None for parameters that the outputs do not depend on."""
        if self.examples != size:
            return None
        if not self.averaged:
            for name in self.total:  # one takes the memory of another, as new memory takes long
                self.total[name] = self.total[name] / size
            self.averaged = True
        return {name: self.total.get(name) for name in self.parameters}


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training moves, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}


def watch_measured(problem: Problem, part: Batch, *, keep_outputs: bool = False) -> Trace:
    """A forward pass of some examples with all layers watched whose moments are measured."""
    owners = measured_layers(problem.model, problem.blocks)
    in_common = looked_up_in_common(problem.blocks)
    return trace(problem.model, part, owners, keep_outputs=keep_outputs, in_common=in_common)


def gradient_sq(problem: Problem, gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """E[ΔW²] of the batch's gradient, by block name."""
    return {block.name: sum_of_squares(gradients[block.name]) / block.numel for block in problem.blocks}
