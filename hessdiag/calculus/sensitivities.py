"""How second moments depend on the random gain of every operation, carried along both sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hessdiag.calculus.activation import Activation, Gradient
from hessdiag.calculus.call import Call, Step, Value
from hessdiag.calculus.rules import BY_TARGET, LINEAR


@dataclass
class Sensitivities:
    """d log moment / d log gain of every result and gradient; forward gain of source i at 2i, backward at 2i + 1.

    Attributes:
        operations: in the graph; a vector has two entries for each and one, the last, for the loss.
        sources: number of every operation with a random gain, see `hessdiag.calculus.finite_width`.
        of_result: of E[x²], by name of the result.
        of_gradient: of E[Δx²], by name of the result.
        of_passed: of the E[Δx²] that a layer alone sends to its input, by name of the layer's result.
        multipliers: of what an operation reads, by its name and theirs; its rule is differentiated by them.
    """

    operations: int
    sources: dict[str, int] = field(default_factory=dict)
    of_result: dict[str, Tensor] = field(default_factory=dict)
    of_gradient: dict[str, Tensor] = field(default_factory=dict)
    of_passed: dict[str, Tensor] = field(default_factory=dict)
    multipliers: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def result(self, name: str) -> Tensor:
        """Find those of E[x²] of a result; zeros for an input."""
        return self.of_result[name] if name in self.of_result else self._zeros()

    def observed(self, call: Call) -> Call:
        """Put a multiplier of 1 on every activation that a call reads, to differentiate its rule by; none if linear."""
        rule = BY_TARGET.get(call.operation.target)
        leaves = self.multipliers[call.operation.name] = {}
        if rule is None or rule.apply in LINEAR:
            return call
        values: dict[str, Value] = {}
        for ref in call.refs:
            value = call.values.get(ref.name)
            if isinstance(value, Activation) and not value.parameter:
                leaves[ref.name] = torch.ones((), dtype=torch.float64, requires_grad=True)
                values[ref.name] = replace(value.scaled(leaves[ref.name]), before=value.before)
        return call.reading(values)

    def add_step(self, name: str, step: Step, out: Activation) -> None:
        """Carry sensitivities over one operation of the forward sweep."""
        total = self._zeros()
        if self.multipliers[name]:
            for read, slope in self._derivatives(name, out.second_moment).items():
                total += slope * self.result(read)
        else:
            for ref, _ in step.back[:1]:  # a linear rule of one activation
                total += step.share * self.result(ref.name)
        if step.kind:
            self.sources[name] = len(self.sources)
            total[2 * self.sources[name]] += 1
        self.of_result[name] = total

    def from_loss(self, output: str, slope: float) -> Tensor:
        """Find those of the gradient that the loss sends back."""
        start = slope * self.result(output)
        start[-1] += 1
        return start

    def add_gradient(self, name: str, arrived: Sequence[tuple[Gradient, Tensor]]) -> None:
        """Average over the paths that a gradient comes back on, by their shares."""
        sizes = [float(gradient.second_moment) for gradient, _ in arrived]
        total = sum(sizes) or 1.0
        found = self._zeros()
        for size, (_, each) in zip(sizes, arrived, strict=True):
            found += size / total * each
        self.of_gradient[name] = found

    def passed(self, name: str, gradient: Gradient) -> Tensor:
        """Carry sensitivities over one operation of the backward sweep."""
        found = self.of_gradient[name].clone()
        for read, slope in self._derivatives(name, gradient.second_moment).items():
            found += slope * self.result(read)
        if name in self.sources:
            found[2 * self.sources[name] + 1] += 1
        return found

    def _derivatives(self, name: str, moment: Tensor) -> Mapping[str, float]:
        """Find d log moment / d log multiplier of every activation that an operation reads."""
        leaves = self.multipliers[name]
        if not leaves or not moment.requires_grad:
            return {}
        slopes = torch.autograd.grad(moment, list(leaves.values()), retain_graph=True, allow_unused=True)
        size = float(moment.detach())
        pairs = zip(leaves, slopes, strict=True)
        return {read: float(slope) / size for read, slope in pairs if slope is not None and size}

    def _zeros(self) -> Tensor:
        return torch.zeros(2 * self.operations + 1, dtype=torch.float64)
