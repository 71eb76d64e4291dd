"""Every rule, forward and backward, against simulation on random networks."""

import math

import pytest
import torch
from layers import SETTINGS, Mark, network
from torch import nn

from hessdiag.calculus import RULES, predict
from hessdiag.network.torch_state import seed_torch
from tests.networks import Net

DRAWS, BATCH = 24, 8


def _simulate(build, size, seed):
    """(E[y²] / E[x²], E[Δx²] / E[Δy²]) of the operation of one random network."""
    seed_torch(seed)
    before, operation, behind = build()
    x = before(torch.randn(BATCH, *size)).detach().requires_grad_()
    y = operation(x)
    outputs = behind(y)
    loss = ((outputs @ torch.randn(outputs.shape[1], outputs.shape[1])) * outputs).sum()
    dx, dy = torch.autograd.grad(loss, (x, y))
    square = [float(t.detach().double().square().mean()) for t in (x, y, dx, dy)]
    return square[1] / square[0], square[2] / square[3]


def _check(build, size, *, rel=0.05, init=None):
    simulated = torch.tensor([_simulate(build, size, seed) for seed in range(DRAWS)], dtype=torch.float64).log()
    torch.manual_seed(0)
    before, operation, behind = build()
    prediction = predict(nn.Sequential(before, Mark(), operation, Mark(), behind), size, init=init)
    assert not prediction.unsupported
    first, second = prediction.block("1.u"), prediction.block("3.u")
    forward, backward = second.x_sq / first.x_sq, first.x_gradient_sq / second.x_gradient_sq
    error = 4 * simulated.std(0) / math.sqrt(DRAWS)
    for found, expected, bound in zip((forward, backward), simulated.mean(0), error, strict=True):
        assert abs(math.log(found) - float(expected)) < float(bound) + rel


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting.row}, {setting.detail}, {setting.reads}")
def test_every_setting_of_table_1(setting):
    _check(lambda: network(setting, exact=True)[:3], network(setting)[3])


def cut(function, *layers):
    return Net(lambda m, x: m.function(x, *m.layers), function=function, layers=nn.ModuleList(layers))


def _image(operation):
    """The operation between ReLU outputs of a convolution and a linear layer."""

    def build():
        before = nn.Sequential(nn.Conv2d(3, 32, 3, bias=False), nn.ReLU())
        nn.init.kaiming_normal_(before[0].weight)
        inner = operation()
        with torch.no_grad():
            width = inner(before(torch.zeros(1, 3, 10, 10))).numel()
        return before, inner, nn.Sequential(nn.Flatten(), nn.Linear(width, 10, bias=False))

    return build


def _conv(n, m, k, **options):
    layer = nn.Conv2d(n, m, k, bias=False, **options)
    nn.init.kaiming_normal_(layer.weight)
    return layer


OPERATIONS = {
    "groups": lambda: _conv(32, 64, 3, groups=4), "depthwise, padded": lambda: _conv(32, 32, 3, groups=32, padding=1),
    "dilation": lambda: _conv(32, 32, 3, dilation=2, padding=2), "wide padding": lambda: _conv(32, 32, 3, padding=3),
    "same padding": lambda: _conv(32, 32, 3, padding="same", dilation=2), "flatten": lambda: nn.Flatten(),
    "permute and slice": lambda: cut(lambda x: x.permute(0, 2, 3, 1)[:, 1:5]),
    "chunk, scaled apart, concatenated": lambda: cut(
        lambda x: torch.cat([2 * a if i else a for i, a in enumerate(x.chunk(2, 1))], 1)),
    "sum of two kernels": lambda: cut(lambda x, a, b: a(x) + 0.5 * b(x), _conv(32, 8, 1), _conv(32, 8, 3, padding=1)),
    "stack and mean": lambda: cut(lambda x: torch.stack([x, -x], 1)[:, 0]),
    "global mean": lambda: cut(lambda x: x.mean((2, 3))), "overlapping average": lambda: nn.AvgPool2d(3, 1, 1),
    "adaptive average": lambda: nn.AdaptiveAvgPool2d(2), "batch norm, eval": lambda: nn.BatchNorm2d(32).eval(),
    "twice itself": lambda: cut(lambda x: x + x), "minus": lambda: cut(lambda x, a: a(x) - 0.5 * x, _conv(32, 32, 1)),
    "divided": lambda: cut(lambda x: x / 3),
    "in place": lambda: cut(lambda x, a: a(x).mul_(2).relu_(), _conv(32, 16, 3)),
    "zero padding": lambda: nn.ZeroPad2d(2),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_images(name):
    _check(_image(OPERATIONS[name]), (3, 10, 10), init="fan-in")


def _vector(operation, gain=1.0):
    def build():
        before = nn.Linear(100, 128, bias=False)
        nn.init.normal_(before.weight, std=gain / 10)
        return before, operation(), nn.Linear(128, 10, bias=False)

    return build


def sine():
    return cut(torch.sin)


KINDS = (nn.GELU, nn.SiLU, nn.ELU, nn.Softplus, nn.Mish, nn.ReLU6, nn.Hardswish, nn.PReLU, nn.SELU, sine)


@pytest.mark.parametrize("operation", KINDS, ids=lambda kind: kind.__name__)
def test_nonlinearities(operation):
    _check(_vector(operation, 2.0), (100,))


def test_normalisations() -> None:
    _check(_vector(lambda: nn.Sequential(nn.ReLU(), nn.LayerNorm(128)), 3.0), (100,))
    _check(_image(lambda: nn.GroupNorm(4, 32)), (3, 10, 10), rel=0.15)  # normalises over positions too


@pytest.mark.parametrize(("kind", "size"), [(nn.Conv1d, (3, 40)), (nn.Conv3d, (3, 6, 6, 6))])
def test_convolutions_in_other_dimensions(kind, size):
    def build():
        before = nn.Sequential(kind(3, 16, 3), nn.ReLU())
        operation = kind(16, 16, 3, stride=2, padding=1, bias=False)
        with torch.no_grad():
            width = operation(before(torch.zeros(1, *size))).numel()
        return before, operation, nn.Sequential(nn.Flatten(), nn.Linear(width, 10))

    _check(build, size)


@pytest.mark.parametrize(("operation", "forward", "backward"), [
    (nn.ReLU, 1 / 2, 1 / 2), (lambda: nn.LeakyReLU(0.5), 5 / 8, 5 / 8), (nn.Tanh, 1, 1),
    (lambda: nn.Dropout(0.5), 2, 2), (lambda: cut(lambda x: 3 * x), 9, 9), (lambda: nn.AvgPool2d(2), 1 / 4, 1 / 16),
    (lambda: nn.AdaptiveAvgPool2d(1), 1 / 64, 1 / 64**2),
    (lambda: nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(64)), 1 / 4, 1 / 16),  # of rows, without channels
])  # fmt: skip
def test_the_papers_own_rules(operation, forward, backward):
    layers = [nn.Conv2d(3, 4, 3, bias=False), Mark(), operation(), Mark(), nn.Flatten(), nn.LazyLinear(10)]
    whole = nn.Sequential(*layers)
    whole.train()(torch.zeros(2, 3, 10, 10))
    prediction = predict(whole, (3, 10, 10), moments="paper")
    first, second = prediction.block("1.u"), prediction.block("3.u")
    assert second.x_sq / first.x_sq == pytest.approx(forward)
    assert first.x_gradient_sq / second.x_gradient_sq == pytest.approx(backward)


def test_precision_and_detached_gradients() -> None:
    build = lambda function: nn.Sequential(nn.Linear(7, 5), cut(function), nn.Linear(5, 3))  # noqa: E731
    rounded, plain = build(lambda x: x.bfloat16().float()), build(lambda x: x)
    gammas = [predict(each, (7,), init="fan-out").blocks[-1].gamma for each in (rounded, plain)]
    assert gammas[0] == gammas[1]
    model = nn.Sequential(nn.Linear(4, 5, bias=False), cut(lambda x: x + 3 * x.detach()), nn.Linear(5, 3, bias=False))
    first, last = predict(model, (4,), init="fan-in").blocks
    assert last.x_sq == pytest.approx(10 * first.out_sq)
    assert first.out_gradient_sq == pytest.approx(last.x_gradient_sq)


@pytest.mark.parametrize("moments", ["paper", "kernel"])
def test_a_convolution_by_hand(moments):
    # kernel = stride: n k² E[W²] E[x²] forward and n' k² E[W²] E[Δ²] over k² positions backward
    model = nn.Sequential(nn.Conv2d(3, 5, 2, 2, bias=False), nn.Flatten(), nn.Linear(20, 2, bias=False))
    first, last = predict(model, (3, 4, 4), init="fan-in", moments=moments).blocks
    assert first.out_sq == pytest.approx(2.0)
    assert last.out_sq == pytest.approx(4.0)
    assert last.out_gradient_sq == pytest.approx(6 * 4.0)  # (2 N + 2) E[y²], N = 2
    assert last.x_gradient_sq == pytest.approx(2 * (2 / 20) * 24)
    assert first.x_gradient_sq == pytest.approx(5 * (2 / 12) * last.x_gradient_sq)


def test_the_table_says_what_the_paper_says():
    verdicts = {rule.operation: rule.maintains[0] for rule in RULES if "Table 1" in rule.source}
    kept = {"linear layer", "convolution", "skip connection, sum", "average pooling", "dropout", "ReLU", "leaky ReLU"}
    assert {name for name, verdict in verdicts.items() if verdict == "✓"} == kept
    assert {name for name, verdict in verdicts.items() if verdict == "✗"} == {"max pooling", "sigmoid", "tanh"}


def test_one_position_of_each_example():
    """Picked by token ids, with numbers or without, or always the same: moments of a class token."""

    def taken(at, device="cpu"):
        rule = lambda m, x, ids: m.last(at(m.first(x).tanh(), ids))  # noqa: E731
        model = Net(rule, first=nn.Linear(6, 6, bias=False), last=nn.Linear(6, 3, bias=False)).to(device)
        return predict(model, (x.to(device), ids.to(device)), init="fan-in", loss="mse")

    by_ids = lambda y, ids: y[torch.arange(len(y), device=y.device), ids.argmax(-1)]  # noqa: E731
    x, ids = torch.randn(4, 5, 6).sign(), torch.tensor([[7, 1, 0, 3, 2], [1, 9, 0, 0, 3]] * 2)
    first = taken(lambda y, _: y[:, 2])
    for other in (taken(by_ids), taken(by_ids, "meta")):
        assert not other.unsupported
        for one, same in zip(first.blocks, other.blocks, strict=True):
            for key in ("gamma", "x_sq", "avg_sq_singular_value"):
                assert getattr(one, key) == pytest.approx(getattr(same, key), rel=1e-9)
    permuted, twice = (taken(lambda y, _, at=at: y[:, at].mean(1)) for at in ([3, 0, 4, 1, 2], [0, 0, 1]))
    assert permuted.blocks[0].gamma == pytest.approx(taken(lambda y, _: y.mean(1)).blocks[0].gamma)
    assert [reason for _, reason in twice.unsupported] == ["entries picked several times"]
