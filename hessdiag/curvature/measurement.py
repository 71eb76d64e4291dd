"""Run the planned algorithm."""

from __future__ import annotations

from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.exact import exact_per_batch, exact_per_example
from hessdiag.curvature.plan import Plan
from hessdiag.curvature.probe import probe
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.sketch import sketch_per_example
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import Matrix
from hessdiag.execution.memory import Memory
from hessdiag.execution.work import Work
from hessdiag.network.shapes import NetworkShape


def measure_curvature(
    problem: Problem,
    how: Plan,
    shape: NetworkShape,
    *,
    matrix: Matrix,
    per: str,
    budget: Budget,
    seed: int,
    memory: Memory,
    work: Work,
) -> Curvature:
    """Norms of all blocks, by the algorithm that `how` names.

    Args:
        problem: what to measure.
        how: from `hessdiag.curvature.plan.plan`.
        shape: sizes of the network, which decide how many examples fit `memory` bytes at once.
        matrix, per: `"ggn"` or `"hessian"`, of each `"example"` or of the `"batch"`.
        budget: when random sampling stops.
        seed: of all random directions.
        memory: bytes of one chunk, and of all.
        work: carries it out.
    """
    if how.method == "sketch":
        return sketch_per_example(
            problem,
            outputs=shape.outputs,
            budget=budget,
            chunk=lambda cotangents: shape.chunk(cotangents, memory=memory.chunk),
            most=shape.most_cotangents(memory.total),
            seed=seed,
            work=work,
        )
    if how.in_output_space:
        exact = exact_per_example if per == "example" else exact_per_batch
        return exact(problem, chunk=shape.chunk(shape.outputs, memory=memory.chunk), work=work)
    return probe(problem, matrix=matrix, per=per, budget=budget, shape=shape, seed=seed, memory=memory.chunk, work=work)
