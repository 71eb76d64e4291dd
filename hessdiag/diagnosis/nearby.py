"""What first derivatives at the weights hide from a Hessian, seen at weights close by.

Behind a layer that starts at zero every gradient is zero, however the model mixes examples before it, and from wherever
it reads a weight. Second derivatives are not zero there. They are right where first derivatives are right at all
weights around, hence checks are repeated at random ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.independence import PAIRWISE, check_pairs
from hessdiag.execution.seeds import stream
from hessdiag.network.blocks import Block, block_parameter, parameter_slots
from hessdiag.network.caches import caches_of, emptied

STEP = 0.1  # of a weight, relative to the size of all of its block, or to that of an initialisation if that is larger


def check_nearby(problem: Problem, *, chunk: int, seed: int) -> list[str]:
    """Names of blocks that the model reads from elsewhere than where modules hold them.

    Args:
        problem: what to measure.
        chunk: examples that fit into memory at once; the first few are called.
        seed: of the step.

    Raises:
        HessdiagError: the model mixes examples, which shows at other weights than its own.
    """
    model, few = problem.model, problem.batch.narrow(0, max(2, min(chunk, PAIRWISE)))
    held = [block_parameter(model, block) for block in problem.blocks]
    with emptied(caches_of(model)), _moved(model, problem.blocks, seed):
        y = few.call(model)
        reached = _gradients(y, held)  # the model is given other tensors in their place: none should be
        if few.size > 1 and bool(y.isfinite().all()):  # some models do not run at all weights
            check_pairs(model, few, (), seed)
    return [block.name for block, gradient in zip(problem.blocks, reached, strict=True) if gradient is not None]


def _gradients(y: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
    if not y.requires_grad:
        return [None] * len(parameters)
    return torch.autograd.grad(y.sum(), parameters, allow_unused=True)


@contextmanager
def _moved(model: nn.Module, blocks: Sequence[Block], seed: int) -> Iterator[None]:
    """Hold other parameters in place of the blocks, a random step away."""
    generator = stream(seed, "weights close by")
    slots = parameter_slots(model)
    steps = {block.name: _step(block_parameter(model, block).detach(), block, generator) for block in blocks}
    places = [
        (model.get_submodule(path)._parameters, attribute, moved)
        for name, moved in steps.items()
        for path, attribute in slots[name]
    ]
    held = [parameters[attribute] for parameters, attribute, _ in places]
    try:
        for parameters, attribute, moved in places:
            parameters[attribute] = moved
        yield
    finally:
        for (parameters, attribute, _), parameter in zip(places, held, strict=True):
            parameters[attribute] = parameter


def _step(weight: Tensor, block: Block, generator: torch.Generator) -> nn.Parameter:
    reads = block.fan_in * math.prod(block.kernel) if block.kind == "weight" else 1
    size = max(float(weight.square().mean().sqrt()), reads**-0.5)
    step = torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight)
    return nn.Parameter(weight + STEP * size * step)
