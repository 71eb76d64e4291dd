"""Gradients of the batch-mean loss."""

from __future__ import annotations

import numpy as np
import torch
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.moments import sum_of_squares
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import block_parameter
from hessdiag.network.hooks import backpropagate


def batch_gradient_sq(problem: Problem, *, chunk: int, work: Work = ALL_HERE) -> dict[str, float]:
    """By block name, E[ΔW²] with Δ the gradient of the batch-mean loss."""
    parameters = [block_parameter(problem.model, block) for block in problem.blocks]

    def measure(batch: Batch) -> Result:
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for part in batch.chunks(chunk):
            y = part.call(problem.model)
            own = problem.loss.gradient(y.detach(), part.targets)
            edges = [get_gradient_edge(parameter) for parameter in parameters]
            for sum_, gradient in zip(total, backpropagate(y, edges, own.unsqueeze(0)), strict=True):
                if gradient is not None:
                    sum_ += gradient[0]
        return {"squared": np.array([sum_of_squares(gradient) for gradient in total])}

    (sums,) = work.each("batch gradient", [problem.batch], measure)
    return {
        block.name: float(squared) / (problem.batch.size**2 * block.numel)
        for block, squared in zip(problem.blocks, sums["squared"], strict=True)
    }
