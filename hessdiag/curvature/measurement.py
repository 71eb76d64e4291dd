"""Run the planned algorithm."""

from __future__ import annotations

from functools import partial

from hessdiag.curvature.batch_cost import check_pairs_fit, examples_together
from hessdiag.curvature.batch_sketch import sketch_per_batch
from hessdiag.curvature.classes import may_draw_classes
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.exact import exact_per_batch, exact_per_example
from hessdiag.curvature.plan import Plan
from hessdiag.curvature.probe import probe
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.room import Room
from hessdiag.curvature.settings import Settings
from hessdiag.curvature.sketch import sketch_per_example
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.memory import Memory
from hessdiag.execution.work import Work
from hessdiag.network.shapes import NetworkShape


def measure_curvature(
    problem: Problem,
    how: Plan,
    shape: NetworkShape,
    settings: Settings,
    *,
    memory: Memory,
    work: Work,
) -> Curvature:
    """Measure the norms of all blocks by the algorithm that `how` names.

    Args:
        problem: what to measure.
        how: from `settings.plan`.
        shape: sizes of the network, which decide how many examples fit `memory` bytes at once.
        settings: which matrix, in which view, how precisely, and the seed of all random directions.
        memory: bytes of one chunk, and of all.
        work: carries it out.
    """
    room = Room(shape, memory, may_draw_classes(problem, shape))
    if how.method == "sketch" and settings.per == "example":
        return sketch_per_example(
            problem,
            outputs=shape.outputs,
            budget=Budget(settings.rtol, settings.max_products),
            room=room,
            seed=settings.seed,
            work=work,
        )
    if how.in_output_space and settings.per == "example":
        return exact_per_example(problem, chunk=room.examples(shape.outputs), work=work)
    if how.method == "sketch":
        check_pairs_fit(shape, problem.loss, memory.total)
        return sketch_per_batch(
            problem,
            outputs=shape.outputs,
            budget=Budget(settings.rtol, settings.max_products),
            fit=partial(examples_together, shape, problem, memory=memory.total),
            seed=settings.seed,
            work=work,
        )
    if how.in_output_space:
        return exact_per_batch(problem, chunk=shape.chunk(shape.outputs, memory=memory.chunk), work=work)
    return probe(
        problem,
        matrix=settings.kind,
        per=settings.per,
        budget=Budget(settings.rtol, settings.max_products, exhaustive=how.method == "exact"),
        shape=shape,
        seed=settings.seed,
        memory=memory.chunk,
        work=work,
    )
