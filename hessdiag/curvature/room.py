"""How many examples and cotangents fit into memory at once."""

from __future__ import annotations

from dataclasses import dataclass

from hessdiag.execution.memory import Memory
from hessdiag.network.shapes import SENT_AT_ONCE, NetworkShape


@dataclass(frozen=True)
class Room:
    """What there is of it for a network.

    Attributes:
        shape: of the network.
        memory: that may be taken.
        drawn: whether gradients in the outputs are `hessdiag.derivatives.drawn_classes`.
    """

    shape: NetworkShape
    memory: Memory
    drawn: bool = False

    def examples(self, cotangents: int) -> int:
        """Examples that are measured at once when so many cotangents of each are sent back."""
        return self.shape.chunk(cotangents, memory=self.memory.chunk)

    @property
    def together(self) -> int:
        """Cotangents of one example that can be sent back in one pass."""
        return self.shape.most_cotangents(self.memory.total)

    @property
    def most(self) -> int:
        """Cotangents of one example that can be sent back, if need be in several passes."""
        return max(self.together, self.shape.most_in_pieces(self.memory.total, drawn=self.drawn))

    def at_once(self, cotangents: int) -> int | None:
        """How many are sent back together; None for all."""
        if cotangents <= self.together and not self.shape.pays_in_pieces(cotangents):
            return None
        return SENT_AT_ONCE
