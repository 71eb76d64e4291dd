"""A description of what would be measured as text."""

from __future__ import annotations

from hessdiag.diagnosis.describe import Description
from hessdiag.tables.text_table import fit_names, listed, make_table, plain_text, size

COLUMNS = ("block", "kind", "layer", "shape", "entries", "fan-in", "fan-out", "sites")
MAX_NAME = 36


def render(description: Description) -> str:
    """Show the blocks, the method and its estimated cost, and what is left out."""
    total = sum(block.numel for block in description.blocks)
    return plain_text(
        [
            make_table(COLUMNS, _rows(description), left=4),
            "",
            f"{len(description.blocks)} blocks, {total:,} parameters, {description.outputs} outputs,"
            f" batch {description.batch_size}",
            f"method {description.plan.method} ({description.plan.reason}),"
            f" about {description.gradients:.0f} gradients of the batch",
            *listed("not measured:", description.skipped),
        ]
    )


def _rows(description: Description) -> list[list[str]]:
    names = fit_names([block.name for block in description.blocks], MAX_NAME)
    return [
        [name, block.kind, block.layer, size(block.shape)]
        + [f"{number:,}" for number in (block.numel, block.fan_in, block.fan_out, sites)]
        for name, block, sites in zip(names, description.blocks, description.sites, strict=True)
    ]
