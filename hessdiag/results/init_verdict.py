"""The verdict on an initialisation: how balanced it is, which layer is to blame, what to do, what would be better."""

from __future__ import annotations

import math

from hessdiag.results.balance import level_of
from hessdiag.results.init_check import InitCheck, SchemeCheck
from hessdiag.results.numbers import short

WORTH_NAMING = 1.5  # how much more balanced another initialisation must be to be recommended


def judge(check: InitCheck) -> tuple[str, str]:
    """Level and sentences. σ² is a *squared* curvature, so that curvatures differ by the root of its spread."""
    checked = check.checked
    interval = checked.spread()
    level = level_of(interval.value)
    names, means = checked.setups.names, checked.means()
    if len(names) < 2:
        return "undecided", f"{check.init}: nothing to compare, the network has {len(names)} weight block."
    if level == "undecided" or math.isinf(interval.value):
        flat = [name for name, value in zip(names, means, strict=True) if value == 0]  # below 0 it is noise
        blocks = ", ".join(flat) or "some block"
        return (
            "unbalanced" if flat else "undecided",
            f"{check.init}: {blocks} has no curvature in any set-up, or an undefined one; there is nothing to scale.",
        )
    room = f" ({short(interval.low)} to {short(interval.high)} over set-ups)" if math.isfinite(interval.low) else ""
    if level == "balanced":
        sentences = [f"{check.init}: balanced, σ² within {short(interval.value)}×{room}."]
    else:
        sentences = [
            f"{check.init}: {level}, σ² spreads over {short(interval.value)}×{room}, curvatures over about"
            f" {short(math.sqrt(interval.value))}×, from {names[int(means.argmin())]} to {names[int(means.argmax())]}.",
            _blame(check),
        ]
    return level, " ".join([*sentences, *_comparison(check), *_outputs(checked)])


def _blame(check: InitCheck) -> str:
    """The block farthest from the others, and what brings it back."""
    fix = check.fixes[0]
    more = fix.excess > 1
    times = fix.excess if more else 1 / fix.excess
    what = (
        f"{fix.block} has {short(times)}× {'more' if more else 'less'} σ² than the others in the median (about"
        f" {short(math.sqrt(times))}× too {'much' if more else 'little'} curvature): multiply its variance by"
        f" {short(fix.variance)} (its standard deviation by {short(math.sqrt(fix.variance))})"
    )
    if fix.layer not in check.checked.layers:  # an embedding, say, does not multiply what it reads
        return f"{what}."
    return f"{what}; to keep the signal as it is, also insert a fixed factor {short(fix.before)} before it."


def _comparison(check: InitCheck) -> list[str]:
    best, mine = check.schemes[0], check.checked
    if len(check.schemes) < 2:
        return []
    place = f"Rank {check.rank} of {len(check.schemes)}"
    if best is mine:
        second = check.schemes[1]
        return [f"{place}; {second.init} comes next with {short(second.spread().value)}×."]
    better = mine.spread().value / best.spread().value
    if better < WORTH_NAMING:
        return [f"{place}, about as balanced as the first, {best.init} ({short(best.spread().value)}×)."]
    return [f"{place}; {best.init} is the most balanced, within {short(best.spread().value)}×."]


def _outputs(checked: SchemeCheck) -> list[str]:
    if not checked.saturates:
        return []
    variance = short(checked.output_variance_mean)
    return [
        f"The outputs' variance is {variance}: for a log-softmax loss bring it into 0.01 to 0.1, with"
        " hessdiag.surgery.normalise_output."
    ]
