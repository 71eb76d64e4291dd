"""Slope and curvature along an optimiser's first step: every route against dense matrices, and its error bars."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, hessian, jvp

import hessdiag
from hessdiag.curvature.first_step import FirstStep, sum_first_step
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Reading, resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.step_rates import rates_of
from hessdiag.network.blocks import find_blocks

EXACT_ROUTES = {
    "Gram matrices": {},
    "basis of sketches": {"method": "sketch"},
    "Hessian products": {"matrix": "hessian"},
    "Gauss-Newton products": {"method": "probe"},
    "per batch": {"per": "batch"},
}


class Mixed(nn.Module):
    """Convolution, normalisation with gains that are no block, a scalar, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.hidden = nn.Linear(100, 7)
        self.scale = nn.Parameter(torch.tensor(1.3))
        self.head = nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(self.norm(self.conv(x)).relu().flatten(1))) * self.scale)


def dense_rates(model: nn.Module, x: Tensor, t: Tensor, loss, direction) -> tuple[float, dict[str, float]]:
    """g·u / uᵀGu of all parameters and of each alone, one forward-mode pass each and the loss's dense Hessian."""
    at = {name: p for name, p in model.named_parameters() if p.requires_grad}
    g = dict(zip(at, torch.autograd.grad(loss(model(x), t), list(at.values())), strict=True))
    u = {name: direction(value) for name, value in g.items()}

    def rate(moving: set[str]) -> float:
        tangent = {name: u[name] if name in moving else torch.zeros_like(u[name]) for name in u}
        y, moved = jvp(lambda values: functional_call(model, values, (x,)), (at,), (tangent,))
        y, moved = y.detach(), moved.detach().flatten(1)
        curved = 0.0
        for b in range(len(y)):
            S = hessian(lambda z, b=b: loss(z.unsqueeze(0), t[b : b + 1]))(y[b]).reshape(moved.shape[1], -1)
            curved += float(moved[b] @ S @ moved[b]) / len(y)
        return float(sum((g[name] * u[name]).sum() for name in moving).detach()) / curved

    return rate(set(u)), {name: rate({name}) for name in u}


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
@pytest.mark.parametrize("route", EXACT_ROUTES)
def test_every_route_equals_dense_matrices(route: str, loss: str) -> None:
    model, x = Mixed().double(), torch.randn(6, 2, 5, 5, dtype=torch.float64)
    t = torch.randint(5, (6,)) if loss == "cross-entropy" else torch.randn(6, 5, dtype=torch.float64)
    plain = F.cross_entropy if loss == "cross-entropy" else F.mse_loss
    report = hessdiag.diagnose(model, x, t, loss=loss, signals=False, noise_scale=False, **EXACT_ROUTES[route])
    for optimizer, direction in (("sgd", lambda g: g), ("adam", torch.sign)):
        joint, alone = dense_rates(model, x, t, plain, direction)
        rate = report.learning_rates[optimizer]
        assert rate.value == pytest.approx(joint, rel=1e-10)
        assert rate.blocks == pytest.approx({name: alone[name] for name in rate.blocks}, rel=1e-10)
        assert set(rate.blocks) == {block.name for block in report.blocks}


def test_sampled_directions_agree_within_their_noise() -> None:
    """60 outputs: a sketch of 24 directions an example against all of them."""
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 60)).double()
    x, t = torch.randn(64, 8, dtype=torch.float64), torch.randint(60, (64,))
    options = {"loss": "cross-entropy", "signals": False, "noise_scale": False}
    exact = hessdiag.diagnose(model, x, t, **options)
    for seed in range(3):
        sketched = hessdiag.diagnose(model, x, t, method="sketch", seed=seed, **options)
        for optimizer in ("sgd", "adam"):
            want, found = exact.learning_rates[optimizer], sketched.learning_rates[optimizer]
            assert found.value != want.value
            assert abs(found.value - want.value) < 3 * found.stderr
            assert all(abs(found.blocks[n] - want.blocks[n]) < 3 * found.block_stderr[n] for n in want.blocks)


def test_an_indefinite_loss_has_the_same_slope_and_curvature_by_pairs_of_cotangents() -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 40)).double()
    x = torch.randn(256, 5, dtype=torch.float64)
    problem, step = problem_of(model, x, None, "random-quadratic")
    exact = sum_first_step(problem, step, outputs=32, chunk=lambda cotangents: 100, seed=0)
    sampled = [
        sum_first_step(problem, step, outputs=40, chunk=lambda cotangents: 100, seed=seed)["step_sums"]
        for seed in range(12)
    ]
    np.testing.assert_allclose(sampled[0][0], exact["step_sums"][0], rtol=1e-10)  # the slope is never sampled
    mean = np.mean([s[1] for s in sampled], axis=0)
    error = np.std([s[1] for s in sampled], axis=0, ddof=1) / math.sqrt(12)
    assert (np.abs(mean - exact["step_sums"][1]) <= 4.5 * error + 1e-12).all()  # of 12: Student's t


def problem_of(model: nn.Module, x: Tensor, t: Tensor | None, loss: str) -> tuple[Problem, FirstStep]:
    batch = Batch.of(x, t)
    resolved = resolve_loss(
        loss, y=model(x[:2]).detach(), targets=t, seed=0, reading=Reading(None, None, False, "example")
    )
    blocks, skipped = find_blocks(model)
    generator = torch.Generator().manual_seed(1)
    fixed = {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in model.named_parameters()}
    step = FirstStep.of(fixed, {"given": lambda gradients: gradients})
    return Problem(model, batch, resolved, blocks, skipped), step


def test_the_standard_error_covers_what_other_examples_would_say() -> None:
    """Rates along a given direction from 64 examples, against those of a population of 4096."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 4)).double()
    x = torch.randn(4096, 6, dtype=torch.float64, generator=generator)
    t = (x[:, :4] + 0.5 * torch.randn(4096, 4, dtype=torch.float64, generator=generator)).argmax(dim=1)
    problem, step = problem_of(model, x, t, "cross-entropy")
    with torch.enable_grad():
        logits = model(x)
        own = torch.autograd.grad(F.cross_entropy(logits, t), list(model.parameters()))
    # a direction with a clear slope: half of it the gradient of the population
    given = {
        n: g + 0.5 * step.along[n][0] * g.abs().mean() for (n, _), g in zip(model.named_parameters(), own, strict=True)
    }
    step = FirstStep.of(given, {"given": lambda gradients: gradients})

    def rate(part: Problem):
        sums = sum_first_step(part, step, outputs=4, chunk=lambda cotangents: 4096, seed=0)
        names = [block.name for block in part.blocks]
        return rates_of(sums, ["given"], names, examples=part.batch.size)["given"]

    from dataclasses import replace

    truth, covered, trials = rate(problem), 0, 0
    for number in range(64):
        found = rate(replace(problem, batch=problem.batch.narrow(64 * number, 64 * number + 64)))
        for value, error, target in [
            (found.value, found.stderr, truth.value),
            *((found.blocks[n], found.block_stderr[n], truth.blocks[n]) for n in found.blocks),
        ]:
            trials += 1
            covered += abs(value - target) <= 1.96 * error
    assert 0.90 <= covered / trials <= 0.985


def test_the_map_of_the_step_adds_up_to_its_curvature() -> None:
    model, x = Mixed().double(), torch.randn(6, 2, 5, 5, dtype=torch.float64)
    problem, _ = problem_of(model, x, torch.randint(5, (6,)), "cross-entropy")
    step = FirstStep.of({n: torch.randn_like(p) for n, p in model.named_parameters()})
    sums = sum_first_step(problem, step, outputs=5, chunk=lambda cotangents: 4, seed=0)
    _, q, _, _, _ = sums["step_sums"]
    np.testing.assert_allclose(sums["step_map"].sum(axis=(1, 2)), q[:, -1], rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(sums["step_map"], axis1=1, axis2=2), q[:, :-1], rtol=1e-12)


def test_frozen_parameters_do_not_move() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double(), torch.randn(5, 3).double()
    model[0].weight.requires_grad_(False)
    t = torch.randint(2, (5,))
    report = hessdiag.diagnose(model, x, t, loss="cross-entropy")
    joint, _ = dense_rates(model, x, t, F.cross_entropy, lambda g: g)
    assert report.learning_rates["sgd"].value == pytest.approx(joint, rel=1e-10)
    assert "0.weight" not in report.learning_rates["sgd"].blocks


def test_no_minimum_is_no_rate() -> None:
    """A linear loss has a slope and no curvature; a block that nothing depends on has neither."""
    model = nn.Sequential(nn.Linear(3, 2, bias=False)).double()
    report = hessdiag.diagnose(model, torch.randn(4, 3).double(), loss=lambda y, t: y.sum() / len(y))
    assert math.isnan(report.learning_rates["sgd"].value)
    assert math.isnan(report.learning_rates["adam"].blocks["0.weight"])
