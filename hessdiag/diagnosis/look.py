"""Signals and findings beside a measurement: whatever goes wrong here is said, and costs the measurement nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss
from hessdiag.diagnosis.network_signals import network_signals
from hessdiag.diagnosis.rules import find
from hessdiag.results.findings import Finding
from hessdiag.results.report import BlockReport
from hessdiag.results.signals import Signals


@dataclass(frozen=True)
class Look:
    """What was seen of a network, or why nothing was."""

    signals: Signals | None
    reason: str = ""

    def findings(self, blocks: Sequence[BlockReport]) -> tuple[Finding, ...]:
        """Apply the rules; none to nothing."""
        return find(self.signals, blocks) if self.signals is not None else ()


NOT_ASKED = Look(None, "they were not asked for")


def look_at(
    model: nn.Module, batch: Batch, loss: Loss, *, chunk: int, gradients: Mapping[str, Tensor | None] | None = None
) -> Look:
    """Measure the signals of a model that may do anything in its forward pass.

    Args:
        model, batch, loss, chunk, gradients: see `network_signals`.
    """
    try:
        return Look(network_signals(model, batch, loss, chunk=chunk, gradients=gradients))
    except Exception as error:  # user code; the measurement itself has its own, exact refusals
        return Look(None, " ".join(f"{type(error).__name__}: {error}".split())[:200])
