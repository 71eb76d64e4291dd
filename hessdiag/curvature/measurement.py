"""What to measure, by which algorithm, and the measurement itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hessdiag.arguments import check_choice, check_number, check_whole
from hessdiag.curvature.batch_sketch import sketch_per_batch
from hessdiag.curvature.exact import exact_per_batch, exact_per_example
from hessdiag.curvature.norms import Curvature, mean_of_some, rounding_of, unmeasured
from hessdiag.curvature.probe import probe
from hessdiag.curvature.sketch import drawn_by_size, sketch_per_example
from hessdiag.data.memory import MemoryBudget
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.network.torch_state import statistics_of
from hessdiag.results.records import Record

CHOICES = {
    "matrix": ("ggn", "hessian"), "per": ("example", "batch"), "mode": ("train", "eval"),
    "method": ("auto", "exact", "sketch", "probe"),
}  # fmt: skip

EXACT_OUTPUTS = 128  # per example: one cotangent an output
# Of examples that meet in normalisations, some are measured within the batch, all with fixed statistics: their ratio.
FEWEST, MEASURED, COTANGENTS, EXACT_WITHIN = 4, 16, 64, 16
EXACT_BATCH_OUTPUTS = 1024  # per batch: Gram matrices of this side take no time to speak of


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure and how precisely, by the names in `hessdiag.diagnose`; what cannot be used is refused."""

    matrix: str = "ggn"
    per: str = "example"
    mode: str = "train"
    method: str = "auto"
    rtol: float | None = None
    max_products: int = 400
    seed: int = 0
    class_dim: int | None = None
    output: str | int | None = None
    quick: bool = False

    def __post_init__(self) -> None:
        for option, choices in CHOICES.items():
            check_choice(option, getattr(self, option), choices)
        if self.rtol is not None:
            check_number("rtol", self.rtol, "pass a relative error above 0, such as 0.05", above=0)
        check_whole("max_products", self.max_products, least=2)
        check_whole("seed", self.seed)

    def plan(self, *, outputs: int, batch_size: int) -> Plan:
        """Pick the algorithm for a network with so many outputs per example. A Hessian takes products in weight space.
        A Gauss-Newton matrix is exact where the outputs are few, those of an example or of the whole batch, and
        sketched where they are many. A method that a matrix has not is refused.
        """
        if self.method == "probe":
            return Plan("probe", False, "asked for")
        if self.matrix == "hessian":
            if self.method == "sketch":
                what = "method 'sketch' is for the Gauss-Newton matrix, not matrix 'hessian'"
                raise HessdiagError(f"{what}: use method 'probe'")
            if self.method == "exact":
                return Plan("exact", False, "asked for: products with every unit vector")
            return Plan("probe", False, "Hessian products in weight space")
        if self.method == "exact":
            return Plan("exact", True, "asked for: Gram matrices in output space")
        if self.method == "sketch":
            return Plan("sketch", True, "asked for")
        count, limit, what = outputs, EXACT_OUTPUTS, f"{outputs} outputs"
        if self.per == "batch":
            count, limit = outputs * batch_size, EXACT_BATCH_OUTPUTS
            what = f"{batch_size} examples x {outputs} outputs"
        if count <= limit:
            return Plan("exact", True, f"{what} <= {limit}: Gram matrices in output space")
        return Plan("sketch", True, f"{what} > {limit}: sketches in output space")


@dataclass(frozen=True)
class Plan(Record):
    """The algorithm and the reason for it.

    Attributes:
        method: as reported.
        in_output_space: Gram matrices of output Jacobians, else products in weight space.
        reason: one clause for the report.
    """

    method: Literal["exact", "sketch", "probe"]
    in_output_space: bool
    reason: str


def measure_curvature(problem: Problem, settings: Settings, memory: MemoryBudget) -> Curvature:
    """Measure the norms of all blocks by the algorithm that the settings ask for, if any."""
    if settings.quick:
        return unmeasured(len(problem.blocks))
    if not (problem.coupled or problem.loss.couples):
        return _measure(problem, settings, memory)
    B, N = problem.batch.size, problem.shape.outputs
    if settings.per == "batch":
        return _measure(problem.as_one_example(), replace(settings, per="example"), memory)
    settings, count = within_batch(settings, examples=B, outputs=N)

    def within(examples: Sequence[int]) -> list[Curvature]:
        shared = replace(problem, shape=problem.shape_of_whole, traced=problem.trace(problem.batch))
        return [_measure(replace(shared, batch=problem.batch.among_all([i])), settings, memory) for i in examples]

    if count == B:
        return mean_of_some(within(range(B)), of=B)
    with statistics_of(problem.model, lambda: problem.batch.call(problem.model)):
        alone = replace(problem, coupled=False)
        chosen, shares = drawn_by_size(alone, count, memory, settings.seed)
        like = [_measure(replace(problem, batch=problem.batch.narrow(i, i + 1)), settings, memory) for i in chosen]
        known = _measure(alone, settings, memory)
    return mean_of_some(within(chosen), of=B, like=like, known=known, shares=shares, rounding=rounding_of(problem))


def within_batch(settings: Settings, *, examples: int, outputs: int) -> tuple[Settings, int]:
    """How examples that meet in normalisations are measured, and how many of them."""
    if settings.method == "auto" and settings.matrix == "ggn" and outputs > EXACT_WITHIN:
        settings = replace(settings, method="sketch", max_products=min(settings.max_products, COTANGENTS // FEWEST))
    return settings, min(examples, max(FEWEST, min(MEASURED, COTANGENTS // outputs)))


def _measure(problem: Problem, settings: Settings, memory: MemoryBudget) -> Curvature:
    plan = settings.plan(outputs=problem.shape.outputs, batch_size=problem.batch.size)
    how: dict[str, Any] = {"rtol": settings.rtol, "max_products": settings.max_products, "seed": settings.seed}
    per_example = settings.per == "example"
    if plan.method == "sketch":
        found = (sketch_per_example if per_example else sketch_per_batch)(problem, memory, **how)
    elif plan.in_output_space:
        exactly = exact_per_example if per_example else exact_per_batch
        found = exactly(problem, chunk=problem.shape.chunk(problem.shape.outputs, memory=memory.chunk))
    else:
        how |= {"matrix": settings.matrix, "per": settings.per, "exhaustive": plan.method == "exact"}
        found = probe(problem, memory, **how)
    return replace(found, method=plan.method, reason="; ".join(filter(None, (plan.reason, found.reason))))
