"""What a measurement takes whatever is asked, and what that leaves of the memory that it may take.

Measured, not derived: while the reading of a model is checked there are up to five gradients of all parameters, two
more of the largest one, copies of the batch, and a few gradients of what an example writes.
"""

from __future__ import annotations

from dataclasses import replace

from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.execution.memory import OVERHEAD, Memory
from hessdiag.network.shapes import NetworkShape

CHECKED, LARGEST = 5, 2  # gradients of all parameters, and of the largest one, while the model is checked
MEASURED = 3  # of all parameters while blocks are measured: the batch's and the directions of optimisers
COPIES = 2  # of the batch
COTANGENTS, WORKING = 4, 2  # of an example, at least, and how many times what these take


def bounded(memory: Memory, problem: Problem, shape: NetworkShape) -> Memory:
    """The memory that is left for examples and their cotangents.

    Raises:
        HessdiagError: what was asked for is less than a measurement of this model and batch takes.
    """
    largest = max(parameter.nbytes for parameter in problem.model.parameters())
    inputs = sum(tensor.nbytes for tensor in problem.batch.tensors)
    held = CHECKED * shape.parameters + LARGEST * largest + COPIES * inputs
    least = held + WORKING * shape.bytes_per_example(COTANGENTS)
    if memory.total < least:
        raise HessdiagError(
            f"max_memory {_told(memory.total)}: gradients of {_told(shape.parameters)} of parameters,"
            f" {_told(inputs)} of inputs and one example at a time take about {_told(least)}:"
            " pass at least that, or a smaller batch"
        )
    left = memory.total - MEASURED * shape.parameters - COPIES * inputs
    return replace(memory, total=left, chunk=min(memory.chunk, max(memory.total - held, 0) // OVERHEAD))


def _told(size: int) -> str:
    """Bytes as they can be passed, rounded up.

    >>> _told(2**20), _told(5 * 2**30 + 1)
    ('1MiB', '5121MiB')
    """
    return f"{-(-size // 2**20)}MiB"
