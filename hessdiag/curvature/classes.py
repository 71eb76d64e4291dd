"""Which networks' random cotangents are drawn classes, and what these are.

Where the layer that writes the logits has many classes at many positions, as of a language model, a Gaussian direction
would take as many random numbers, and a third of its backward pass would be this layer's.
"""

from __future__ import annotations

from collections.abc import Collection

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import logits_call
from hessdiag.derivatives.cross_entropy import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.sampled_softmax import SampledSoftmax
from hessdiag.network.shapes import NetworkShape
from hessdiag.network.trace import Trace

MANY_CLASSES, MANY_POSITIONS = 1024, 16  # from which classes are drawn: often in all, but each class seldom


def may_draw_classes(problem: Problem, shape: NetworkShape) -> bool:
    """Whether `draw_classes` draws any, as far as the sizes of the network tell."""
    if shape.returned != shape.outputs or not shape.positions:
        return False
    return _may_draw(problem, positions=shape.positions, classes=shape.outputs // shape.positions)


def draw_classes(
    problem: Problem, part: Batch, seen: Trace, *, count: int, seed: int, name: str, examples: Collection[int]
) -> SampledSoftmax | None:
    """`count` cotangents φ with E φφᵀ = S for the `examples` of a part; None where they are to be other ones.

    Drawn where all blocks have a rule, and a linear layer writes the logits of one label at every position.
    """
    y, loss = seen.y.detach(), problem.loss
    positions = y[:1, ..., 0].numel() if y.dim() > 2 else 0
    if not _may_draw(problem, positions=positions, classes=y.shape[-1]) or logits_call(problem.model, seen) is None:
        return None
    assert isinstance(loss, CrossEntropy)
    weights = loss.label_weights(y, part.targets) if loss.class_dim % y.dim() == y.dim() - 1 else None
    if weights is None or part.targets is None:
        return None
    return SampledSoftmax.draw(y, weights, count=count, seed=seed, name=name, examples=examples)


def _may_draw(problem: Problem, *, positions: int, classes: int) -> bool:
    if positions < MANY_POSITIONS or classes < MANY_CLASSES or not isinstance(problem.loss, CrossEntropy):
        return False
    return all(block.structured and block.kind != "scalar" for block in problem.blocks)
