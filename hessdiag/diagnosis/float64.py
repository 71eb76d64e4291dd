"""What float32 cannot tell from rounding, told on a copy of the model in float64.

A gradient that is zero but for rounding, as by a symmetry, differs between any two ways to compute it. So does one
that is small and wrong. In float64 the two are far apart.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import functional_jacobians
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.trace import backpropagate

TOLERANCE = 1e-4  # of a block's gradient, relative to its size; the model may compute some of it in float32
ZERO = 1e-12  # of the largest gradient: zero but for rounding
EXAMPLES = 2


def told_in_float64(problem: Problem, names: Collection[str]) -> dict[str, str]:
    """Those of the blocks that cannot be measured by replacing their parameter, and why, as a clause.

    The user's model is left alone; where it cannot be copied, none of the blocks can be told to be right.
    """
    blocks = [block for block in problem.blocks if block.name in names]
    few = replace(problem.batch.narrow(0, EXAMPLES), targets=None)
    try:
        model = deepcopy(problem.model).double()
        few = few.to(next(model.parameters()).device, torch.float64)
        every = _gradient_errors(model, few, [*problem.blocks])
    except (RuntimeError, TypeError) as error:
        why = f"float32 cannot tell its gradient from rounding, and the model does not run in float64: {error}"
        return {block.name: " ".join(why.split())[:200] for block in blocks}
    largest = max((size for _, size in every.values()), default=0.0)
    return {
        block.name: "its gradient is not the one that is found by replacing it where modules hold it,"
        " as a copy of the model in float64 shows"
        for block in blocks
        if not every[block.name][0] <= TOLERANCE * every[block.name][1] + ZERO * largest
    }


def _gradient_errors(model: nn.Module, few: Batch, blocks: list[Block]) -> dict[str, tuple[float, float]]:
    """By block name, the error of its gradient and autograd's own size, for a random cotangent."""
    y = few.call(model)
    z = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(y).unsqueeze(0)
    truth = backpropagate(y, [get_gradient_edge(block_parameter(model, block)) for block in blocks], z)
    found = functional_jacobians(model, blocks, few, z)
    errors = {}
    for block, exact in zip(blocks, truth, strict=True):
        total = found[block.name].sum(dim=(0, 1))  # (P,)
        error = total if exact is None else total - exact.flatten()
        errors[block.name] = (float(error.norm()), 0.0 if exact is None else float(exact.norm()))
    return errors
