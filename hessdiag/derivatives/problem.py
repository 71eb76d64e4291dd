"""What is measured: a model, a batch, a loss, and the blocks concerned."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import few, is_finite, matching, one_line
from hessdiag.data.batch import Batch, Layout, Outputs
from hessdiag.derivatives.losses import Loss, LossFunction, MeanLoss, Reading, resolve_loss
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block
from hessdiag.network.trace import NetworkShape, Trace, first_broken, looked_up_in_common, owners_of, run_dry, trace


@dataclass(frozen=True)
class Problem:
    """A model and its blocks, on a batch, under a loss."""

    model: nn.Module
    batch: Batch
    loss: Loss
    blocks: Sequence[Block]
    shape: NetworkShape  # sizes of the network and its layers
    skipped: tuple[tuple[str, str], ...] = ()  # (name, reason) of parameters that are no blocks
    coupled: bool = False  # whether examples meet in normalisations over the batch; each is measured within it then
    traced: Trace | None = None  # of the whole batch, whose examples are measured within it one after the other
    noted: Mapping[str, Any] = field(default_factory=dict)  # of `Signals`: what checks on a few examples found

    def trace(self, part: Batch, owners: Collection[str] | None = None, *, keep_outputs: bool = False) -> Trace:
        """Run the model forward as `hessdiag.network.trace.trace` does, but once for all examples within one batch.
        Without `owners`, those of blocks that have a structural rule are traced.
        """
        if self.traced is not None and part.within is not None:
            return replace(self.traced, y=self.traced.y[list(part.within)])
        owners = owners_of(block for block in self.blocks if block.structured) if owners is None else owners
        return trace(self.model, part, owners, in_common=looked_up_in_common(self.blocks), keep_outputs=keep_outputs)

    def read_as(self, blocks: Sequence[Block], skipped: Iterable[tuple[str, str]] = ()) -> Problem:
        """The same with blocks that are read in another way; some are `skipped` more, for a reason each."""
        shape = run_dry(self.model, self.batch.narrow(0, 2), blocks).shape
        return replace(self, blocks=blocks, shape=shape, skipped=(*self.skipped, *skipped))

    @property
    def shape_of_whole(self) -> NetworkShape:
        """Sizes where, whatever is asked, all examples are called."""
        return replace(self.shape, element_size=self.shape.element_size * self.batch.size)

    def as_one_example(self) -> Problem:
        """The mean loss of the batch as that of one example, whose outputs are all of the batch's."""
        if self.batch.as_one:
            return self
        shape = replace(self.shape_of_whole, outputs=self.batch.size * self.shape.outputs, returned=0)
        return replace(self, batch=replace(self.batch, as_one=True, size=1), loss=MeanLoss(self.loss), shape=shape)

    def without(self, left: Mapping[str, str]) -> Problem:
        """Without some blocks, which are skipped for a reason each."""
        if not (kept := [block for block in self.blocks if block.name not in left]):
            (name, why), *_ = left.items()
            why += f": {first_broken(self._differentiate, self.model)}" if "NaN" in why else ""
            raise HessdiagError(f"no block can be measured; {name!r}: {why}")
        return self.read_as(kept, left.items()) if left else self

    def _differentiate(self) -> None:
        value = self.loss.of_all(self.batch.call(self.model), self.batch.targets)
        torch.autograd.grad(value, [p for p in self.model.parameters() if p.requires_grad], allow_unused=True)

    def only(self, patterns: str | Sequence[str] | None) -> Problem:
        """With those blocks alone whose names, or whose modules' names, match a pattern such as `"layers.*.fc?"`."""
        kept = matching(patterns, names := [block.name for block in self.blocks])
        return self.without({name: "not asked for" for name in names if name not in kept})


def read_loss(  # noqa: PLR0913, keyword-only options
    model: nn.Module, batch: Batch, loss: str | LossFunction, outputs: Outputs, *, per: str, seed: int,
    class_dim: int | None, matrix: str = "ggn", linear: bool = False,
) -> Loss:  # fmt: skip
    """Call the loss on the outputs of a few examples: the loss as it will be read."""
    check_finite(model, batch, outputs.y)
    y, per = (outputs.y[0], "batch") if batch.as_one else (outputs.y, per)
    layout = batch.output if isinstance(batch.output, Layout) else None
    forms = (outputs.form, batch.form)
    reading = Reading(class_dim, outputs.class_dim, forms, per, layout, batch.as_one, matrix=matrix, linear=linear)
    resolved = resolve_loss(loss, y=y, targets=batch.targets, seed=seed, reading=reading)
    theirs = batch.targets
    if theirs is not None and not batch.as_one:  # a loss of a batch may be written for so many
        y, theirs = (y[torch.arange(len(theirs)) % len(y)], theirs) if resolved.couples else (y, theirs[: len(y)])
    try:
        value = resolved.of_all(y, theirs)
    except RuntimeError as error:  # where all are one example, shapes have not been compared
        what = f"outputs {tuple(y.shape)} and targets {tuple(batch.leaves[-1].shape)} ({one_line(error)})"
        call = f"the loss {resolved.name!r} cannot be called with {what}"
        raise HessdiagError(f"{call}: pass a target for each") from error
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad} if value.requires_grad else {}
    found = torch.autograd.grad(value, [*weights.values()], allow_unused=True) if weights else ()
    resolved.held = tuple(name for name, gradient in zip(weights, found, strict=True) if gradient is not None)
    if resolved.held and not linear:
        message = f"the loss {resolved.name!r} holds weights of the model ({resolved.held[0]!r}), not outputs alone:"
        raise HessdiagError(f"{message} pass it without them, or let forward return it, loss='model' (--loss model)")
    if resolved.held:
        resolved.name += f" (through the outputs alone: it reads {few(resolved.held)}, too)"
    return MeanLoss(resolved) if batch.as_one else resolved


def check_finite(model: nn.Module, batch: Batch, y: Tensor) -> None:
    """Refuse outputs that are no numbers, also those of masked logits: they have no mean."""
    if is_finite(y):
        return
    if any(bool(value.isnan().any()) for value in batch.tensors):
        raise HessdiagError("inputs hold NaN, which the model does not replace: clean the data first")
    what, how = "NaN or infinite outputs", ""
    if is_finite(y[y != -math.inf]):
        what, how = "outputs of -inf", "; mask with a number, not -inf"
    raise HessdiagError(f"the model returned {what}: {first_broken(lambda: batch.run(model), model)}{how}")
