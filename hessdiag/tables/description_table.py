"""A description of what would be measured as text."""

from __future__ import annotations

from hessdiag.diagnosis.describe import Description
from hessdiag.tables.text_table import Part, grouped, make_table, plain_text, size

COLUMNS = ("block", "kind", "layer", "shape", "entries", "fan-in", "fan-out", "sites")
EXPENDABLE = ("layer", "kind", "fan-out", "fan-in", "sites", "shape")


def render(description: Description) -> str:
    """Show the blocks, the method and its estimated cost, and what is left out."""
    return plain_text(_parts(description))


def render_whole(description: Description) -> str:
    """The same with all columns and names in full, and everything that is left out by name."""
    return plain_text(_parts(description, whole=True), whole=True)


def _parts(description: Description, *, whole: bool = False) -> list[Part]:
    total = sum(block.numel for block in description.blocks)
    return [
        f"{len(description.blocks)} blocks, {total:,} parameters, {description.outputs} outputs,"
        f" batch {description.batch_size}",
        f"method {description.plan.method} ({description.plan.reason}),"
        f" about {description.gradients:,.0f} gradients of the batch",
        "",
        make_table(COLUMNS, _rows(description), left=4, expendable=EXPENDABLE),
        *([""] if description.skipped else []),
        *grouped("not measured:", description.skipped, whole=whole),
    ]


def _rows(description: Description) -> list[list[str]]:
    return [
        [block.name, block.kind, block.layer, size(block.shape)]
        + [f"{number:,}" for number in (block.numel, block.fan_in, block.fan_out, sites)]
        for block, sites in zip(description.blocks, description.sites, strict=True)
    ]
