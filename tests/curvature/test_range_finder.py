"""The basis that is made of what random displacements move."""

import torch
from torch import nn

from hessdiag.curvature.range_finder import range_basis
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import trace_blocks
from hessdiag.derivatives.losses import MeanSquaredError
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks


def test_the_basis_is_orthonormal_for_every_example_and_spans_a_small_range() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 20, bias=False)).double()  # of the first layer, rank 3
    for parameter in model[1].parameters():
        parameter.requires_grad_(False)
    batch = Batch.of(torch.randn(4, 6, dtype=torch.float64), None)
    blocks = find_blocks(model)[0]
    problem = Problem(model, batch, MeanSquaredError(), blocks)
    seen = trace_blocks(model, batch, blocks)
    basis = range_basis(problem, batch, seen, count=3, scales=[1.0, 1.0], generator=torch.Generator().manual_seed(0))
    Q = basis.permute(1, 2, 0)  # (B, N, 3)
    torch.testing.assert_close(Q.mT @ Q, torch.eye(3, dtype=torch.float64).expand(4, 3, 3))
    W = model[1].weight.detach()
    torch.testing.assert_close(Q @ (Q.mT @ W), W.expand(4, 20, 3))
    assert range_basis(problem, batch, seen, count=0, scales=[], generator=torch.Generator()).shape == (0, 4, 20)
