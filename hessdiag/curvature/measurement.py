"""Run the planned algorithm."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hessdiag.curvature.batch_cost import check_pairs_fit, examples_together
from hessdiag.curvature.batch_sketch import sketch_per_batch
from hessdiag.curvature.classes import may_draw_classes
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.exact import exact_per_batch, exact_per_example
from hessdiag.curvature.first_step import FirstStep, sum_first_step
from hessdiag.curvature.pair_groups import PairGroups, largest_group
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

PAIRED = 2**28  # bytes of a group of examples that is measured exactly, but two always are


def measure_curvature(
    problem: Problem,
    how: Plan,
    shape: NetworkShape,
    settings: Settings,
    *,
    memory: Memory,
    work: Work,
    step: FirstStep | None = None,
) -> Curvature:
    """Measure the norms of all blocks by the algorithm that `how` names.

    Args:
        problem: what to measure.
        how: from `settings.plan`.
        shape: sizes of the network, which decide how many examples fit `memory` bytes at once.
        settings: which matrix, in which view, how precisely, and the seed of all random directions.
        memory: bytes of one chunk, and of all.
        work: carries it out.
        step: of optimisers, whose slope and curvature are to be measured as well.
    """
    room = Room(shape, memory, may_draw_classes(problem, shape))
    if how.method == "sketch" and settings.per == "example":
        return sketch_per_example(
            problem,
            outputs=shape.outputs,
            budget=Budget(settings.rtol, settings.max_products),
            room=room,
            seed=settings.seed,
            step=step,
            pairs=settings.measures_pairs,
            work=work,
        )
    if how.in_output_space and settings.per == "example":
        groups = _pair_groups(problem, shape) if settings.measures_pairs else None
        if groups is not None and room.together < groups.size * shape.outputs:
            groups = None
        return exact_per_example(problem, chunk=room.examples(shape.outputs), step=step, groups=groups, work=work)
    found = _without_step(problem, how, shape, settings, memory=memory, work=work)
    if step is None:
        return found
    sums = sum_first_step(problem, step, outputs=shape.outputs, chunk=room.examples, seed=settings.seed, work=work)
    return replace(found, first_step=sums)


def _pair_groups(problem: Problem, shape: NetworkShape) -> PairGroups | None:
    """Groups that depend on the network alone, whatever memory there is."""
    fitting = PAIRED // shape.bytes_per_example(shape.outputs)
    largest = max(2, min(largest_group(shape.outputs), fitting))
    return PairGroups.of(problem.batch.size, largest=largest, blocks=len(problem.blocks))


def _without_step(
    problem: Problem, how: Plan, shape: NetworkShape, settings: Settings, *, memory: Memory, work: Work
) -> Curvature:
    """The algorithms in which no cotangents are sent back example by example."""
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
