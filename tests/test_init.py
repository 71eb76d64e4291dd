"""Second moments of freshly initialised weights against the formulas, written out by hand."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from transformers.pytorch_utils import Conv1D

from hessdiag import diagnose, init
from hessdiag.errors import HessdiagError
from hessdiag.models import StridedLeNet, mlp
from tests.networks import PLAIN

SCHEMES = ("fan-in", "fan-out", "arithmetic", "geometric")

# (layer, n, n', kernel, groups): channels that one output reads, channels that one input feeds.
LAYERS = {
    "linear": (lambda: nn.Linear(300, 100), 300, 100, (), 1),
    "transformers linear": (lambda: Conv1D(100, 300), 300, 100, (), 1),
    "conv1d": (lambda: nn.Conv1d(40, 80, 9), 40, 80, (9,), 1),
    "conv2d": (lambda: nn.Conv2d(16, 64, 5, stride=2, padding=1), 16, 64, (5, 5), 1),
    "conv2d rectangular": (lambda: nn.Conv2d(30, 60, (1, 7)), 30, 60, (1, 7), 1),
    "conv2d groups": (lambda: nn.Conv2d(64, 32, 5, groups=4), 16, 8, (5, 5), 4),
    "depthwise": (lambda: nn.Conv2d(100, 400, 7, groups=100), 1, 4, (7, 7), 100),
    "conv3d": (lambda: nn.Conv3d(10, 20, (2, 4, 8)), 10, 20, (2, 4, 8), 1),
    "transposed 1d": (lambda: nn.ConvTranspose1d(80, 40, 9), 80, 40, (9,), 1),
    "transposed 2d": (lambda: nn.ConvTranspose2d(16, 64, 5), 16, 64, (5, 5), 1),
    "transposed 2d groups": (lambda: nn.ConvTranspose2d(64, 32, 5, groups=4), 16, 8, (5, 5), 4),
    "transposed 3d": (lambda: nn.ConvTranspose3d(10, 20, 4), 10, 20, (4, 4, 4), 1),
}


def by_hand(scheme: str, n: float, m: float, kernel: tuple[int, ...], groups: int) -> float:
    """E[W²] of a network of this one layer: a convolution's k is the typical one, so that c = 2 / k."""
    k_sq = math.prod(kernel)
    return {
        "fan-in": 2 / (n * k_sq), "fan-out": 2 / (m * k_sq), "arithmetic": 2 / ((n + m) / 2 * k_sq),
        "geometric": 2 / (k_sq * (n * m * groups) ** 0.5), "fan-geo-avg": 2 / (k_sq * (n * m) ** 0.5),
    }[scheme]  # fmt: skip


def assert_second_moment(weight: torch.Tensor, expected: float) -> None:
    """Within four standard errors of the mean of P squared normal numbers."""
    weight = weight.detach().double()
    P = weight.numel()
    assert float(weight.square().mean()) == pytest.approx(expected, rel=4 * math.sqrt(2 / P))
    assert abs(float(weight.mean())) < 4 * math.sqrt(expected / P)


def source(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("scheme", [*SCHEMES, "fan-geo-avg"])
def test_second_moments_are_those_of_the_formula(scheme: str, layer: str) -> None:
    make, *sizes = LAYERS[layer]
    model = nn.Sequential(make())
    assert init.apply(model, scheme, generator=source(0)) is model
    assert_second_moment(model[0].weight, by_hand(scheme, *sizes))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_orthogonal_variants_have_the_same_second_moment_exactly(scheme: str, layer: str) -> None:
    make, *sizes = LAYERS[layer]
    model = nn.Sequential(make()).double()
    init.apply(model, f"{scheme}-orthogonal", generator=source(0))
    weight = model[0].weight.detach()
    assert float(weight.square().mean()) == pytest.approx(by_hand(scheme, *sizes), rel=1e-12)
    for matrix in weight.chunk(sizes[-1]):
        rows = matrix.flatten(1)
        gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
        torch.testing.assert_close(gram, gram[0, 0] * torch.eye(len(gram), dtype=gram.dtype), atol=1e-10, rtol=1e-10)


def test_groups_have_the_curvature_of_the_layers_around_them() -> None:
    """γ = ς / (P E[W²]²): with E[W²] = c / √(n n') / k, n and n' of one group, the grouped layer's is 8 times less."""
    logs = []
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, bias=False), nn.ReLU(), nn.Conv2d(16, 32, 3, groups=8, stride=2, bias=False),
            nn.ReLU(), nn.Conv2d(32, 16, 3, stride=2, bias=False), nn.Flatten(),
        )  # fmt: skip
        report = diagnose(init.apply(model, "geometric"), torch.randn(4, 3, 32, 32), seed=seed, **PLAIN)
        logs.append([math.log(block.avg_sq_singular_value) for block in report.blocks])
    first, grouped, last = (math.exp(sum(column) / len(column)) for column in zip(*logs, strict=True))
    assert 0.5 < grouped / first < 2
    assert 0.5 < grouped / last < 2


def normalised(norm) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), norm(nn.Linear(4, 4)))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: init.apply(mlp([4, 3]), "fan-in", c=1.0), "c=1.0 with 'fan-in': c is a positive constant of geometric"),
    (lambda: init.apply(mlp([4, 3]), "geometric", c=-1.0), "c=-1.0 with 'geometric': c is a positive constant"),
    (lambda: init.apply(mlp([4, 3]), "geometric", c="2"), "c='2' with 'geometric': c is a positive constant"),
    (lambda: init.apply(mlp([4, 3]), "geometric", c=math.nan), "c=nan with 'geometric': c is a positive constant"),
    (lambda: init.geometric_mean_(torch.empty(4, 2, 3, 3), groups=3), "has no 3 groups"),
    (lambda: init.geometric_mean_(torch.empty(4, 2, 3, 3), groups=0), "has no 0 groups"),
    (lambda: init.geometric_mean_(torch.zeros(())), "no fan-in: pass at least two dimensions"),
    (lambda: init.geometric_mean_(torch.zeros(3)), "no fan-in: pass at least two dimensions"),
    (lambda: init.apply(normalised(parametrizations.weight_norm), "fan-in"), "layer '1' computes its weight from"),
    (lambda: init.apply(normalised(parametrizations.orthogonal), "fan-in"), "layer '1' computes its weight from"),
])  # fmt: skip
def test_what_cannot_be_initialised_is_refused(call, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        call()


@pytest.mark.parametrize("scheme", ["geometric", "fan-in-orthogonal"])
def test_a_generator_makes_it_repeatable_and_is_used_alone(scheme: str) -> None:
    def weights(seed: int | None) -> torch.Tensor:
        model = init.apply(mlp([4, 3, 2]), scheme, generator=None if seed is None else source(seed))
        return nn.utils.parameters_to_vector(model.parameters())

    model, before = mlp([4, 3, 2]), torch.get_rng_state()
    init.apply(model, scheme, generator=source(0))
    assert torch.equal(torch.get_rng_state(), before)
    init.apply(model, scheme)  # with torch's own random state
    assert not torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_biases_become_zero_and_other_parameters_stay() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.PReLU(), nn.Flatten(), nn.Linear(12, 2))
    nn.init.constant_(model[1].bias, 7.0)
    old = model[0].weight.detach().clone()
    init.apply(model, "geometric")
    assert not model[0].bias.any()
    assert not torch.equal(model[0].weight, old)
    found = [each.tolist() for each in (model[1].bias, model[1].weight, model[2].weight, model[4].bias)]
    assert found == [[7.0] * 3, [1.0] * 3, [0.25], [0.0] * 2]
    assert all(p.requires_grad and p.grad_fn is None for p in model.parameters())


def test_lenet_has_two_fifths_in_every_layer_and_the_constant_can_be_given() -> None:
    model = init.apply(nn.Sequential(nn.Conv2d(30, 60, 3)), "geometric", c=0.7, generator=source(0))
    assert_second_moment(model[0].weight, 0.7 / (3 * 1800**0.5))
    model = StridedLeNet()
    init.apply(model, "geometric", generator=source(0))
    sizes = {"conv1": (3, 6, 5), "conv2": (6, 16, 5), "fc1": (400, 120, 1), "fc2": (120, 84, 1), "fc3": (84, 10, 1)}
    for name, (n, m, k) in sizes.items():
        assert_second_moment(model.get_submodule(name).weight, 0.4 / (k * math.sqrt(n * m)))


@pytest.mark.parametrize(("model", "typical"), [
    (lambda: StridedLeNet(), 5.0), (lambda: mlp([4, 3, 2]), 1.0),
    (lambda: nn.Sequential(nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 7)), 3.0),
    (lambda: nn.Sequential(nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 7)), 7.0), (lambda: nn.Conv2d(1, 1, (1, 9)), 3.0),
])  # fmt: skip
def test_the_typical_kernel_is_the_commonest_the_larger_of_two(model, typical: float) -> None:
    assert init.typical_kernel(model()) == typical
