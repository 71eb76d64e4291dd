"""A dry run: the blocks of a model, what is left out and why, and what a measurement would cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from hessdiag.arguments import check_model
from hessdiag.curvature import batch_sketch, probe, sketch
from hessdiag.curvature.measurement import Plan, Settings, within_batch
from hessdiag.data.batch import Inputs, Layout
from hessdiag.data.stream import reader
from hessdiag.derivatives.losses import LossFunction
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import NetworkShape, try_model
from hessdiag.results.records import Record
from hessdiag.results.text_table import Detail, Printed, TextTable, grouped, plain_text, size

PRODUCT_COST = 4.0  # gradients: forward, reverse, and a tangent of each
COLUMNS = ("block", "shape", "entries", "fan-in", "fan-out", "sites", "kind", "layer")


@dataclass(frozen=True, repr=False)
class Description(Printed, Record):
    """What `diagnose` would measure. Its `repr` is a table.

    Attributes:
        blocks: the blocks found, in the order of the model's modules.
        skipped: `(name, reason)` of the parameters that are none.
        plan: the algorithm that would run, and why.
        outputs, batch_size: N and B.
        gradients: estimated cost in gradients of the same batch, from multiply-adds alone; for probing, of the pilot.
        sites: output positions of each block's layer, 0 where it was not called.
    """

    schema: ClassVar[str] = "hessdiag.description/1"

    blocks: tuple[Block, ...]
    skipped: tuple[tuple[str, str], ...]
    plan: Plan
    outputs: int
    batch_size: int
    gradients: float
    sites: tuple[int, ...]

    def text(self, detail: Detail = "table") -> str:
        """Return the blocks, the method and its estimated cost, and what is left out."""
        total = sum(block.numel for block in self.blocks)
        pairs = zip(self.blocks, self.sites, strict=True)
        numbers = ([f"{n:,}" for n in (b.numel, b.fan_in, b.fan_out, sites)] for b, sites in pairs)
        rows = [[b.name, size(b.shape), *each, b.kind, b.layer] for b, each in zip(self.blocks, numbers, strict=True)]
        parts: list[str | TextTable] = [
            f"{len(self.blocks)} blocks, {total:,} parameters, {self.outputs} outputs, batch {self.batch_size}",
            f"method {self.plan.method} ({self.plan.reason}), about {self.gradients:,.0f} gradients of the batch",
            "", TextTable(COLUMNS, rows, left=2), *([""] if self.skipped else []),
        ]  # fmt: skip
        parts += grouped("not measured:", self.skipped, whole=detail == "whole")
        return plain_text(parts, whole=detail == "whole")


def describe(  # noqa: PLR0913, keyword-only options
    model: nn.Module, inputs: Inputs, *, loss: str | LossFunction | None = None, matrix: str = "ggn",
    per: str = "example", mode: str = "train", method: str = "auto", output: str | int | None = None,
) -> Description:  # fmt: skip
    """List the blocks of a model and estimate the cost of `hessdiag.diagnose` with the same arguments.

    Two examples are run forward; nothing is measured and the model is left as it was.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    check_model(model)
    batch = replace(reader(model, 0, "batch", None)(inputs, None), output=output)
    blocks, skipped = find_blocks(model)
    state = preserve_state(model, seed=0, mode=mode, call=lambda: batch.narrow(0, 2).run(model))
    with state, fixed_statistics() as taken:
        try:
            shape = try_model(model, batch, blocks).shape
        except HessdiagError:
            if output is not None or not callable(loss):  # else this may be a function of several tensors
                raise
            layout = Layout.of(batch.narrow(0, 2).run(model), size=min(2, batch.size))
            shape = try_model(model, replace(batch, output=layout), blocks).shape
    coupled = any(taken)
    sites = tuple(max((shape.layers[o].sites for o in b.owners if o in shape.layers), default=0) for b in blocks)
    settings, times, N = Settings(method=method, matrix=matrix, per=per, mode=mode), 1, shape.outputs
    if coupled and per == "example":  # each of some is measured within all of the batch
        settings, times = within_batch(settings, examples=batch.size, outputs=shape.outputs)
    elif coupled:  # all of the batch is one example
        settings, B = replace(settings, per="example"), batch.size
        layers = {o: replace(s, sites=B * s.sites, forward_macs=B * s.forward_macs) for o, s in shape.layers.items()}
        shape = replace(shape, outputs=B * N, layers=layers)
    how = settings.plan(outputs=shape.outputs, batch_size=batch.size)
    gradients = times * cost(shape, blocks, how, batch.size // times, settings.per)
    return Description(blocks, skipped, how, N, batch.size, gradients, sites)


def cost(shape: NetworkShape, blocks: Sequence[Block], how: Plan, batch_size: int, per: str) -> float:
    """Multiply-adds of a measurement over those of one gradient (three forward passes)."""
    forward = sum(layer.forward_macs for layer in shape.layers.values())
    if not how.in_output_space:
        count = probe.probes_for(batch_size if per == "example" else 1)
        return PRODUCT_COST * sum(b.numel if how.method == "exact" else min(count, b.numel) for b in blocks)
    N = shape.outputs
    if how.method == "sketch" and per == "example":
        N = sketch.directions_for(batch_size) + 2 * min(sketch.BASIS, shape.outputs)
    elif how.method == "sketch":
        N = batch_sketch.directions_for(batch_size)
    gram = 0
    for block in (block for block in blocks if block.kind == "weight"):
        for layer in (shape.layers[owner] for owner in block.owners if owner in shape.layers):
            T, n, d = layer.sites, block.fan_out, block.numel // block.fan_out
            few = min(T, d)  # coordinates of what it reads
            gram += T * T * d * (few < d) + N * n * few * T + N * N * n * few
    return 1 / 3 + N / 3 + gram / max(3 * forward, 1)
