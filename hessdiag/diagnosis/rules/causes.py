"""All rules on a network: causes before effects, and effects of a named cause left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hessdiag.diagnosis.rules import curvature_rules, gradient_rules, nonlinearity_rules, signal_rules, weight_rules
from hessdiag.diagnosis.rules.network_view import Net
from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.report import BlockReport
from hessdiag.results.signals import Signals

# At equal gravity the likelier cause comes first.
ORDER = (
    "HD105", "HD402", "HD208", "HD401", "HD201", "HD203", "HD202", "HD205", "HD204", "HD207", "HD206", "HD106",
    "HD107", "HD109", "HD104", "HD110", "HD112", "HD103", "HD102", "HD101", "HD209", "HD108", "HD111", "HD301", "HD403",
)  # fmt: skip
CAUSES = {
    "HD105", "HD402", "HD201", "HD202", "HD203", "HD204", "HD205", "HD106", "HD206", "HD207", "HD208", "HD109",
}  # fmt: skip
EFFECTS = {"HD101", "HD102", "HD103", "HD104", "HD110", "HD112", "HD401", "HD108", "HD209", "HD111"}
DEPTH = {"HD103", "HD104"}  # themselves the cause of these:
OF_DEPTH = {"HD101", "HD102", "HD110"}
ROOMS = (signal_rules, nonlinearity_rules, weight_rules, curvature_rules, gradient_rules)
RULES = tuple(rule for room in ROOMS for rule in room.RULES)


def find(signals: Signals, blocks: Sequence[BlockReport] = ()) -> tuple[Finding, ...]:
    """Apply every rule, and order what it found, gravest first.

    Args:
        signals: of the network.
        blocks: what was measured of its blocks.
    """
    net = Net(signals, blocks)
    found = [finding for rule in RULES for finding in rule(net)]
    return tuple(sorted(without_effects(found), key=_place))


def _gravity(finding: Finding) -> int:
    return GRAVITY.index(finding.severity)


def _place(finding: Finding) -> tuple[int, int]:
    return _gravity(finding), ORDER.index(finding.rule)


def without_effects(found: Sequence[Finding]) -> list[Finding]:
    """Leave out what a cause already explains, and lend the cause the gravity of its effect."""
    rules = {f.rule for f in found}
    if "HD202" in rules:
        found = [f for f in found if f.rule != "HD206"]
    strong = [f for f in found if f.rule in CAUSES and f.severity != "note"]
    if strong:
        top = min(strong, key=_place)
        grave = min([f for f in found if f.rule in EFFECTS or f in strong], key=_gravity).severity
        return [replace(f, severity=grave) if f is top else f for f in found if f.rule not in EFFECTS]
    if rules & DEPTH:
        effects = [f for f in found if f.rule in OF_DEPTH]
        kept = [f for f in found if f.rule not in OF_DEPTH | {"HD206"}]
        return [_as_grave(f, effects) if f.rule in DEPTH else f for f in kept]
    return list(found)


def _as_grave(finding: Finding, effects: Sequence[Finding]) -> Finding:
    return replace(finding, severity=min([finding, *effects], key=_gravity).severity)
