"""Adam's direction is the one that torch's optimiser takes."""

import torch
from torch import nn

from hessdiag.diagnosis.adam_direction import AdamDirection


def test_torchs_own_updates_step_by_step() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    optimizer, direction = torch.optim.Adam([weight], lr=1.0), AdamDirection()
    for _ in range(6):
        gradient = torch.randn(4, 3, dtype=torch.float64) * 10 ** torch.randn((), dtype=torch.float64)
        before, weight.grad = weight.detach().clone(), gradient
        optimizer.step()
        torch.testing.assert_close(direction({"w": gradient})["w"], before - weight.detach(), rtol=1e-10, atol=1e-12)


def test_a_gradient_of_zero_moves_nothing() -> None:
    assert AdamDirection()({"w": torch.zeros(3)})["w"].tolist() == [0.0, 0.0, 0.0]
