"""The least memory that a diagnosis takes, and what is left for examples beside the model's own gradients."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from hessdiag.curvature.plan import EXACT_OUTPUTS
from hessdiag.curvature.settings import Settings
from hessdiag.errors import HessdiagError
from hessdiag.execution.memory import OVERHEAD, Memory
from hessdiag.network.shapes import NetworkShape

GRADIENTS = 8  # copies of all parameters: gradients of the batch and of its parts, directions of optimisers; at most
EXAMPLES = 10  # times an example's activations and cotangents: a group of examples of which pairs are taken, and copies
SKETCHED = 12  # directions of an example at once, at least, where not all outputs are sent back


def check_memory_suffices(memory: Memory, model: nn.Module, shape: NetworkShape, settings: Settings) -> Memory:
    """What is left of the memory that was asked for, for chunks of examples.

    Args:
        memory: in all.
        model: to measure.
        shape: of it.
        settings: of the measurement.

    Raises:
        HessdiagError: not even the least fits.
    """
    gradients = GRADIENTS * sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    exact = settings.matrix == "ggn" and shape.outputs <= EXACT_OUTPUTS
    examples = EXAMPLES * shape.bytes_per_example(min(shape.outputs, EXACT_OUTPUTS if exact else SKETCHED))
    least = gradients + examples
    if least > memory.total:
        raise HessdiagError(
            f"max_memory {_told(memory.total)}: a diagnosis of this model takes about {_told(least)}"
            f" ({_told(gradients)} for gradients, {_told(examples)} for a few examples):"
            f" pass max_memory='{-(-least // 2**20)}MiB' or more"
        )
    left = memory.total - gradients
    return replace(memory, total=left, chunk=min(memory.chunk, left // OVERHEAD))


def _told(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"
