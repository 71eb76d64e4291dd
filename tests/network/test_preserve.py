"""A measurement leaves no trace: model, gradients, hooks, modes, random state and settings are as before."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.data.seeds import user_code
from hessdiag.derivatives.backward import FunctionalModel
from hessdiag.network import preserve
from hessdiag.network.preserve import caches_of, emptied, preserve_state
from tests.networks import Net, build
from tests.oracles import values_of
from tests.unchanged import HOOKS, unchanged

WAYS = [dict(zip(("method", "per", "matrix"), way.split(), strict=True)) for way in (
    "exact example ggn", "exact batch ggn", "probe example hessian", "probe batch ggn",
)]  # fmt: skip

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
    changes: list[Callable[[], object]] = [
        lambda: model.first.weight.data.add_(1e-16), lambda: model.norm.running_mean.add_(1.0),
        lambda: setattr(model.norm, "running_var", model.norm.running_var.clone()),
        lambda: setattr(model.conv.weight, "grad", model.conv.weight.grad.clone()),
        lambda: model.conv.weight.grad.add_(1.0), lambda: setattr(model.last.weight, "grad", None),
        lambda: model.last.bias.requires_grad_(True), lambda: model.train(),
        lambda: model.conv.register_forward_hook(print), lambda: model.conv.register_forward_pre_hook(print),
        lambda: model.conv.register_full_backward_hook(print), lambda: torch.rand(1),
        lambda: model.gain.detach().mul_(1.0),
    ]  # fmt: skip
    assert len(HOOKS) >= 8
    for change in changes:
        with pytest.raises(AssertionError), unchanged(model):
            change()


@every_way
def test_a_measurement_leaves_no_trace_and_depends_on_none(options: dict[str, str], model: nn.Module) -> None:
    """Neither on the random state before it nor on whether gradients are on."""
    torch.manual_seed(1)
    with unchanged(model, X):
        report = hessdiag.diagnose(model, X, max_products=4, **options)
    assert len(report.blocks) == 9
    assert report.method == options["method"]
    torch.manual_seed(2)
    with torch.no_grad(), unchanged(model, X):
        assert hessdiag.diagnose(model, X, max_products=4, **options) == report
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("loss", "options"), [("cross-entropy", WAYS[3]), ("mse", WAYS[2])])
def test_targets_and_inputs_are_left_alone(options: dict[str, str], loss: str, model: nn.Module) -> None:
    targets = torch.tensor([0, 2, 1]) if loss == "cross-entropy" else torch.randn(3, 3, dtype=torch.float64)
    x = X.clone().requires_grad_()
    with unchanged(model, x, targets):
        reports = [hessdiag.diagnose(model, x, targets, loss=loss, max_products=4, seed=s, **options) for s in (0, 1)]
    assert x.grad is None
    assert reports[0].blocks != reports[1].blocks or options["method"] != "probe"
    model.register_forward_pre_hook(lambda module, args: args[0].sub_(0.5))  # normalises them in place
    with unchanged(model, X, targets):
        written = hessdiag.diagnose(model, X + 0.5, targets, loss=loss, max_products=4, seed=1, **options)
        hessdiag.diagnose(model, X, targets, loss=loss, max_products=4, **options)
    assert values_of(written) == pytest.approx(values_of(reports[1]), rel=1e-6)


def test_nor_does_a_second_interrupt(monkeypatch: pytest.MonkeyPatch, model: nn.Module) -> None:
    fill, calls = preserve._fill, []

    def interrupted(held: dict[Any, Any], names: dict[Any, Any]) -> None:
        calls.append(held)
        fill(held, names)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(preserve, "_fill", interrupted)
    model.train()
    model.last.register_forward_hook(Fails(1, KeyboardInterrupt()))
    with unchanged(model, X), pytest.raises(KeyboardInterrupt):
        hessdiag.diagnose(model, X)
    held = {"a": 1, "b": 2}
    fill(held, {"b": 3, "c": 4, "a": 1})
    assert list(held.items()) == [("b", 3), ("c", 4), ("a", 1)]


def test_a_dry_run_and_training_mode_leave_no_trace(model: nn.Module) -> None:
    with unchanged(model, X):
        hessdiag.describe(model, X)
    model.train()
    for options in WAYS:
        with unchanged(model, X):
            hessdiag.diagnose(model, X, max_products=4, signals=False, **options)
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


@pytest.mark.parametrize("where", ["model", "loss"])
@every_way
def test_nor_does_a_call_that_fails(options: dict[str, str], where: str, model: nn.Module) -> None:
    for calls, error in ((0, EOFError), (1, KeyboardInterrupt), (3, EOFError)):
        fails = Fails(calls, error("user's"))
        loss: Any = "random-quadratic"
        if where == "model":
            handle = model.last.register_forward_hook(lambda module, args, y, fails=fails: fails(y))
        else:
            loss = lambda y, t, fails=fails: fails(y).square().mean()  # noqa: E731
        with unchanged(model, X), pytest.raises(error, match="user's"):
            hessdiag.diagnose(model, X, loss=loss, max_products=4, **options)
        if where == "model":
            handle.remove()


@pytest.mark.parametrize("wrong", [
    {"rtol": -1.0}, {"loss": "none"}, {"loss": "mse"}, {"loss": "cross-entropy", "targets": torch.tensor([0, 99, 1])},
    {"loss": lambda y, t: y.square()}, {"inputs": X[:, :, :2]}, {"inputs": X.float()}, {"inputs": X / 0},
])  # fmt: skip
def test_nor_does_a_refusal(wrong: dict[str, Any], model: nn.Module) -> None:
    for options in WAYS:
        with unchanged(model), pytest.raises((hessdiag.HessdiagError, RuntimeError)):
            hessdiag.diagnose(model, **{"inputs": X} | wrong | options)


@pytest.mark.parametrize("options", [WAYS[0], WAYS[3]], ids=["exact", "probe"])
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


@contextmanager
def switched(setting: str, holders: Sequence[Any], values: Sequence[Any]) -> Iterator[None]:
    saved = [getattr(holder, setting) for holder in holders]
    try:
        for holder, value in zip(holders, values, strict=True):
            setattr(holder, setting, value)
        yield
        assert [getattr(holder, setting) for holder in holders] == list(values)
    finally:
        for holder, value in zip(holders, saved, strict=True):
            setattr(holder, setting, value)


@pytest.mark.parametrize("outside", [(True, False), (False, True)])
def test_tf32_is_off_inside_and_as_it_was_outside(outside: tuple[bool, bool], model: nn.Module) -> None:
    switches, seen = (torch.backends.cudnn, torch.backends.cuda.matmul), set()
    model.conv.register_forward_hook(lambda *_: seen.add(tuple(switch.allow_tf32 for switch in switches)))
    with switched("allow_tf32", switches, outside), unchanged(model, X):
        hessdiag.diagnose(model, X)
        with pytest.raises(hessdiag.HessdiagError):
            hessdiag.diagnose(model, X, loss="mse")
    assert seen == {(False, False)}


def test_buffers_left_alone_keep_their_version_and_a_gradient_made_inside_is_taken_away(model: nn.Module) -> None:
    before = {name: b._version for name, b in model.named_buffers() if not b.isnan().any()}
    hessdiag.diagnose(model, X, mode="eval")
    assert {name: b._version for name, b in model.named_buffers() if not b.isnan().any()} == before
    model = nn.Linear(2, 2)
    model.weight.grad = old = torch.ones(2, 2)
    with unchanged(model), preserve_state(model, seed=0):
        model.weight.grad, model.bias.grad = None, torch.ones(2)
    assert model.weight.grad is old


def test_inference_mode_and_autocast_are_left_and_entered_again() -> None:
    model, x = build("mlp")
    expected = hessdiag.diagnose(model, x)
    with torch.inference_mode(), unchanged(model):
        assert hessdiag.diagnose(model, x) == expected
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    expected = hessdiag.diagnose(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
        assert hessdiag.diagnose(model, x) == expected
        assert torch.is_autocast_enabled("cpu")
    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    model._original_forward = model.forward  # type: ignore[assignment]
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)  # type: ignore[method-assign]
    with unchanged(model), preserve_state(model, seed=0):
        assert model(x).dtype == torch.float32
    assert model(x).dtype == torch.bfloat16


MKLDNN = [getattr(torch.backends.mkldnn, kind, None) for kind in ("matmul", "conv", "rnn")]
PRECISIONS = [holder for holder in (torch.backends.cuda.matmul, *MKLDNN) if hasattr(holder, "fp32_precision")]


@pytest.mark.parametrize("precision", ["high", "medium"])  # `medium` is bfloat16 on processors that have it
def test_products_are_in_full_precision_inside_and_as_they_were_outside(precision: str) -> None:
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


@pytest.mark.skipif(not PRECISIONS, reason="this PyTorch has none of the newer settings yet")
def test_nothing_is_in_bfloat16_or_tf32_inside_and_the_newer_settings_are_as_they_were() -> None:
    (model, x), seen = build("mlp"), set()
    model.register_forward_hook(lambda *_: seen.update(holder.fp32_precision for holder in PRECISIONS[1:]))
    with switched("fp32_precision", PRECISIONS, ["tf32", *["bf16"] * len(PRECISIONS[1:])]):
        hessdiag.diagnose(model, x)
    assert seen <= {"ieee"}


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
    with preserve_state(nn.Linear(2, 2), seed=0), user_code():
        got = torch._weight_norm(v, g, dim)
    torch.testing.assert_close(got, torch._weight_norm(v, g, dim), rtol=1e-14, atol=0)


class Cache:
    """A user's own cache, an attribute of which is filled."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Tensor]] = {}
        self.length = 0


class Uncounted(tuple):
    def __len__(self) -> int:
        raise NotImplementedError  # as in e3nn's representations


def fills(m: Any, x: Tensor) -> Tensor:
    """Fills everything that can be filled, and counts its calls by a new buffer each time."""
    m.calls = m.calls + 1
    m.mean = 0.9 * m.mean + 0.1 * x.detach().mean(0)
    y = m.layer(x)
    m.log.append(y)
    m.shapes["of"][len(m.log)] = y.shape
    m.shapes[len(x)] = y
    m.sizes.add(len(x))
    m.last.append(y)
    m.cache.seen.setdefault("y", []).append(y)
    m.cache.length += 1
    m.counts["rows"] += len(x)
    m.space.calls += 1
    m.running.add_(x.detach().mean(0))
    return y


def filled() -> nn.Module:
    held = {"log": ["first"], "shapes": {"of": {}}, "sizes": set(), "last": deque(maxlen=2), "parts": Uncounted([{}])}
    held |= {"counts": {"rows": np.zeros(2)}, "space": SimpleNamespace(calls=0)}
    model = Net(fills, layer=nn.Linear(4, 3), cache=Cache(), running=torch.zeros(4), **held)
    model.register_buffer("calls", torch.zeros(()))
    model.register_buffer("mean", torch.zeros(4))
    return model


@pytest.mark.parametrize("options", [WAYS[0], WAYS[2]], ids=["exact", "probe"])
def test_what_a_forward_pass_fills_is_as_before(options: dict[str, str]) -> None:
    model = filled()
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
    assert not any((model.running.any(), model.counts["rows"].any(), model.space.calls))
    model(torch.randn(3, 4))
    assert len(model.log) == 2
    model = filled()
    model.register_forward_hook(Fails(1, EOFError("user's")))
    with pytest.raises(EOFError):
        hessdiag.diagnose(model, x)
    assert model.log == ["first"]


def replaced(m: Any) -> None:
    m.table.weight = nn.Parameter(2 * m.table.weight.detach())


def in_place(m: Any) -> None:
    with torch.no_grad():
        m.table.weight.mul_(1.0)


WRITES: dict[str, Callable[[Any], object]] = {
    "by its module": lambda m: None, "by a function": lambda m: F.embedding(TOKENS, m.table.weight, max_norm=0.5),
    "another": replaced, "the same": in_place,
}  # fmt: skip
TOKENS = torch.tensor([[0, 1], [2, 3]])


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
@pytest.mark.parametrize("way", WRITES)
def test_a_forward_pass_that_writes_to_its_weights_is_refused_and_they_are_put_back(way: str, matrix: str) -> None:
    table = nn.Embedding(4, 3, max_norm=0.5 if way == "by its module" else None)
    model = Net(lambda m, words: m.last((WRITES[way](m), m.table(words))[1].mean(1)), table=table, last=nn.Linear(3, 2))
    before, held = model.table.weight.detach().clone(), (model.table.weight, model.table.weight.data_ptr())
    with pytest.raises(hessdiag.HessdiagError, match=r"forward pass changes its own parameter 'table\.|max_norm"):
        hessdiag.diagnose(model, TOKENS, matrix=matrix)
    assert torch.equal(model.table.weight, before)
    assert (model.table.weight, model.table.weight.data_ptr()) == held


def test_what_a_forward_pass_writes_to_data_and_a_buffer_that_is_bound_anew_are_as_in_training_and_put_back() -> None:
    def follows(m: Any, x: Tensor) -> Tensor:
        m.layer.weight.data = m.layer.weight.data.clamp(-0.3, 0.3)
        m.teacher.weight.data = 0.5 * (m.teacher.weight.data + m.layer.weight.data)
        y = m.layer(x) - m.teacher(x) + m.center @ m.layer.weight.mT + torch.rand(1, generator=m.own)
        m.center = 0.9 * m.center + 0.1 * x.detach().mean(0)
        return y

    model = Net(follows, layer=nn.Linear(3, 2), teacher=nn.Linear(3, 2).requires_grad_(False))
    model.register_buffer("center", torch.zeros(3))
    model.own = torch.Generator().manual_seed(5)
    with unchanged(model, ROWS.float()):
        reports = [hessdiag.diagnose(model, ROWS.float(), quick=quick) for quick in (True, False)]
    assert [report.signals_missing for report in reports] == ["", ""]
    assert torch.equal(model.own.get_state(), torch.Generator().manual_seed(5).get_state())
    model(ROWS.float())
    trained = hessdiag.diagnose(nn.Sequential(model.layer), ROWS.float(), loss="random-quadratic")
    assert reports[1]["layer.weight"].weight_sq == trained["0.weight"].weight_sq


def keeping(m: Any, x: Tensor) -> Tensor:
    """Keeps what it computed of its weight, as biases of attention are by position."""
    if "cubed" not in m.cache:
        m.cache["cubed"] = m.layer.weight**3
    return m.last(F.linear(x, m.cache["cubed"]).tanh())


def anew(m: Any, x: Tensor) -> Tensor:
    m.cache.clear()
    return keeping(m, x)


def of(rule: Callable[[Any, Tensor], Tensor] = keeping) -> nn.Module:
    torch.manual_seed(0)
    layers = {"layer": nn.Linear(3, 3, bias=False), "last": nn.Linear(3, 2)}
    return Net(rule, **layers, cache=OrderedDict(), names={"of": "layers"}).double()


ROWS = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3).sin()


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
@pytest.mark.parametrize("called_before", [False, True])
def test_weights_behind_a_cache_are_measured(matrix: str, called_before: bool) -> None:
    model = of()
    if called_before:
        model(ROWS)
    held = dict(model.cache)
    with unchanged(model, ROWS):
        report = hessdiag.diagnose(model, ROWS, matrix=matrix, method="exact")
    assert list(model.cache.items()) == list(held.items())
    expected = hessdiag.diagnose(of(anew), ROWS, matrix=matrix, method="exact")
    assert not report.skipped
    assert [block.name for block in report.blocks] == [block.name for block in expected.blocks]
    assert values_of(report) == pytest.approx(values_of(expected), rel=1e-10)


def test_functions_of_the_weights_read_no_cache_and_other_dicts_stay_as_they_are() -> None:
    model = of()
    expected = model(ROWS)
    held: Any = model.cache["cubed"]
    function = FunctionalModel(model)
    double = {"layer.weight": 2 * model.layer.weight.detach()}
    assert grad(lambda at: function(at, Batch.of(ROWS, None)).sum())(double)["layer.weight"].norm() > 0
    assert model.cache["cubed"] is held
    assert torch.equal(model(ROWS), expected)
    model = of()
    model.cache["table"] = torch.ones(2)
    model(ROWS)
    with emptied(caches_of(model)):
        assert set(model.cache) == {"table"}
        assert model.names == {"of": "layers"}
        model.cache["new"] = torch.ones(1)
    assert list(model.cache) == ["table", "cubed"]


def test_a_call_that_is_stopped_where_it_draws_is_undone() -> None:
    def rebuilds(m: Any, x: Tensor) -> Any:
        if m.first:
            m.first = False
            m.part = nn.Linear(3, 3)  # draws; BigBird replaces a part of itself so
        assert isinstance(m.part, nn.Linear)
        return m.layer(m.part(x))

    model = Net(rebuilds, layer=nn.Linear(3, 2), part=nn.Identity(), first=True)
    assert "layer.weight" in [block.name for block in hessdiag.diagnose(model, torch.randn(4, 3)).blocks]
    assert isinstance(model.part, nn.Identity)
