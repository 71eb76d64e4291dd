"""A copy of a model on which scales are tried: which weights can be scaled so that the outputs stay."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.network.preserve import preserve_state
from hessdiag.surgery import rescale_weight

TRIED = 4  # examples on which a factor is tried
TRIAL_FACTOR = 2.0  # exact in binary: the outputs stay the same to the last digit
MAX_CHANGE = 1e-3  # of the outputs, relative
BYPASSED = "the model reads it past the layer that holds it"


@dataclass(frozen=True)
class Trial:
    """A copy of the model to change, and what it gave for a few examples before."""

    model: nn.Module
    batch: Batch
    seed: int
    y: Tensor

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, seed: int) -> Trial:
        """Copy a model, and call the copy with the first examples of a batch."""
        copied, batch = copy_of(model), batch.narrow(0, TRIED)
        return cls(copied, batch, seed, outputs_of(copied, batch, seed))

    def change(self) -> float:
        """How far the outputs are from what they were, relative to their size."""
        size = float(self.y.norm())
        apart = float((outputs_of(self.model, self.batch, self.seed) - self.y).norm())
        return apart / size if size > 0 else apart

    def refusals(self, names: Iterable[str]) -> dict[str, str]:
        """Which weights cannot be scaled with a multiplier that undoes it, and why; all are left as they are."""
        tried = {name: _scaled_or_refused(self.model, name) for name in names}
        found = {name: reason for name, reason in tried.items() if reason}
        scaled = [name for name in tried if name not in found]
        seen = self.change()
        for name in scaled:
            rescale_weight(self.model, name, 1 / TRIAL_FACTOR)
        if seen <= MAX_CHANGE:
            return found
        return found | {name: BYPASSED for name in scaled if not self.undone(name)}

    def undone(self, name: str) -> bool:
        """Whether the outputs stay when one weight is scaled."""
        rescale_weight(self.model, name, TRIAL_FACTOR)
        seen = self.change()
        rescale_weight(self.model, name, 1 / TRIAL_FACTOR)
        return seen <= MAX_CHANGE


def _scaled_or_refused(model: nn.Module, name: str) -> str:
    """Scale a weight for a trial; why that is refused, or nothing."""
    try:
        rescale_weight(model, name, TRIAL_FACTOR)
    except HessdiagError as error:
        return str(error).rpartition(":")[0]
    return ""


def outputs_of(model: nn.Module, batch: Batch, seed: int) -> Tensor:
    """Call a model; the same random numbers each time."""
    with preserve_state(model, seed=seed), torch.no_grad():
        return batch.call(model).detach().double()


def copy_of(model: nn.Module) -> nn.Module:
    """Copy a model, or say why that cannot be done."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # of modules that hold what cannot be copied
        what = " ".join(f"{type(error).__name__}: {error}".split())[:150]
        raise HessdiagError(
            f"{type(model).__name__} cannot be copied to try a change on ({what}): pass a network as it is built, "
            "before any forward pass"
        ) from error
