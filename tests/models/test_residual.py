"""The paper's networks: their sizes and plans, the signals in them, and that they are measured."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from standard_resnet import ResNet, calibrate
from torch import Tensor, nn

import hessdiag
from hessdiag.init import geometric_mean_
from hessdiag.models import PreconditionedResNet, RescaleNet, StridedLeNet, mlp
from hessdiag.models.residual import ChannelBias, PreconditionedBlock, bottlenecks, centre
from hessdiag.models.sources import resolve_model
from tests.networks import PLAIN, Net

NETWORKS = (PreconditionedResNet, RescaleNet, ResNet)


def convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [m for m in model.modules() if isinstance(m, nn.Conv2d)]


def after_blocks(model: nn.Module, x: Tensor) -> list[float]:
    seen: list[float] = []
    for block in model.blocks:
        block.register_forward_hook(lambda m, a, y: seen.append(float(y.square().mean())))
    with torch.no_grad():
        model(x)
    return seen


@pytest.mark.parametrize("network", NETWORKS)
def test_depth_counts_the_weight_layers_of_the_longest_path(network) -> None:
    with torch.device("meta"):
        for depth, side in ((50, 224), (26, 32)):
            assert len(convolutions(network(depth, side=side, width=0.25))) == depth - 1 + 4  # with the shortcuts


def test_plans_have_the_sizes_and_weights_of_the_libraries_and_of_rescalenet() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in ResNet(50).parameters()) == 25_557_032
    plan = bottlenecks(50, base=64)
    assert len(plan) == 16
    assert (plan[0].alpha, plan[-1].alpha) == pytest.approx((math.sqrt(15 / 16), math.sqrt(30 / 31)))
    assert all(b.alpha**2 + b.beta**2 == pytest.approx(1) for b in plan)
    assert [b.fan_out for b in plan] == [256] * 3 + [512] * 4 + [1024] * 6 + [2048] * 3
    assert ([b.stride for b in plan].count(2), [b.projects for b in plan].count(True)) == (3, 4)
    with pytest.raises(hessdiag.HessdiagError, match="depth 18: there are residual networks of depth 14, 26, 50"):
        ResNet(18)
    # Fan-in initialisation times ((k + 1) / L)^(−1/6) for k = L − 1, ..., 2L − 2.
    for number, block in enumerate(RescaleNet(14, side=224).blocks):
        factor = ((4 + number) / 4) ** (-1 / 6)
        for conv in convolutions(block.main):
            expected = 2 / conv.weight[0].numel() * factor**2
            assert float(conv.weight.detach().square().mean()) == pytest.approx(expected, rel=0.1)
        assert block.residual == 0.5


@pytest.mark.parametrize(("number", "curvature"), [(0, False), (1, True), (2, False)])
def test_both_branches_of_a_preconditioned_block_keep_the_second_moment(number: int, curvature: bool) -> None:
    """E[F(x)²] = E[S(x)²] = E[x²] for inputs that the theory speaks of: centred, uncorrelated; mean of 12 networks."""
    plan, sums = bottlenecks(14, base=16)[number], torch.zeros(3)
    for _ in range(12):
        block = PreconditionedBlock(plan, curvature=curvature)
        x = torch.randn(2, plan.fan_in, 16, 16)
        with torch.no_grad():
            sums += torch.stack([y.square().mean() for y in (block.shortcut(x), block.main(x), block(x))]) / 12
    assert sums.tolist() == pytest.approx([1, 1, 1], rel=0.25)


def test_constants_and_printed_multipliers_of_a_block_are_those_of_the_paper() -> None:
    plan = bottlenecks(14, base=32)[1]
    for printed, pooled, curvature, power in ((False, 1, False, 1), (True, 4, False, 1), (False, 1, True, 2)):
        block = PreconditionedBlock(plan, printed=printed, curvature=curvature)
        constants = [plan.alpha**power / pooled, *[plan.beta**power] * 3]
        for conv, c in zip(convolutions(block), constants, strict=True):
            n, m, k = conv.in_channels, conv.out_channels, conv.kernel_size[0]
            assert float(conv.weight.detach().square().mean()) == pytest.approx(c / (k * math.sqrt(n * m)), rel=0.1)
    n, m, alpha, beta = plan.fan_in, plan.fan_out, plan.alpha, plan.beta
    block = PreconditionedBlock(plan, printed=True)
    main = [float(s.factor) for s in block.main if hasattr(s, "factor")]
    expected = [beta**0.5, (2 / beta) ** 0.5, (2 / (3 * beta)) ** 0.5, (2 / beta) ** 0.5, beta**-0.5]
    assert main == pytest.approx([*expected, (m / (beta * n)) ** 0.5])
    assert float(block.shortcut[-1].factor) == pytest.approx((alpha / 4) ** -0.5)
    assert float(block.main[-2].v.detach()) == pytest.approx(beta**0.5)


def test_signals_keep_their_size_from_block_to_block() -> None:
    """Within a factor 2 of the design, with the biases centred as in RescaleNet; mean of 6 networks."""
    source = resolve_model("preconditioned-resnet14")
    rows = [after_blocks(source.build().module, torch.randn(4, 3, 32, 32)) for _ in range(6)]
    n, m, k = 3, 16, 3
    design = math.sqrt(n / m) / math.sqrt(n * k**2)
    for moment in torch.tensor(rows).mean(dim=0).tolist():
        assert design / 2 < moment < 2 * design


def test_centring_and_calibration_standardise_the_batch_that_they_saw() -> None:
    network, x = PreconditionedResNet(14, side=32).eval(), torch.randn(8, 3, 32, 32)
    centre(network, x)
    means: list[Tensor] = []
    for module in network.modules():
        if isinstance(module, ChannelBias):
            module.register_forward_hook(lambda m, a, y: means.append(y.mean(dim=[0, 2, 3]).abs().max() / y.std()))
    with torch.no_grad():
        network(x)
    assert len(means) == 4 * 4 + 1
    assert all(float(mean) < 1e-4 for mean in means)
    network, x = ResNet(14, side=32), torch.randn(8, 3, 32, 32)
    calibrate(network, x)
    assert not network.training
    seen: list[Tensor] = []
    network.stem.register_forward_hook(lambda m, a, y: seen.append(y))
    with torch.no_grad():
        network(x)
    assert seen[0].mean(dim=(0, 2, 3)).abs().max() < 1e-4
    torch.testing.assert_close(seen[0].var(dim=(0, 2, 3)), torch.ones(16), rtol=1e-3, atol=1e-3)
    assert network.stem[1].momentum == 0.1


@pytest.mark.parametrize("name", ["preconditioned-resnet14", "rescalenet14", "alexnet"])
def test_small_networks_are_measured_whole(name: str) -> None:
    network = resolve_model(name, arguments={"width": 0.1}).build()
    for parameter in network.module.parameters():
        parameter.requires_grad_(parameter.dim() > 1)
    report = hessdiag.diagnose(network.module, torch.randn(2, *network.input_size), **PLAIN)
    assert len(report.weights) == len([p for p in network.module.parameters() if p.dim() > 1])
    assert all(block.avg_sq_singular_value > 0 for block in report.weights)
    assert all(math.isfinite(block.gamma) for block in report.weights)


@pytest.mark.parametrize("name", ["alexnet", "rescalenet14"])
def test_width_scales_the_hidden_layers(name: str) -> None:
    wide, narrow = (resolve_model(name, arguments={"width": w}).build().module for w in (0.5, 0.25))
    pairs = list(zip(convolutions(wide), convolutions(narrow), strict=True))
    assert all(a.out_channels == 2 * b.out_channels for a, b in pairs)
    assert wide(torch.randn(1, 3, 32, 32)).shape == narrow(torch.randn(1, 3, 32, 32)).shape == (1, 10)


def test_gamma_does_not_see_how_little_a_branch_contributes() -> None:
    """With c = β on a branch of weight β, γ is level and σ² is β² times that outside; c = β² levels σ² (12 trials)."""
    beta = 0.5

    def branched(c: float) -> nn.Module:
        sizes = {"first": (20, 60, 1.0), "branch": (60, 60, c), "last": (60, 10, 1.0)}
        layers = {name: nn.Linear(n, m, bias=False) for name, (n, m, _) in sizes.items()}
        for name, (_, _, constant) in sizes.items():
            geometric_mean_(layers[name].weight, c=constant)
        branch = lambda m, x: m.branch(math.sqrt(2 / c) * x.relu())  # noqa: E731
        whole = lambda m, x: m.last(math.sqrt(1 - beta**2) * x + beta * branch(m, x))  # noqa: E731
        return Net(lambda m, x: whole(m, m.first(x)), **layers)

    for c, gamma, sigma in ((beta, 1.0, beta**2), (beta**2, beta**-2, 1.0)):
        rows = []
        for seed in range(12):
            torch.manual_seed(seed)
            report = hessdiag.diagnose(branched(c), torch.randn(8, 20), seed=seed, **PLAIN)
            rows.append([(block.gamma, block.avg_sq_singular_value) for block in report.weights])
        first, branch, _ = torch.tensor(rows).mean(dim=0).tolist()
        assert (branch[0] / first[0], branch[1] / first[1]) == pytest.approx((gamma, sigma), rel=0.25)


@pytest.mark.parametrize(("channels", "classes"), [(3, 10), (1, 7)])
def test_weights_have_lenets_sizes_and_there_is_no_bias(channels: int, classes: int) -> None:
    assert {name: tuple(p.shape) for name, p in StridedLeNet(channels, classes).named_parameters()} == {
        "conv1.weight": (6, channels, 5, 5), "conv2.weight": (16, 6, 5, 5), "fc1.weight": (120, 400),
        "fc2.weight": (84, 120), "fc3.weight": (classes, 84),
    }  # fmt: skip


def test_lenet_is_relu_between_five_products_and_perceptrons_flatten_images() -> None:
    model, x = StridedLeNet().double(), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    W = list(model.parameters())
    h = F.conv2d(F.conv2d(x, W[0], stride=2).clamp(min=0), W[1], stride=2).clamp(min=0).flatten(1)
    for weight in W[2:4]:
        h = (h @ weight.T).clamp(min=0)
    torch.testing.assert_close(model(x), h @ W[4].T, rtol=1e-12, atol=1e-12)
    assert bool((model(x) < 0).any())
    model, x = mlp([12, 2]), torch.randn(5, 3, 2, 2)
    assert torch.equal(model(x), model(x.reshape(5, 12)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [[4, 3], [4, 5, 3], [7, 1, 6, 2]])
def test_sizes_and_a_relu_between_layers_and_not_after_the_last(widths: list[int], bias: bool) -> None:
    model, expected = mlp(widths, bias=bias).double(), {}
    for i, (n, m) in enumerate(pairwise(widths), start=1):
        expected |= {f"fc{i}.weight": (m, n)} | ({f"fc{i}.bias": (m,)} if bias else {})
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == expected
    x = h = torch.randn(9, widths[0], dtype=torch.float64)
    for number, layer in enumerate(m for m in model if isinstance(m, nn.Linear)):
        h = F.linear(h.clamp(min=0) if number else h, layer.weight, layer.bias)
    torch.testing.assert_close(model(x), h, rtol=1e-12, atol=1e-12)
