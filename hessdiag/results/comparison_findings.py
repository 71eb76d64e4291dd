"""What a comparison says: HD601 weights, HD602 gradients, HD603 curvature differ, HD604 blocks of one network alone.

A warning is a difference beyond what two seeds of one initialisation gave in the healthy networks of the gallery, the
data the same: the thresholds of `hessdiag.results.block_change`. What differs less is one note (HD600), and so is what
belongs to a finding that is gone: it was advised.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from hessdiag.results.block_change import (
    EQUAL,
    MEDIAN_NU_FACTOR,
    MEDIAN_SIGMA_FACTOR,
    NU_FACTOR,
    SIGMA_FACTOR,
    BlockChange,
    away,
    resampled_factor,
)
from hessdiag.results.finding_changes import repaired
from hessdiag.results.findings import Finding, is_as_grave
from hessdiag.results.numbers import short
from hessdiag.suggestions import joined

MAX_GROUPS = 5  # that have a finding of their own, or a place in a sentence
NAMES = {
    "weight_sq": "weights",
    "nu": "weight-gradient ratio ν",
    "avg_sq_singular_value": "σ²",
}
ADVICE = {
    "HD601": "If nothing was meant to change here, restore how these weights were initialised or loaded; what else"
    " differs follows from it.",
    "HD602": "The weights agree, so look at what lies between these blocks and the loss: their layer, its inputs, the"
    " loss and its scale.",
    "HD603": "Weights and gradients agree, so look at what curves the loss here: nonlinearities, outputs, the loss.",
}


def find(
    changes: Sequence[BlockChange],
    medians: Mapping[str, float],
    only_before: Sequence[str],
    only_after: Sequence[str],
    *,
    gone: Sequence[Finding] = (),
    new: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """List what changed, gravest first; nothing where the two networks agree.

    What was changed because of findings that are `gone` is a note, unless something as grave is `new` there.
    """
    groups = _Groups(changes)
    weights = [change for change in changes if change.cause == "weights"]
    mended = repaired(gone, new)
    advised = [change for change in weights if change.name in mended and not _goes_elsewhere(change, gone)]
    grave = [finding.rule for finding in gone if is_as_grave(finding, "warning")]
    found = [
        *_weights(groups, [change for change in weights if change not in advised]),
        *_weights(groups, advised, _as_advised(gone, advised)),
        *_others(groups, changes, _follows(weights, grave)),
    ]
    return (
        *(found or _all_blocks(medians, _follows((), grave)) or _within(changes)),
        *_missing(only_before, only_after),
    )


def _goes_elsewhere(change: BlockChange, gone: Sequence[Finding]) -> bool:
    """Whether weights that notes alone were about became zero, which no rule advises."""
    said = [finding for finding in gone if change.name in repaired([finding])]
    if any(is_as_grave(finding, "warning") for finding in said):
        return False
    return change.ratios["weight_sq"].value == 0


def _as_advised(gone: Sequence[Finding], advised: Sequence[BlockChange]) -> str:
    """Say which findings weights were changed for; empty where none were."""
    names = {change.name for change in advised}
    rules = dict.fromkeys(finding.rule for finding in gone if names & repaired([finding]))
    verb = "is" if len(rules) == 1 else "are"
    return f"{joined(rules)} {verb} gone here: nothing is to be done." if rules else ""


def _follows(weights: Sequence[BlockChange], grave: Sequence[str]) -> str:
    """Say what else may explain gradients and curvatures that differ; empty where nothing does."""
    if weights:
        return "This may follow from the weights that differ: look at those first."
    rules = dict.fromkeys(grave)
    return f"This may follow from the repair of {joined(rules)}, gone now." if rules else ""


class _Groups:
    """Blocks by role: those whose names differ in numbers alone."""

    def __init__(self, changes: Iterable[BlockChange]) -> None:
        self.sizes = Counter(_role(change.name) for change in changes)

    def split(self, changes: Iterable[BlockChange]) -> list[list[BlockChange]]:
        """Members of each role that changed in one direction, in the order of their first ones."""
        groups: dict[tuple[str, bool], list[BlockChange]] = defaultdict(list)
        for change in changes:
            groups[_role(change.name), _ratio_by_cause(change) > 1].append(change)
        return list(groups.values())

    def label(self, group: Sequence[BlockChange]) -> str:
        """Say which blocks these are, such as `h.*.attn.c_proj.weight of all 12 blocks`."""
        role = _role(group[0].name)
        of = self.sizes[role]
        if of == 1:
            return group[0].name
        if len(group) == 1:
            return f"{group[0].name} (alone of {of} such blocks)"
        return f"{role} of all {of} blocks" if len(group) == of else f"{role} of {len(group)} of {of} blocks"


def _role(name: str) -> str:
    return re.sub(r"\d+", "*", name)


def _ratio_by_cause(change: BlockChange) -> float:
    if change.cause == "weights":
        return change.ratios["weight_sq"].value
    return change.ratios["nu" if change.cause == "gradients" else "avg_sq_singular_value"].relative


def _weights(groups: _Groups, changes: Sequence[BlockChange], explained: str = "") -> list[Finding]:
    """HD601, one for each role: the largest of them alone, the rest together. Notes where they are `explained`."""
    split = groups.split(changes)
    named, rest = (split, []) if len(split) <= MAX_GROUPS + 1 else (split[:MAX_GROUPS], split[MAX_GROUPS:])
    found = [_finding("HD601", group, f"{groups.label(group)}: {_differ(group)}.", explained) for group in named]
    if rest:
        others = [change for group in rest for change in group]
        labels = ", ".join(groups.label(group) for group in rest[:MAX_GROUPS])
        more = f" and {len(rest) - MAX_GROUPS} more kinds" if len(rest) > MAX_GROUPS else ""
        message = f"{len(others)} more blocks have other weights, less so: {labels}{more}."
        found.append(_finding("HD601", others, message, explained))
    return found


def _others(groups: _Groups, changes: Sequence[BlockChange], explained: str) -> list[Finding]:
    """HD602 and HD603: blocks with the same weights, that stand out from the change of all blocks.

    Notes where they are `explained` by the weights of other blocks, or by what is gone.
    """
    found = []
    for rule, cause, key in (("HD602", "gradients", "nu"), ("HD603", "curvature", "avg_sq_singular_value")):
        members = [change for change in changes if change.cause == cause]
        split = groups.split(members)
        if members:
            clauses = [
                f"{groups.label(group)} {_times([change.ratios[key].relative for change in group])}"
                for group in split[:MAX_GROUPS]
            ]
            more = f"; and {len(split) - MAX_GROUPS} more kinds of blocks" if len(split) > MAX_GROUPS else ""
            message = (
                f"Where the weights agree, {NAMES[key]} differs from before, the change of the median block taken out:"
                f" {'; '.join(clauses)}{more}."
            )
            found.append(_finding(rule, members, message, explained))
    return found


def _finding(rule: str, group: Sequence[BlockChange], message: str, explained: str) -> Finding:
    first = group[0]
    thresholds = {"HD601": resampled_factor(first.numel), "HD602": NU_FACTOR, "HD603": SIGMA_FACTOR}
    return Finding(
        rule=rule,
        severity="note" if explained else "warning",
        blocks=tuple(change.name for change in group),
        message=message,
        advice=explained or ADVICE[rule],
        value=away(_ratio_by_cause(first)),
        threshold=thresholds[rule],
    )


def _differ(group: Sequence[BlockChange]) -> str:
    """Say how the weights of a group differ from before, and what came with it."""
    sizes = [math.sqrt(change.ratios["weight_sq"].value) for change in group]
    clauses = [f"weights {_times(sizes, ' than before')}"]
    for key in ("nu", "avg_sq_singular_value"):
        ratios = [change.ratios[key] for change in group]
        if all(ratio.decided for ratio in ratios):
            clauses.append(f"{NAMES[key]} {_times([ratio.value for ratio in ratios])}")
    return ", ".join(clauses)


def _times(ratios: Sequence[float], than: str = "") -> str:
    """Say by what factor numbers changed.

    >>> _times([4.9, 4.8]), _times([0.25, 0.5], " than before"), _times([math.inf], " than before")
    ('4.85× larger', '2.00 to 4.00× smaller than before', 'no longer zero')
    """
    low, high = min(ratios), max(ratios)
    if low == high == math.inf:
        return "no longer zero"
    if low == high == 0:
        return "now zero"
    if low < 1 < high or low == 0 or high == math.inf:
        return f"{short(low)} to {short(high)}× as large" + than.replace("than", "as")
    word = "larger" if low >= 1 else "smaller"
    ends = sorted(away(ratio) for ratio in (low, high))
    size = short(math.sqrt(ends[0] * ends[1])) if ends[1] < 1.1 * ends[0] else f"{short(ends[0])} to {short(ends[1])}"
    return f"{size}× {word}{than}"


def _all_blocks(medians: Mapping[str, float], explained: str) -> list[Finding]:
    """HD602 and HD603 where all blocks change alike, so that none stands out."""
    found = []
    for rule, key, most in (
        ("HD602", "nu", MEDIAN_NU_FACTOR),
        ("HD603", "avg_sq_singular_value", MEDIAN_SIGMA_FACTOR),
    ):
        factor = away(medians[key])
        if factor > most:
            change = _times([medians[key]], " than before")
            message = f"All blocks alike: {NAMES[key]} of the median block is {change}, the weights agree."
            found.append(
                Finding(
                    rule=rule,
                    severity="note" if explained else "warning",
                    blocks=(),
                    message=message,
                    advice=explained
                    or "Look at what all blocks share: the inputs, the outputs, the loss and its scale.",
                    value=factor,
                    threshold=most,
                )
            )
    return found


def _missing(only_before: Sequence[str], only_after: Sequence[str]) -> list[Finding]:
    """HD604."""
    parts = [
        f"{len(names)} {'block' if len(names) == 1 else 'blocks'} {when} ({', '.join(names[:MAX_GROUPS])}"
        f"{', …' if len(names) > MAX_GROUPS else ''})"
        for names, when in ((only_before, "before alone"), (only_after, "after alone"))
        if names
    ]
    if not parts:
        return []
    return [
        Finding(
            rule="HD604",
            severity="note",
            blocks=(*only_before, *only_after),
            message=f"Not compared, for want of a block of the same name and shape: {' and '.join(parts)}.",
            advice="Rename what was renamed, to compare it too.",
            value=float(len(only_before) + len(only_after)),
            threshold=0.0,
        )
    ]


def _within(changes: Sequence[BlockChange]) -> list[Finding]:
    """HD600: what differs is less than two seeds of one initialisation differ by."""
    keys = ("weight_sq", "nu", "avg_sq_singular_value")
    differing = [change for change in changes if any(change.ratios[key].decided for key in keys)]
    if not differing:
        return []
    largest = {key: max(away(change.ratios[key].value) for change in differing) for key in keys}
    factors = ", ".join(f"{name} {short(largest[key])}×" for key, name in (("weight_sq", "E[W²]"), *_LAST_TWO))
    return [
        Finding(
            rule="HD600",
            severity="note",
            blocks=tuple(change.name for change in differing),
            message=f"{len(differing)} of {len(changes)} blocks differ, by no more than two seeds of one initialisation"
            f" do: at most {factors}.",
            advice="Nothing is to be done.",
            value=max(largest.values()),
            threshold=EQUAL,
        )
    ]


_LAST_TWO = tuple((key, NAMES[key]) for key in ("nu", "avg_sq_singular_value"))
