"""A measurement leaves no trace: model, gradients, hooks, modes, random state and settings are as before."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.network.preserve import preserve_state
from tests.networks import build
from tests.unchanged import HOOKS, unchanged

WAYS = [
    {"method": "exact", "per": "example", "matrix": "ggn"},
    {"method": "exact", "per": "batch", "matrix": "ggn"},
    {"method": "probe", "per": "example", "matrix": "hessian"},
    {"method": "probe", "per": "batch", "matrix": "ggn"},
]

every_way = pytest.mark.parametrize("options", WAYS, ids=lambda options: " ".join(options.values()))


class Everything(nn.Module):
    """Convolution, running statistics, dropout, a shared and a frozen weight, a scalar, an unused layer, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 2)
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(0.5)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.gain = nn.Parameter(torch.tensor(0.7))
        self.unused, self.last = nn.Linear(3, 3), nn.Linear(8, 3)
        self.last.bias.requires_grad_(False)
        self.register_buffer("undefined", torch.tensor([float("nan"), 1.0]))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.norm(self.conv(x)).relu()).flatten(1)
        return self.last(self.gain * self.second(self.first(x).relu()).relu())


@pytest.fixture
def model() -> nn.Module:
    """In evaluation, but for one layer; with gradients of a training step on some parameters."""
    model = Everything()
    model(torch.randn(6, 1, 3, 3, dtype=torch.float64)).sum().backward()
    model.first.bias.grad = None
    model.eval()
    model.unused.train()
    return model


X = torch.linspace(-1, 1, 27, dtype=torch.float64).view(3, 1, 3, 3)


def test_the_state_that_is_compared_sees_a_change(model: nn.Module) -> None:
    """The tests below are only as good as `state_of`."""
    changes: list[Callable[[], object]] = [
        lambda: model.first.weight.data.add_(1e-16),
        lambda: model.norm.running_mean.add_(1.0),
        lambda: setattr(model.norm, "running_var", model.norm.running_var.clone()),
        lambda: setattr(model.conv.weight, "grad", model.conv.weight.grad.clone()),
        lambda: model.conv.weight.grad.add_(1.0),
        lambda: setattr(model.last.weight, "grad", None),
        lambda: model.last.bias.requires_grad_(True),
        lambda: model.train(),
        lambda: model.conv.register_forward_hook(print),
        lambda: model.conv.register_forward_pre_hook(print),
        lambda: model.conv.register_full_backward_hook(print),
        lambda: torch.rand(1),
        lambda: model.gain.detach().mul_(1.0),
    ]
    assert len(HOOKS) >= 8
    for change in changes:
        with pytest.raises(AssertionError), unchanged(model):
            change()


@every_way
def test_a_measurement_leaves_no_trace(options: dict[str, str], model: nn.Module) -> None:
    with unchanged(model, X):
        report = hessdiag.diagnose(model, X, max_products=4, **options)
    assert len(report.blocks) == 9
    assert report.method == options["method"]


@pytest.mark.parametrize("network", ["conv groups", "inplace relu", "tied", "two paths", "called twice", "multiplier"])
@pytest.mark.parametrize("options", [WAYS[0], WAYS[2]], ids=["exact", "probe"])
def test_nor_does_one_of_another_network(options: dict[str, str], network: str) -> None:
    model, x = build(network, batch=2)
    with unchanged(model, x):
        hessdiag.diagnose(model, x, max_products=4, **options)


@pytest.mark.parametrize(
    ("loss", "options"), [("cross-entropy", WAYS[0]), ("mse", WAYS[1]), ("mse", WAYS[2]), ("cross-entropy", WAYS[3])]
)
def test_targets_are_left_alone(options: dict[str, str], loss: str, model: nn.Module) -> None:
    targets = torch.tensor([0, 2, 1]) if loss == "cross-entropy" else torch.randn(3, 3, dtype=torch.float64)
    with unchanged(model, X, targets):
        hessdiag.diagnose(model, X, targets, loss=loss, max_products=4, **options)


def test_inputs_that_need_a_gradient_get_none(model: nn.Module) -> None:
    x = X.clone().requires_grad_()
    with unchanged(model, x):
        hessdiag.diagnose(model, x)
    assert x.grad is None


def test_a_dry_run_leaves_no_trace(model: nn.Module) -> None:
    with unchanged(model, X):
        hessdiag.describe(model, X)


@every_way
def test_running_statistics_are_put_back_when_training_mode_is_refused(
    options: dict[str, str], model: nn.Module
) -> None:
    model.train()
    with unchanged(model, X), pytest.raises(hessdiag.HessdiagError, match="training mode"):
        hessdiag.diagnose(model, X, **options)
    with unchanged(model, X):
        hessdiag.describe(model, X)


class Fails:
    """Passes what it is given through, until its n-th call raises."""

    def __init__(self, calls: int, error: BaseException) -> None:
        self.left, self.error = calls, error

    def __call__(self, *values: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return values[-1]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("where", ["model", "loss"])
@every_way
def test_nor_does_a_call_that_fails(
    options: dict[str, str], where: str, calls: int, error: type[BaseException], model: nn.Module
) -> None:
    fails = Fails(calls, error("user's"))
    loss: Any = "random-quadratic"
    if where == "model":
        model.last.register_forward_hook(lambda module, args, y: fails(y))
    else:
        loss = lambda y, t: fails(y).square().mean()  # noqa: E731
    with unchanged(model, X), pytest.raises(error, match="user's"):
        hessdiag.diagnose(model, X, loss=loss, max_products=4, **options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rtol": -1.0},
        {"loss": "none"},
        {"loss": "mse"},
        {"loss": "cross-entropy", "targets": torch.tensor([0, 99, 1])},
        {"loss": lambda y, t: y.square()},
        {"inputs": X[:, :, :2]},
        {"inputs": X.float()},
        {"inputs": X / 0},
    ],
)
@every_way
def test_nor_does_a_refusal(options: dict[str, str], wrong: dict[str, Any], model: nn.Module) -> None:
    arguments = {"inputs": X} | wrong | options
    with unchanged(model), pytest.raises((hessdiag.HessdiagError, RuntimeError)):
        hessdiag.diagnose(model, **arguments)


@every_way
def test_without_gradients_the_result_is_the_same(options: dict[str, str], model: nn.Module) -> None:
    expected = hessdiag.diagnose(model, X, max_products=4, **options)
    with torch.no_grad(), unchanged(model, X):
        report = hessdiag.diagnose(model, X, max_products=4, **options)
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert report == expected


@every_way
def test_the_users_hooks_run_and_stay(options: dict[str, str], model: nn.Module) -> None:
    ran = set()
    without = hessdiag.diagnose(model, X, max_products=4, **options)
    model.first.register_forward_hook(lambda *_: ran.add("forward"))
    model.first.register_forward_hook(lambda *_, **__: ran.add("with kwargs"), with_kwargs=True)
    model.first.register_forward_pre_hook(lambda *_: ran.add("before"))
    model.second.register_forward_hook(lambda module, args, y: 2 * y)
    model.last.weight.register_hook(lambda g: ran.add("gradient"))
    with unchanged(model, X):
        report = hessdiag.diagnose(model, X, max_products=4, **options)
    assert ran >= {"forward", "with kwargs", "before"}
    last, last_without = (r.heatmap.normalized()[r.heatmap.names.index("last.weight")][-1] for r in (report, without))
    assert last == pytest.approx(16 * last_without, rel=1e-10)  # ‖G‖² of S ⊗ x xᵀ is of fourth order in x


@pytest.mark.parametrize("cudnn", [True, False])
@pytest.mark.parametrize("matmul", [True, False])
def test_tf32_is_off_inside_and_as_it_was_outside(cudnn: bool, matmul: bool, model: nn.Module) -> None:
    saved = (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    seen = set()
    model.conv.register_forward_hook(
        lambda *_: seen.add((torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32))
    )
    try:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = cudnn, matmul
        with unchanged(model, X):
            hessdiag.diagnose(model, X)
        with unchanged(model, X), pytest.raises(hessdiag.HessdiagError):
            hessdiag.diagnose(model, X, loss="mse")
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = saved
    assert seen == {(False, False)}


@pytest.mark.parametrize("method", ["exact", "probe"])
def test_the_random_state_before_does_not_matter(method: str, model: nn.Module) -> None:
    reports = []
    for before, seed in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(before)
        reports.append(hessdiag.diagnose(model, X, method=method, max_products=4, seed=seed))
    assert reports[0] == reports[1]
    assert reports[0].blocks != reports[2].blocks


def test_buffers_that_a_forward_pass_left_alone_keep_their_version(model: nn.Module) -> None:
    before = {name: b._version for name, b in model.named_buffers() if not b.isnan().any()}
    hessdiag.diagnose(model, X)
    assert {name: b._version for name, b in model.named_buffers() if not b.isnan().any()} == before


def test_a_gradient_made_inside_is_taken_away() -> None:
    model = nn.Linear(2, 2)
    model.weight.grad = old = torch.ones(2, 2)
    with unchanged(model), preserve_state(model, seed=0):
        model.weight.grad, model.bias.grad = None, torch.ones(2)
    assert model.weight.grad is old


class Counts(nn.Module):
    """A linear layer that counts its calls, by a new buffer each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.layer(x)


@every_way
def test_buffers_that_are_rebound_are_put_back(options: dict[str, str]) -> None:
    model, x = Counts(), torch.randn(3, 4)
    with unchanged(model):
        hessdiag.diagnose(model, x, max_products=4, **options)


def test_a_lazy_layer_is_refused_and_stays_lazy() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LazyLinear(3))
    with pytest.raises(hessdiag.HessdiagError, match="run the model once"):
        hessdiag.diagnose(model, torch.randn(3, 4))
    assert isinstance(model[2], nn.LazyLinear)


def test_inference_mode_is_left_and_entered_again() -> None:
    model, x = build("mlp")
    expected = hessdiag.diagnose(model, x)
    with torch.inference_mode(), unchanged(model):
        assert hessdiag.diagnose(model, x) == expected


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_are_in_full_precision_inside_and_as_they_were_outside(precision: str) -> None:
    """`medium` is bfloat16 on processors that have it."""
    model, x = build("mlp")
    seen = set()
    model.register_forward_hook(lambda *_: seen.add(torch.get_float32_matmul_precision()))
    try:
        torch.set_float32_matmul_precision(precision)
        hessdiag.diagnose(model, x)
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == {"highest"}


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="this PyTorch has none yet")
@pytest.mark.parametrize("kind", ["matmul", "conv", "rnn"])
def test_nothing_is_in_bfloat16_inside_and_onednns_settings_are_as_they_were(kind: str) -> None:
    model, x = build("mlp")
    holder, seen = getattr(torch.backends.mkldnn, kind), set()
    model.register_forward_hook(lambda *_: seen.add(holder.fp32_precision))
    saved = holder.fp32_precision
    try:
        holder.fp32_precision = "bf16"
        hessdiag.diagnose(model, x)
        assert holder.fp32_precision == "bf16"
    finally:
        holder.fp32_precision = saved
    assert seen == {"ieee"}


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this PyTorch has none yet")
def test_the_newer_tf32_settings_are_kept() -> None:
    model, x = build("mlp")
    saved = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        hessdiag.diagnose(model, x)
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = saved


def test_autocast_around_the_call_is_switched_off() -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    expected = hessdiag.diagnose(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
        assert hessdiag.diagnose(model, x) == expected
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("how", ["copy", "in place"])
def test_a_compiled_model_runs_as_it_was_written_and_is_compiled_again_afterwards(how: str) -> None:
    compiled = []

    def backend(graph: torch.fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    model, x = build("residual")
    expected = hessdiag.diagnose(model, x)
    if how == "copy":
        model = torch.compile(model, backend=backend)
    else:
        model.compile(backend=backend)
    with unchanged(model, x):
        report = hessdiag.diagnose(model, x)
    assert not compiled
    assert [b.name for b in report.blocks] == [n for n, _ in model.named_parameters()]
    assert [b.avg_sq_singular_value for b in report.blocks] == [b.avg_sq_singular_value for b in expected.blocks]
    model(x)
    assert compiled


@pytest.mark.parametrize(("shape", "dim"), [((3, 4), 0), ((3, 4), 1), ((3, 4), -1), ((2, 3, 2, 2), 0)])
def test_weight_norm_written_out_is_torchs(shape: tuple[int, ...], dim: int) -> None:
    v = torch.randn(shape, dtype=torch.float64)
    g = torch.randn_like(torch.norm_except_dim(v, 2, dim))
    with preserve_state(nn.Linear(2, 2), seed=0):
        got = torch._weight_norm(v, g, dim)
    torch.testing.assert_close(got, torch._weight_norm(v, g, dim), rtol=1e-14, atol=0)


class Cache:
    """A user's own cache, an attribute of which is filled."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Tensor]] = {}
        self.length = 0


class Fills(nn.Module):
    """A linear layer whose forward pass fills everything that can be filled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.log: list[Any] = ["first"]
        self.shapes: dict[Any, Any] = {"of": {}}
        self.sizes: set[int] = set()
        self.last: deque[Tensor] = deque(maxlen=2)
        self.cache = Cache()
        self.running = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.log.append(y)
        self.shapes["of"][len(self.log)] = y.shape
        self.shapes[len(x)] = y
        self.sizes.add(len(x))
        self.last.append(y)
        self.cache.seen.setdefault("y", []).append(y)
        self.cache.length += 1
        self.running.add_(x.detach().mean(0))
        return y


@every_way
def test_what_a_forward_pass_fills_is_as_before(options: dict[str, str]) -> None:
    model = Fills()
    held = (model.log, model.shapes, model.shapes["of"], model.sizes, model.last, model.cache, model.cache.seen)
    x = torch.randn(3, 4)
    with unchanged(model, x):
        hessdiag.diagnose(model, x, max_products=4, **options)
    now = (model.log, model.shapes, model.shapes["of"], model.sizes, model.last, model.cache, model.cache.seen)
    assert all(one is other for one, other in zip(now, held, strict=True))
    assert model.log == ["first"]
    assert model.shapes == {"of": {}}
    assert not model.sizes
    assert not model.last
    assert vars(model.cache) == {"seen": {}, "length": 0}
    assert not model.running.any()
    model(torch.randn(3, 4))
    assert len(model.log) == 2


def test_what_a_forward_pass_fills_is_as_before_a_failure() -> None:
    model = Fills()
    model.register_forward_hook(Fails(1, ZeroDivisionError("user's")))
    with pytest.raises(ZeroDivisionError):
        hessdiag.diagnose(model, torch.randn(3, 4))
    assert model.log == ["first"]


class Renormalises(nn.Module):
    """An embedding whose forward pass writes to its weight, by a module or by the function."""

    def __init__(self, by_module: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 3, max_norm=0.5 if by_module else None)
        self.by_module, self.last = by_module, nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.table(tokens) if self.by_module else F.embedding(tokens, self.table.weight, max_norm=0.5)
        return self.last(found.mean(1))


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
@pytest.mark.parametrize("by_module", [True, False])
def test_an_embedding_that_renormalises_itself_is_refused(by_module: bool, matrix: str) -> None:
    model, tokens = Renormalises(by_module), torch.tensor([[0, 1], [2, 3]])
    before = model.table.weight.detach().clone()
    with pytest.raises(hessdiag.HessdiagError, match="forward pass changes its own parameter"):
        hessdiag.diagnose(model, tokens, matrix=matrix)
    assert not by_module or torch.equal(model.table.weight, before)
