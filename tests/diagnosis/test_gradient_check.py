"""Gradients that are compared with autograd's: a misread block is found whichever example shows it."""

import pytest
import torch

import hessdiag


class Doubled(torch.nn.Linear):
    """Multiplies what it reads of the given examples by 2 before its weight sees it, which no hook shows."""

    def __init__(self, examples: list[int]) -> None:
        super().__init__(3, 2, bias=False, dtype=torch.float64)
        self.examples = examples

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 1 + torch.stack([(x[:, 0] == number).to(x) for number in self.examples]).sum(dim=0)
        return super().forward(x * factor.unsqueeze(1))


@pytest.mark.parametrize("odd", range(6))
def test_a_layer_that_is_misread_on_one_example_is_measured_without_its_rule(odd: int) -> None:
    """Whichever half of the batch that one is in."""
    x = torch.randn(6, 3, dtype=torch.float64)
    x[:, 0] = torch.arange(6)
    t = torch.randn(6, 2, dtype=torch.float64)
    report = hessdiag.diagnose(Doubled([odd]), x, t, loss="mse", signals=False)
    doubled = x.clone()
    doubled[odd] *= 2
    S = 2 / 2  # of the mean over two outputs
    expected = (S**2 * 2 * doubled.square().sum(dim=1) ** 2).mean() / 6  # ‖S ⊗ x xᵀ‖² / P
    assert report.blocks[0].avg_sq_singular_value == pytest.approx(float(expected), rel=1e-9)
