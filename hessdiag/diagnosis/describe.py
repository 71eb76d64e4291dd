"""A dry run: the blocks of a model, what is left out and why, and what a measurement would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from torch import nn

from hessdiag.curvature.plan import Plan, plan
from hessdiag.data.batch import Batch, Inputs
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.preserve import unharmed
from hessdiag.network.shapes import NetworkShape, measure_shapes
from hessdiag.tables.report_table import plain_text

PRODUCT_COST = 4.0  # gradients: forward, reverse, and a tangent of each


@dataclass(frozen=True, repr=False)
class Description:
    """What `diagnose` would measure. Its `repr` is a table.

    Attributes:
        blocks: the blocks found, in the order of the model's modules.
        skipped: `(name, reason)` of the parameters that are none.
        plan: the algorithm that would run, and why.
        outputs, batch_size: N and B.
        gradients: estimated cost in multiples of one gradient of the same batch, from multiply-adds alone; for probing,
            of the pilot.
        sites: output positions of each block's layer, 0 where it was not called.
    """

    blocks: tuple[Block, ...]
    skipped: tuple[tuple[str, str], ...]
    plan: Plan
    outputs: int
    batch_size: int
    gradients: float
    sites: tuple[int, ...]

    def __repr__(self) -> str:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
        table.add_column("block", max_width=36, overflow="ellipsis", no_wrap=True)
        for title in ("kind", "layer", "shape"):
            table.add_column(title, no_wrap=True)
        for title in ("entries", "fan-in", "fan-out", "sites"):
            table.add_column(title, justify="right", no_wrap=True)
        for block, sites in zip(self.blocks, self.sites, strict=True):
            numbers = (block.numel, block.fan_in, block.fan_out, sites)
            shape = "×".join(map(str, block.shape)) or "1"
            table.add_row(block.name, block.kind, block.layer, shape, *(f"{n:,}" for n in numbers))
        total = sum(block.numel for block in self.blocks)
        lines = [
            "",
            f"{len(self.blocks)} blocks, {total:,} parameters, {self.outputs} outputs, batch {self.batch_size}",
        ]
        lines.append(
            f"method {self.plan.method} ({self.plan.reason}), about {self.gradients:.0f} gradients of the batch"
        )
        if self.skipped:
            lines += ["not measured:", *(f"  {name}: {reason}" for name, reason in self.skipped)]
        return plain_text([table, *lines])


def describe(
    model: nn.Module, inputs: Inputs, *, matrix: str = "ggn", per: str = "example", method: str = "auto"
) -> Description:
    """List the blocks of a model and estimate the cost of `hessdiag.diagnose` with the same arguments.

    Two examples are run forward; nothing is measured and the model is left as it was.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    batch = Batch.of(inputs, None)
    blocks, skipped = find_blocks(model)
    with unharmed(model, seed=0):
        shape = measure_shapes(model, batch, blocks)
    how = plan(method=method, matrix=matrix, per=per, outputs=shape.outputs, batch_size=batch.size)
    sites = tuple(max((shape.layers[o].sites for o in b.owners if o in shape.layers), default=0) for b in blocks)
    return Description(blocks, skipped, how, shape.outputs, batch.size, cost(shape, blocks, how, batch.size), sites)


def cost(shape: NetworkShape, blocks: Sequence[Block], how: Plan, batch_size: int) -> float:
    """Multiply-adds of a measurement over those of one gradient (three forward passes)."""
    forward = sum(layer.forward_macs for layer in shape.layers.values())
    if not how.in_output_space:
        columns = sum(block.numel if how.method == "exact" else max(2, -(-64 // batch_size)) for block in blocks)
        return PRODUCT_COST * columns
    N = shape.outputs
    gram = 0
    for block in blocks:
        for layer in (shape.layers[owner] for owner in block.owners if owner in shape.layers):
            if block.kind == "weight":
                T, n, d = layer.sites, block.fan_out, block.numel // block.fan_out
                gram += min((N * T) ** 2 * n + T * T * d, N * block.numel * T + N * N * block.numel)
    return 1 / 3 + N / 3 + gram / max(3 * forward, 1)
