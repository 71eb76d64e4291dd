"""What follows from the calculus, and what it begins with: gradients and curvature of the losses."""

import math
from statistics import geometric_mean

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag import init, scaling
from hessdiag.calculus.moments import Activation
from hessdiag.calculus.propagation import output_gradient, softmax_moments
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.models.feedforward import mlp
from hessdiag.scaling import activation_scaling, gamma, gamma_intrinsic, nu
from tests.networks import PLAIN, Multiplier

DRAWS, BATCH, SETUPS = 200, 16, 24


@pytest.mark.parametrize("loss", ["random-quadratic", "mse", "cross-entropy"])
@pytest.mark.parametrize("q", [0.01, 9.0])
def test_gradient_and_curvature_against_the_losses_themselves(loss, q):
    squared, curved = [], []
    for seed in range(DRAWS):
        y = q**0.5 * torch.randn(BATCH, 5, dtype=torch.float64)
        targets = torch.randint(5, (BATCH,)) if loss == "cross-entropy" else torch.randn(BATCH, 5).double()
        known, u = resolve_loss(loss, y=y, targets=targets, seed=seed), q**0.5 * torch.randn_like(y)
        squared.append(float(known.gradient(y, targets).square().mean()))
        curved.append(float(known.hessian_product(y, targets, u).square().mean()))
    found = output_gradient(loss, Activation(torch.full((2, 5), q, dtype=torch.float64)), 2)
    mean, curvature = sum(squared) / DRAWS, sum(curved) / DRAWS
    assert float(found.gradient.second_moment) == pytest.approx(mean, rel=0.07)
    assert found.curvature * mean == pytest.approx(curvature, rel=0.1)


def test_closed_forms() -> None:
    found = output_gradient("random-quadratic", Activation(torch.tensor([[1.0, 3.0]], dtype=torch.float64)), 1)
    assert found.gradient.sq.tolist() == [[2 * 4 + 2 * 1, 2 * 4 + 2 * 3]]  # 2 Σ E[y²] + 2 E[y_i²]
    one = output_gradient("cross-entropy", Activation(torch.ones(2, 7, dtype=torch.float64)), 2)
    four = output_gradient("cross-entropy", Activation(torch.ones(2, 7, 4, dtype=torch.float64)), 2)
    assert float(four.gradient.second_moment) == pytest.approx(float(one.gradient.second_moment) / 16)
    sampled, formula = softmax_moments(0.5, 2048), softmax_moments(0.5, 2049)
    assert sampled == pytest.approx(formula, rel=0.01)


def _reports(build, inputs):
    reports = []
    for seed in range(SETUPS):
        torch.manual_seed(seed)
        model = init.apply(build(), "geometric").double()
        reports.append(hessdiag.diagnose(model, inputs(), seed=seed, quick=True, **PLAIN))
    return reports


@pytest.mark.parametrize("inner", [[400], [100, 300], None])
def test_the_output_moment_depends_on_the_first_and_last_width_alone(inner):
    squares = []
    for seed in range(60):
        torch.manual_seed(seed)
        if inner:
            model, size = nn.Sequential(mlp([64, *inner, 16], bias=False), nn.ReLU()), (64,)
        else:  # strided convolutions telescope too
            layers = [nn.Conv2d(8, 64, 2, 2, bias=False), nn.ReLU(), nn.Conv2d(64, 32, 2, 2, bias=False), nn.ReLU()]
            model, size = nn.Sequential(*layers), (8, 8, 8)
        init.apply(model, "geometric")
        squares.append(float(model(torch.randn(64 if inner else 16, *size)).detach().square().mean()))
    # E[x_L²] = √(n_0 / n_L) under geometric-mean initialisation, c = 2/k, ReLU behind every layer (Section 7)
    expected = math.sqrt(64 / 16) if inner else math.sqrt(8 / 32)
    assert sum(squares) / 60 == pytest.approx(expected, rel=0.2 if inner else 0.1)  # measured 1.9 and 2.0


@pytest.mark.parametrize("image", [False, True])
def test_the_input_scale_balances_first_weight_and_bias(image):
    size, first = (3, 7, 7) if image else (30,), nn.Conv2d(3, 8, 3, 2) if image else nn.Linear(30, 20)
    scale = (3 * 9 if image else 30) ** -0.25
    model = nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(72 if image else 20, 4)).double()
    x = torch.randn(256, *size, dtype=torch.float64)
    x = x / x.square().mean().sqrt()
    weight, bias = hessdiag.diagnose(model, scale * x).blocks[:2]
    assert bias.gamma == pytest.approx(weight.gamma, rel=1e-10)
    usual_weight, usual_bias = hessdiag.diagnose(model, x).blocks[:2]
    assert usual_weight.gamma / usual_bias.gamma == pytest.approx(scale**-4, rel=1e-10)
    if not image:  # the curvature itself agrees: ‖x‖⁴ / n = 1 up to the spread of ‖x‖ over examples
        assert weight.avg_sq_singular_value / bias.avg_sq_singular_value == pytest.approx(1, rel=0.15)


def test_biases_are_equally_scaled_and_both_forms_of_gamma_agree_under_geometric_initialisation() -> None:
    reports = _reports(lambda: mlp([40, 80, 20, 60]), lambda: torch.randn(8, 40, dtype=torch.float64))
    biases = [[b for b in report.blocks if b.kind == "bias"][:2] for report in reports]  # the last has no ReLU behind
    assert geometric_mean([first.gamma / second.gamma for first, second in biases]) == pytest.approx(1, rel=0.25)
    reports = _reports(lambda: mlp([60, 200, 40, 10], bias=False), lambda: torch.randn(16, 60, dtype=torch.float64))
    for number, block in enumerate(reports[0].weights):
        ratios = [report.weights[number].gamma / report.weights[number].gamma_intrinsic for report in reports]
        assert geometric_mean(ratios) == pytest.approx(1, rel=0.12), block.name
        first = [r.weights[number].activation_scaling / 2.0**2 for r in reports]  # γ = ς / c² (Eq. 3)
        second = [r.weights[number].gamma_intrinsic for r in reports]
        assert geometric_mean([a / b for a, b in zip(first, second, strict=True)]) == pytest.approx(1, rel=0.05)


def test_a_multiplier_of_root_c_has_the_gamma_of_the_layers():
    u = math.sqrt(2.0)

    def build():
        return nn.Sequential(
            nn.Linear(50, 100, bias=False), nn.ReLU(), nn.Linear(100, 100, bias=False), Multiplier(u), nn.ReLU(),
            nn.Linear(100, 50, bias=False), nn.ReLU(), nn.Linear(50, 10, bias=False),
        )  # fmt: skip

    ratios = []
    for report in _reports(build, lambda: torch.randn(8, 50, dtype=torch.float64)):
        scalar = next(b for b in report.blocks if b.kind == "scalar")
        intrinsic = scaling.gamma_intrinsic(scaling=scalar.activation_scaling, numel=1, weight_sq=u**2)
        assert intrinsic == pytest.approx(scalar.gamma, rel=1e-6)
        ratios.append(scalar.gamma / geometric_mean([b.gamma for b in report.weights]))
    assert geometric_mean(ratios) == pytest.approx(1, rel=0.15)


def test_forms_agree_under_the_forward_and_backward_relations_and_nothing_is_divided_by_zero() -> None:
    """Appendix of arXiv 1906.04267, with rho_{l+1}, unequal fans, a kernel and unequal sites."""
    n_in, n_out, k, sites_in, sites_out = 6, 16, 25, 196, 25
    x_sq, weight_sq, out_gradient_sq = 0.7, 0.01, 3.0
    out_sq = n_in * k * weight_sq * x_sq  # forward
    x_gradient_sq = sites_out * n_out * k * weight_sq * out_gradient_sq / sites_in  # backward
    varsigma = activation_scaling(n_in * sites_in, x_gradient_sq, x_sq)
    surroundings = {"sites_out": sites_out, "x_sq": x_sq, "delta_sq": out_gradient_sq, "out_sq": out_sq}
    extrinsic = gamma("weight", fan_in=n_in, kernel=k, **surroundings)
    assert extrinsic == pytest.approx(gamma_intrinsic(scaling=varsigma, numel=n_in * n_out * k, weight_sq=weight_sq))
    gradient_sq = sites_out * x_sq * out_gradient_sq  # Proposition 1
    assert extrinsic == pytest.approx(nu(gradient_sq=gradient_sq, weight_sq=weight_sq))
    n, k = 3, 9
    x_sq = 1 / math.sqrt(n * k)
    around = {"fan_in": n, "kernel": k, "sites_out": 100, "x_sq": x_sq, "delta_sq": 2.0, "out_sq": 0.3}
    assert gamma("weight", **around) == pytest.approx(gamma("bias", **around))
    assert math.isnan(nu(gradient_sq=1.0, weight_sq=0.0))
    assert math.isnan(gamma("bias", fan_in=1, kernel=1, sites_out=1, x_sq=1.0, delta_sq=1.0, out_sq=0.0))
