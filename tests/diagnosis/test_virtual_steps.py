"""Slopes and curvatures along virtual steps against plain autograd, at weights that were moved by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss, Reading, resolve_loss
from hessdiag.diagnosis.adam_direction import AdamDirection, Values
from hessdiag.diagnosis.virtual_steps import SHARE, Along, Walk, best_constant_rate
from tests.oracles import ggn_blocks


class Stopped(nn.Module):
    """Multiplies by something that is a constant to backward mode, but not to forward mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        with torch.no_grad():
            scale = 1 + self.layer(x).square()
        return y * scale


def network(kind: str) -> nn.Module:
    torch.manual_seed(3)
    if kind == "stopped":
        return Stopped().double()
    norm = nn.BatchNorm1d(5) if kind == "batch norm" else nn.LayerNorm(5)
    return nn.Sequential(nn.Linear(3, 5), norm, nn.Tanh(), nn.Linear(5, 4)).double()


def batch_of(seed: int, size: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    return Batch.of(x, torch.randint(4, (size,), generator=generator))


def loss_for(model: nn.Module, batch: Batch) -> Loss:
    y = model(*batch.args).detach()
    return resolve_loss("cross-entropy", y=y, targets=batch.targets, seed=0, reading=Reading(per="batch"))


def gradient_at(model: nn.Module, at: Values, batch: Batch) -> dict[str, Tensor]:
    model.load_state_dict(dict(at), strict=False)
    value = functional.cross_entropy(model(*batch.args), batch.targets)
    return dict(zip(at, torch.autograd.grad(value, list(model.parameters())), strict=True))


def along_by_hand(model: nn.Module, at: Values, u: Values, batch: Batch) -> tuple[float, float]:
    """The slope, and the curvature by the dense matrix."""
    gradient = gradient_at(model, at, batch)
    blocks = ggn_blocks(model, batch.args[0], batch.targets, functional.cross_entropy, list(at))
    flat = [u[name].flatten() for name in at]
    curvature = sum(float(flat[i] @ block @ flat[j]) for i, row in enumerate(blocks) for j, block in enumerate(row))
    return sum(float((gradient[name] * u[name]).sum()) for name in at), curvature


@pytest.mark.parametrize("kind", ["layer norm", "batch norm", "stopped"])
def test_every_step_by_hand(kind: str) -> None:
    model, twin = network(kind), network(kind)
    pairs = [(batch_of(2 * i), batch_of(2 * i + 1)) for i in range(3)]
    walk = Walk.of(model, loss_for(twin, pairs[0][0]), pairs[0][0], seed=0)
    assert walk.forward_mode == (kind != "stopped")
    at: Values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    adam = AdamDirection()
    for found, (stepped, measured) in zip(walk.steps(iter(pairs)), pairs, strict=True):
        gradient = gradient_at(twin, at, stepped)
        u = adam(gradient)
        for along, direction in ((found.gradient, gradient), (found.adam, u)):
            expected = along_by_hand(twin, at, direction, measured)
            assert (along.slope, along.curvature) == pytest.approx(expected, rel=1e-10)
        if found.adam.rate > 0:
            at = {name: value - SHARE * found.adam.rate * u[name] for name, value in at.items()}


def test_a_frozen_parameter_stays_where_it_is() -> None:
    model = network("layer norm")
    model[0].weight.requires_grad_(False)
    walk = Walk.of(model, loss_for(model, batch_of(0)), batch_of(0), seed=0)
    assert list(walk.start) == ["0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]


def test_a_shared_parameter_moves_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False), nn.Linear(3, 4)).double()
    model[2].weight = model[0].weight
    walk = Walk.of(model, loss_for(model, batch_of(0)), batch_of(0), seed=0)
    assert list(walk.start) == ["0.weight", "3.weight", "3.bias"]
    (step,) = walk.steps(iter([(batch_of(1), batch_of(2))]))
    at = {name: parameter.detach() for name, parameter in model.named_parameters()}
    u = gradient_at(model, at, batch_of(1))
    expected = along_by_hand(model, at, u, batch_of(2))
    assert (step.gradient.slope, step.gradient.curvature) == pytest.approx(expected, rel=1e-10)


class Coin(nn.Module):
    """Two linear maps of which each call draws one."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.pair[int(torch.rand(()) < 0.5)]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_drawn_is_the_same_for_slope_and_curvature(seed: int) -> None:
    """With another draw the curvature along the drawn entry's gradient would be 0."""
    batch = Batch.of(torch.ones(2, 1, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64))
    loss = resolve_loss("mse", y=batch.targets, targets=batch.targets, seed=0, reading=Reading(per="batch"))
    (step,) = Walk.of(Coin(), loss, batch, seed=seed).steps(iter([(batch, batch)]))
    assert (step.gradient.slope > 0) == (step.gradient.curvature > 0)


def test_the_best_constant_rate_is_lowest_on_all_quadratic_models_together() -> None:
    steps = [Along(1.0, 3.0), Along(2.0, 1.0), Along(-0.5, 2.0)]

    def together(rate: float) -> float:
        return sum(-rate * each.slope + rate * rate * each.curvature / 2 for each in steps)

    rate, _ = best_constant_rate(steps)
    assert together(rate) < min(together(rate - 1e-3), together(rate + 1e-3))


def test_a_step_led_astray_does_not_outweigh_the_others() -> None:
    steps = [Along(2.0, 1.0)] * 11
    astray = Along(-50.0, 1e5)
    assert best_constant_rate([*steps, astray])[0] == pytest.approx((22 - 50e-4) / 21)
    assert best_constant_rate([*steps, Along(2.0, 9.0)])[0] == pytest.approx(24 / 20)


def test_the_error_bar_holds_the_ratio_of_means() -> None:
    """Of 400 draws of 12 steps, 95 % intervals hold the truth about as often as they should with 12 steps."""
    generator = torch.Generator().manual_seed(0)
    held = 0
    for _ in range(400):
        curvatures = torch.rand(12, generator=generator, dtype=torch.float64) + 0.5
        slopes = 0.3 * curvatures + 0.1 * torch.randn(12, generator=generator, dtype=torch.float64)
        rate, stderr = best_constant_rate(
            [Along(s, c) for s, c in zip(slopes.tolist(), curvatures.tolist(), strict=True)]
        )
        held += abs(rate - 0.3) <= 1.96 * stderr
    assert 0.88 <= held / 400 <= 0.98


def test_no_curvature_no_rate() -> None:
    assert math.isnan(Along(1.0, 0.0).rate)
    assert all(map(math.isnan, best_constant_rate([Along(1.0, 0.0)])))
    assert all(map(math.isnan, best_constant_rate([Along(1.0, -2.0), Along(1.0, 1.0)])))
