"""What is out of balance by design: one sentence, and the knob that moves it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import mean

from hessdiag.calculus.propagation import Propagation
from hessdiag.results.numbers import short
from hessdiag.results.prediction import BlockPrediction

EVEN = 10.0  # roles whose γ are closer than this are called alike


def imbalance(blocks: Sequence[BlockPrediction], results: Mapping[str, str], found: Propagation) -> str:
    """Say between which roles γ differs most, and what moves it; a role is a weight's name without its numbers.

    Args:
        blocks: with their predicted γ.
        results: by block, the result of the operation that applies it.
        found: the sweep.
    """
    roles: dict[str, list[BlockPrediction]] = {}
    for block in blocks:
        if block.kind == "weight" and math.isfinite(block.gamma) and block.gamma > 0:
            roles.setdefault(re.sub(r"\d+", "*", block.name), []).append(block)
    sizes = {role: math.exp(mean(math.log(block.gamma) for block in each)) for role, each in roles.items()}
    if len(sizes) < 2:
        return ""
    low, high = min(sizes, key=lambda role: sizes[role]), max(sizes, key=lambda role: sizes[role])
    ratio = sizes[high] / sizes[low]
    if ratio < EVEN:
        return f"by design: γ is alike in all kinds of layers, within {short(ratio)}×"
    sentence = f"by design: γ of {high} is {short(ratio)}× that of {low}"
    scored = _before_scores(found)
    extremes = {role: all(results.get(block.name) in scored for block in roles[role]) for role in (low, high)}
    if any(extremes.values()):
        role = low if extremes[low] else high
        return (
            f"{sentence}; γ of {role} goes with the square of the attention scale,"
            " and with the mean square of what its outputs are multiplied with over their own"
        )
    return f"{sentence}; γ of a layer goes with 1 / E[W²] where a sum or a normalisation follows: set it there"


def _before_scores(found: Propagation) -> frozenset[str]:
    """The results that reach a softmax as queries or keys without a weight layer between, and not as values."""
    scored: set[str] = set()
    valued: set[str] = set()
    for _, step in found.steps:
        if step.attention:
            query, key, value = (found.roots.get(ref.name, frozenset()) for ref, _ in step.back)
            scored |= query | key
            valued |= value
    return frozenset(scored - valued)
