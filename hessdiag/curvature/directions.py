"""Output directions of each example: a deflation basis that is treated exactly, and random ones orthogonal to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.curvature.range_finder import range_basis
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss, sides_of
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.seeds import gaussians, stream
from hessdiag.network.trace import Trace


@dataclass(frozen=True)
class Directions:
    """How many output directions to draw: `random` ones, and a deflation basis of `fixed` ones.

    Attributes:
        random, fixed: how many.
        scales: weights of the blocks in the search for a basis; None where it is all outputs.
        name: tells the streams of different rounds apart.
    """

    random: int
    fixed: int = 0
    scales: list[float] | None = None
    name: str = ""

    def cotangents(self, loss: Loss) -> int:
        """Cotangents of an example."""
        return (self.random + self.fixed) * sides_of(loss)

    @property
    def cost(self) -> int:
        """Passes through the network, the forward-mode ones that find a basis included."""
        return self.random + self.fixed * (1 if self.scales is None else 2)

    def draw(self, problem: Problem, part: Batch, seen: Trace, seed: int, *, room: int = 0) -> Tensor:
        """The directions z, (m, B, *out), of a part whose forward pass has been `seen`; the basis first.

        A basis of as many as there are outputs is these. Behind them there is `room` for as many more.
        """
        y, scales = seen.y.detach(), self.scales or ()
        generator = stream(seed, f"weight tangents, {self.name}")
        basis = range_basis(problem, part, seen, count=self.fixed, scales=scales, generator=generator)
        shape = (self.random, *y.shape[1:])
        omega = gaussians(seed, f"sketches, {self.name},", part.numbers, shape, room=room).to(y)
        if not len(basis):
            return omega
        flat, drawn = basis.flatten(2), omega[: self.random]  # (r, B, N)
        along = torch.einsum("rbn,qbn->qrb", flat, drawn.flatten(2))
        drawn = drawn - torch.einsum("qrb,rbn->qbn", along, flat).view_as(drawn)
        return torch.cat([basis, drawn, omega[self.random :]])
