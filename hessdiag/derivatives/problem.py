"""What is measured: a model, a batch, a loss, and the blocks concerned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss
from hessdiag.network.blocks import Block


@dataclass(frozen=True)
class Problem:
    """A model and its blocks, on a batch, under a loss; `skipped` has `(name, reason)` of parameters that are none."""

    model: nn.Module
    batch: Batch
    loss: Loss
    blocks: Sequence[Block]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def weights(self) -> list[Block]:
        """The weight blocks: those of the heatmap."""
        return [block for block in self.blocks if block.kind == "weight"]
