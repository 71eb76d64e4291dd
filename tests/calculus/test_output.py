import pytest
import torch

from hessdiag.calculus.moments import Activation
from hessdiag.calculus.propagation import output_gradient, softmax_moments
from hessdiag.derivatives.losses import resolve_loss

DRAWS, BATCH = 200, 16


@pytest.mark.parametrize("loss", ["random-quadratic", "mse", "cross-entropy"])
@pytest.mark.parametrize("q", [0.01, 9.0])
def test_gradient_and_curvature_against_the_losses_themselves(loss, q):
    torch.manual_seed(0)
    squared, curved = [], []
    for seed in range(DRAWS):
        y = q**0.5 * torch.randn(BATCH, 5, dtype=torch.float64)
        targets = torch.randint(5, (BATCH,)) if loss == "cross-entropy" else torch.randn(BATCH, 5).double()
        known = resolve_loss(loss, y=y, targets=targets, seed=seed)
        u = q**0.5 * torch.randn_like(y)
        squared.append(float(known.gradient(y, targets).square().mean()))
        curved.append(float(known.hessian_product(y, targets, u).square().mean()))
    found = output_gradient(loss, Activation(torch.full((2, 5), q, dtype=torch.float64)), 2)
    mean, curvature = sum(squared) / DRAWS, sum(curved) / DRAWS
    assert float(found.gradient.second_moment) == pytest.approx(mean, rel=0.07)
    assert found.curvature * mean == pytest.approx(curvature, rel=0.1)


def test_closed_forms() -> None:
    sq = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    found = output_gradient("random-quadratic", Activation(sq), 1)
    assert found.gradient.sq.tolist() == [[2 * 4 + 2 * 1, 2 * 4 + 2 * 3]]  # 2 Σ E[y²] + 2 E[y_i²]
    one = output_gradient("cross-entropy", Activation(torch.ones(2, 7, dtype=torch.float64)), 2)
    four = output_gradient("cross-entropy", Activation(torch.ones(2, 7, 4, dtype=torch.float64)), 2)
    assert float(four.gradient.second_moment) == pytest.approx(float(one.gradient.second_moment) / 16)
    sampled, formula = softmax_moments(0.5, 2048), softmax_moments(0.5, 2049)
    assert sampled == pytest.approx(formula, rel=0.01)
