"""Gradients of the batch-mean loss."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.moments import sum_of_squares
from hessdiag.network.hooks import backpropagate


def batch_gradient(problem: Problem, *, chunk: int) -> dict[str, Tensor]:
    """Gradient of the batch-mean loss in every trainable parameter, by name, `chunk` examples at a time.

    It is no unit of work: every rank takes it, and a resumed run takes it again, as it is as large as the model.
    """
    parameters = {n: p for n, p in problem.model.named_parameters() if p.requires_grad and p.is_floating_point()}
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    for part in problem.batch.chunks(chunk):
        y = part.call(problem.model)
        own = problem.loss.gradient(y.detach(), part.targets)
        edges = [get_gradient_edge(parameter) for parameter in parameters.values()]
        for sum_, gradient in zip(total.values(), backpropagate(y, edges, own.unsqueeze(0)), strict=True):
            if gradient is not None:
                sum_ += gradient[0]
    return {name: sum_.detach() / problem.batch.size for name, sum_ in total.items()}


def gradient_sq(problem: Problem, gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """E[ΔW²] of the batch's gradient, by block name."""
    return {block.name: sum_of_squares(gradients[block.name]) / block.numel for block in problem.blocks}
