"""Which normalisations can be moved by `hessdiag.network.moved_norms` while cotangents are sent back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from hessdiag.derivatives.problem import Problem
from hessdiag.execution.seeds import stream
from hessdiag.network.hooks import backpropagate, trace
from hessdiag.network.moved_norms import MovedNorms

SAME = 1e-4  # in float32, relative to the sizes of what is added up


def movable_norms(problem: Problem, along: Mapping[str, Tensor]) -> MovedNorms | None:
    """Those that are no blocks, where one of two examples shows that all of them are read right; else None.

    Args:
        problem: the model, and examples.
        along: directions of the parameters, (O, *shape) by name.
    """
    blocks = {block.name for block in problem.blocks}
    norms = MovedNorms.of(problem.model, {name: u for name, u in along.items() if name not in blocks})
    return norms if norms.along and _are_right(problem, norms, along) else None


def _are_right(problem: Problem, norms: MovedNorms, along: Mapping[str, Tensor]) -> bool:
    """Whether their steps have the gradient that autograd gives their parameters, and leave the other example alone.

    A normalisation may be read in another way than by calling it, or run over something else than examples.
    """
    model, few = problem.model, problem.batch.narrow(0, 2)
    seen = trace(model, few, (), norms=norms)
    assert seen.steps is not None
    z = torch.zeros_like(seen.y.detach())
    z[0] = torch.randn(z.shape[1:], generator=stream(0, "steps of normalisations")).to(z)
    held, names = dict(model.named_parameters()), sorted(norms.names)
    leaves = (seen.steps, *(held[name] for name in names))
    found, *gradients = backpropagate(seen.y, [*map(get_gradient_edge, leaves)], z.unsqueeze(0))
    if found is None:
        return False
    exact, size = torch.zeros(2, norms.count, dtype=torch.float64, device=z.device)
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is not None:
            u = along[name].flatten(1).double()
            exact += u @ gradient.flatten().double()
            size += u.norm(dim=1) * gradient.double().norm()
    strays = bool((found[0, 1:] != 0).any())
    return not strays and bool(((found[0, 0] - exact).abs() <= SAME * size).all())
