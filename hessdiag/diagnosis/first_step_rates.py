"""Learning rates of the first step alone, without the norms that `diagnose` measures beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from hessdiag.curvature.first_step import DIRECTIONS, sum_first_step
from hessdiag.curvature.room import Room
from hessdiag.curvature.settings import Settings
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.diagnose import blocks_of, in_execution_order
from hessdiag.diagnosis.independence import called_alone
from hessdiag.diagnosis.session import Session
from hessdiag.diagnosis.step_rates import rates_of
from hessdiag.execution.memory import Memory
from hessdiag.execution.work import Work
from hessdiag.network.shapes import measure_shapes
from hessdiag.results.learning_rates import LearningRate

MOMENTUM = 0.9  # the sum of equal gradients, each 0.9 to the power of its age, is 1 / (1 - 0.9) of one


def first_step_rates(model: nn.Module, batch: Batch, loss: Loss, settings: Settings) -> dict[str, LearningRate]:
    """Measure the rates of a step from the weights as they are, also of each block alone, by optimiser.

    That of momentum is what SGD's comes to when steps have added up: (1 - 0.9) of it.

    Raises:
        HessdiagError: the model cannot be measured example by example.
    """
    found, skipped = blocks_of(model)
    with called_alone(model, min(2, batch.size)):
        shape = measure_shapes(model, batch, found)
    memory = Memory.of(None, next(model.parameters()).device)
    session = Session(settings, memory)
    problem = Problem(model, batch, loss, in_execution_order(shape.readable(found), shape.order), skipped)
    problem, shape, _ = session.read_right(problem, shape, Work())
    step = session.first_step(problem, session.batch_gradient(problem, shape))
    assert step is not None
    at_once = Room(shape, memory).examples
    sums = sum_first_step(problem, step, outputs=shape.outputs, chunk=at_once, seed=settings.seed)
    names = [block.name for block in problem.blocks]
    rates = rates_of(sums, tuple(DIRECTIONS), names, examples=batch.size)
    return rates | {"momentum": _times(rates["sgd"], 1 - MOMENTUM)}


def _times(rate: LearningRate, factor: float) -> LearningRate:
    def scaled(values: Mapping[str, float]) -> dict[str, float]:
        return {name: factor * value for name, value in values.items()}

    return replace(
        rate,
        value=factor * rate.value,
        stderr=factor * rate.stderr,
        blocks=scaled(rate.blocks),
        block_stderr=scaled(rate.block_stderr),
    )
