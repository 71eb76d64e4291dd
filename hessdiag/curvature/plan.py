"""Which algorithm measures the curvature, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hessdiag.errors import HessdiagError

MATRICES = ("ggn", "hessian")
VIEWS = ("example", "batch")
METHODS = ("auto", "exact", "sketch", "probe")

EXACT_OUTPUTS = 128  # per example: one cotangent an output
EXACT_BATCH_OUTPUTS = 4096  # per batch: Gram matrices of this side


@dataclass(frozen=True)
class Plan:
    """The algorithm and the reason for it.

    Attributes:
        method: `"exact"`, `"sketch"` or `"probe"`, as reported.
        in_output_space: Gram matrices of output Jacobians, else products in weight space.
        reason: one clause for the report.
    """

    method: Literal["exact", "sketch", "probe"]
    in_output_space: bool
    reason: str


def plan(*, method: str, matrix: str, per: str, outputs: int, batch_size: int) -> Plan:
    """Pick the algorithm for a network with `outputs` outputs per example.

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
            raise HessdiagError("method 'sketch' is for the Gauss-Newton matrix, not matrix 'hessian': use 'probe'")
        return Plan("sketch", True, "asked for")
    if matrix == "hessian":
        if method == "exact":
            return Plan("exact", False, "asked for: products with every unit vector")
        return Plan("probe", False, "Hessian products in weight space")
    side, limit = (outputs, EXACT_OUTPUTS) if per == "example" else (outputs * batch_size, EXACT_BATCH_OUTPUTS)
    what = f"{outputs} outputs" if per == "example" else f"{batch_size} examples x {outputs} outputs"
    if method == "exact":
        return Plan("exact", True, "asked for: Gram matrices in output space")
    if side <= limit:
        return Plan("exact", True, f"{what} <= {limit}: Gram matrices in output space")
    if per == "example":
        return Plan("sketch", True, f"{what} > {limit}: sketches in output space")
    return Plan("probe", False, f"{what} > {limit}: products in weight space")


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise HessdiagError(f"{option} {value!r} is not known: use one of {', '.join(choices)}")
