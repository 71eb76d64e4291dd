"""Which algorithm measures the curvature, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hessdiag.curvature.batch_cost import BatchCost
from hessdiag.errors import HessdiagError

MATRICES = ("ggn", "hessian")
VIEWS = ("example", "batch")
METHODS = ("auto", "exact", "sketch", "probe")

EXACT_OUTPUTS = 128  # per example: one cotangent an output
SMALL_BATCH_OUTPUTS = 1024  # per batch: Gram matrices of this side take no time to speak of
EXACT_BATCH_OUTPUTS = 4096  # the same where nothing is known of the costs


@dataclass(frozen=True)
class Plan:
    """The algorithm and the reason for it.

    Attributes:
        method: `"exact"`, `"sketch"` or `"probe"`, as reported.
        in_output_space: Gram matrices of output Jacobians, else products in weight space.
        reason: one clause for the report.
        gradients: estimated cost in gradients of the same batch, where algorithms were compared by it.
    """

    method: Literal["exact", "sketch", "probe"]
    in_output_space: bool
    reason: str
    gradients: float | None = None


def plan(*, method: str, matrix: str, per: str, outputs: int, batch_size: int, cost: BatchCost | None = None) -> Plan:
    """Pick the algorithm for a network with `outputs` outputs per example; `cost` is of the batch view.

    Raises:
        HessdiagError: an option is not one of its values.
    """
    check_choice("method", method, METHODS)
    check_choice("matrix", matrix, MATRICES)
    check_choice("per", per, VIEWS)
    if method == "probe":
        return Plan("probe", False, "asked for")
    if method == "sketch":
        if matrix == "hessian":
            raise HessdiagError(
                "method 'sketch' is for the Gauss-Newton matrix, not matrix 'hessian': use method 'probe'"
            )
        return Plan("sketch", True, "asked for")
    if matrix == "hessian":
        if method == "exact":
            return Plan("exact", False, "asked for: products with every unit vector")
        return Plan("probe", False, "Hessian products in weight space")
    if method == "exact":
        return Plan("exact", True, "asked for: Gram matrices in output space", cost.exact if cost else None)
    if per == "batch":
        return _cheapest(outputs, batch_size, cost)
    if outputs <= EXACT_OUTPUTS:
        return Plan("exact", True, f"{outputs} outputs <= {EXACT_OUTPUTS}: Gram matrices in output space")
    return Plan("sketch", True, f"{outputs} outputs > {EXACT_OUTPUTS}: sketches in output space")


def _cheapest(outputs: int, batch_size: int, cost: BatchCost | None) -> Plan:
    """The algorithm for a Gauss-Newton matrix of the batch's mean loss that is estimated to cost least."""
    side, what = outputs * batch_size, f"{batch_size} examples x {outputs} outputs"
    limit = SMALL_BATCH_OUTPUTS if cost else EXACT_BATCH_OUTPUTS
    if side <= limit and (cost is None or math.isfinite(cost.exact)):
        return Plan("exact", True, f"{what} <= {limit}: Gram matrices in output space", cost.exact if cost else None)
    if cost is None:
        return Plan("sketch", True, f"{what} > {limit}: sketches of the whole batch")
    least = min(cost.exact, cost.sketch, cost.probe)
    names = ("Gram matrices", "sketches of the whole batch", "products in weight space")
    each = zip(names, (cost.exact, cost.sketch, cost.probe), strict=True)
    told = f"{what}, in gradients: " + ", ".join(f"{name} {_told(gradients)}" for name, gradients in each)
    if cost.exact == least:
        return Plan("exact", True, told, least)
    if cost.sketch == least:
        return Plan("sketch", True, told, least)
    return Plan("probe", False, told, least)


def _told(gradients: float) -> str:
    return f"about {gradients:.0f}" if math.isfinite(gradients) else "too many for the memory"


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise HessdiagError(f"{option} {value!r} is not known: use one of {', '.join(choices)}")
