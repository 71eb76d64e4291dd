"""HD3xx: curvature. Only what a distribution over healthy networks, or an exact zero, can defend.

There is no rule on how far σ² is apart, or the curvature of relative changes P σ² E[W²]²: both span many decades in
networks that train well.
"""

from __future__ import annotations

from collections.abc import Iterator

from hessdiag.diagnosis.rules.gradient_rules import explained
from hessdiag.diagnosis.rules.network_view import Net
from hessdiag.results.findings import Finding


def no_curvature(net: Net) -> Iterator[Finding]:
    """HD301: a weight along which the outputs do not curve at all, although a gradient reaches it."""
    weights = [block for block in net.blocks.values() if block.kind == "weight" and block.name in net.named]
    flat = [b.name for b in weights if b.avg_sq_singular_value == 0 and b.stderr == 0]
    if len(flat) == len(weights):  # the loss has none
        return
    found = tuple(name for name in flat if net.named[name].gradient == "some" and not explained(net, net.named[name]))
    if found:
        yield Finding(
            rule="HD301",
            severity="note",
            blocks=found,
            message=f"{net.listed(found)} {'has' if len(found) == 1 else 'have'} no curvature at all on this"
            " batch (σ² is"
            " exactly 0), although a gradient is there.",
            advice="Check that it is meant: the loss is linear in what this weight changes.",
            value=0.0,
            threshold=0.0,
        )


RULES = (no_curvature,)
