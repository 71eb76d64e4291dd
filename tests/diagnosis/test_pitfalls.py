"""Known traps of second derivatives in torch, one test each: of wrong numbers in silence, then of crashes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad
from transformers.modeling_outputs import CausalLMOutput

import hessdiag
from tests.kinds import checkpointed, no_grad_inside, own_function, rows, running
from tests.networks import BUILDERS, Multiplier, Net, build
from tests.oracles import DENSE, LossOfBatch, dense_norms, equals_dense, quadratic, values_of
from tests.unchanged import unchanged


def measured_right(
    model: nn.Module, x: Tensor, t: Tensor | None = None, loss: LossOfBatch | None = None, *, matrix: str = "hessian",
    per: str = "example", mode: str = "eval",
) -> hessdiag.Report:  # fmt: skip
    """The report, after holding it against dense rows, and the model against what it was."""
    how = {"loss": loss or "random-quadratic", "matrix": matrix, "per": per, "mode": mode, "method": "exact"}
    with unchanged(model, x):
        report = hessdiag.diagnose(model, x, t, seed=0, **how)
    names = [block.name for block in report.blocks]
    expected = dense_norms(model, x, t, loss or quadratic(model(x).shape[1]), names, matrix, per).cpu()
    assert expected.max() > 0
    equals_dense(report, names, expected, rel=1e-8)
    return report


# Of networks: test_kinds.py has their views of each example, and test_losses.py has losses.
of_the_batch = pytest.mark.parametrize("matrix", DENSE)
# Of losses: both matrices, both views.
two_views = pytest.mark.parametrize(("matrix", "per"), [("ggn", "batch"), ("hessian", "example")])

# Silently wrong numbers. TF32 is switched off: network/test_preserve.py.


def test_traps_are_among_the_networks_and_jacrev_is_not_used_nor_what_is_made_of_it() -> None:
    """Both of their matrices in both views, and their weights are as before: curvature/test_exact.py."""
    wrong_jacrev = {"layernorm", "instancenorm", "batchnorm eval", "groupnorm"}
    overwritten_by_functional_call, without_second_derivatives = {"two paths", "tied"}, {"dot product", "attention"}
    assert BUILDERS.keys() >= wrong_jacrev | overwritten_by_functional_call | without_second_derivatives
    banned = re.compile(r"\b(jacrev|jacfwd)\b|\bfunc(\.| import .*)\b(hessian|linearize)\b")
    for file in Path(hessdiag.__file__).parent.rglob("*.py"):
        code = re.sub(r"`.*?`", "", file.read_text(encoding="utf-8"))
        assert not banned.search(code), file


@of_the_batch
def test_a_no_grad_block_that_forward_mode_ignores(matrix: str) -> None:
    report = measured_right(no_grad_inside().double(), rows(), matrix=matrix, per="batch")
    if matrix == "hessian":
        assert "not forward over reverse: its products are not symmetric" in report.method_reason
    assert "gain.u" in [block.name for block in report.blocks]


@two_views
def test_training_mode_batch_normalisation_that_chunks_would_change(matrix: str, per: str, monkeypatch) -> None:
    model, x, maps = running(), torch.randn(4, 4, dtype=torch.float64), []
    for examples_at_once in (1, 2, 100):
        monkeypatch.setattr("hessdiag.network.trace.NetworkShape.chunk", lambda *_, n=examples_at_once, **__: n)
        with unchanged(model, x):
            report = hessdiag.diagnose(model, x, matrix=matrix, per=per, method="exact", signals=False)
        maps.append(report.heatmap.frobenius_sq)
    np.testing.assert_allclose(maps[1:], [maps[0]] * 2, rtol=1e-8)
    measured_right(model.eval(), x, matrix=matrix, per=per)


def test_a_kink_that_finite_differences_step_over() -> None:
    """A ReLU unit at 1e-9: differences of gradients see a jump where the Hessian is what it is on one side."""
    model, x = build("mlp", batch=1)
    with torch.no_grad():
        model[0].bias[0] -= (model[0](x))[0, 0] - 1e-9
    measured_right(model, x)
    loss, weight, step = quadratic(3), model[0].weight, 1e-5
    direction = torch.zeros_like(weight)
    direction[0] = x[0]

    def gradient(shift: float) -> Tensor:
        moved = {"0.weight": weight.detach() + shift * direction}
        return grad(lambda w: loss(torch.func.functional_call(model, w, (x,)), None))(moved)["0.weight"]

    (first,) = torch.autograd.grad(loss(model(x), None), weight, create_graph=True)
    (exact,) = torch.autograd.grad((first * direction).sum(), weight)
    difference = (gradient(step) - gradient(-step)).detach() / (2 * step)
    assert float((difference - exact).norm()) > float(exact.norm())  # more than 100 % off


@of_the_batch
def test_running_statistics_that_a_transformed_call_cannot_update(matrix: str) -> None:
    """One example is independent of itself: training mode is right for it, and leaves the statistics alone."""
    model = nn.Sequential(nn.Conv1d(2, 2, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)).double()
    x = torch.randn(1, 2, 5, dtype=torch.float64)
    measured_right(model, x, matrix=matrix, mode="train")  # checks that buffers are as before


@of_the_batch
@pytest.mark.parametrize("kind", [checkpointed, own_function])
def test_operations_without_a_forward_mode_rule(kind: Callable[[], nn.Module], matrix: str) -> None:
    measured_right(kind().double(), rows(), matrix=matrix, per="batch")


@pytest.mark.parametrize("network", ["lstm", "gru"])
def test_recurrent_cells_whose_cudnn_kernels_have_no_second_derivative(network: str, device: str) -> None:
    model, x = build(network, batch=2, device=device)
    enabled, inside = torch.backends.cudnn.enabled, []
    model.register_forward_hook(lambda *_: inside.append(torch.backends.cudnn.enabled))
    hessdiag.describe(model, x)
    hessdiag.diagnose(model, x, signals=False, method="sketch", max_products=2)
    assert inside
    assert not any(inside)
    assert torch.backends.cudnn.enabled == enabled
    with torch.backends.cudnn.flags(enabled=False):  # for the reference
        measured_right(model, x, per="batch")


@of_the_batch
def test_unused_and_frozen_parameters(matrix: str) -> None:
    layers = {"first": nn.Linear(4, 4), "frozen": nn.Linear(4, 4).requires_grad_(False), "last": nn.Linear(4, 3)}
    unused = {"unused": nn.Linear(5, 2), "unused_scalar": Multiplier()}
    model = Net(lambda m, x: m.last(m.frozen(m.first(x).tanh()).tanh()), **layers, **unused)
    report = measured_right(model.double(), rows(), matrix=matrix, per="batch")
    blocks = {block.name: block for block in report.blocks}
    for name in ("unused.weight", "unused.bias", "unused_scalar.u"):
        assert blocks[name].avg_sq_singular_value == blocks[name].nu == 0
    assert {name for name, _ in report.skipped} == {"frozen.weight", "frozen.bias"}
    assert all("frozen (requires_grad=False)" in reason for _, reason in report.skipped)


def positions(wrapped: bool) -> nn.Module:
    """Logits (B, T, V) with as many positions as classes, as a language model's."""
    wrap = (lambda y: CausalLMOutput(logits=y)) if wrapped else (lambda y: y)
    return Net(lambda m, x: wrap(m.layer(x).tanh().view(-1, 3, 3)), layer=nn.Linear(4, 9)).double()


@pytest.mark.parametrize(("wrapped", "per"), [(False, "batch"), (True, "example")])
@pytest.mark.parametrize(("kind", "matrix"), [("indices", "hessian"), ("probabilities", "ggn")])
def test_classes_last_where_there_are_as_many_positions(kind: str, wrapped: bool, matrix: str, per: str) -> None:
    model, given, x = positions(False), positions(wrapped), rows()
    t = torch.randint(3, (3, 3)) if kind == "indices" else torch.rand(3, 3, 3, dtype=torch.float64)
    given.load_state_dict(model.state_dict())
    options = {} if wrapped else {"class_dim": -1}
    last = lambda y, t: F.cross_entropy(y.movedim(-1, 1), t if kind == "indices" else t.movedim(-1, 1))  # noqa: E731
    report = hessdiag.diagnose(given, x, t, loss="cross-entropy", matrix=matrix, per=per, method="exact", **options)
    names = [block.name for block in report.blocks]
    equals_dense(report, names, dense_norms(model, x, t, last, names, matrix, per))
    if not wrapped:
        with pytest.raises(hessdiag.HessdiagError, match="pass class_dim=1 or class_dim=-1"):
            hessdiag.diagnose(model, x, t, loss="cross-entropy", matrix=matrix, per=per)


@two_views
def test_one_number_an_example(matrix: str, per: str) -> None:
    model, x = build("mlp", batch=3)
    model = nn.Sequential(*model, nn.Tanh(), nn.Linear(3, 1, dtype=torch.float64), nn.Flatten(0))
    t = torch.rand(3, dtype=torch.float64)
    measured_right(model, x, t, nn.BCEWithLogitsLoss(), matrix=matrix, per=per)
    plain = measured_right(model, x, t, F.mse_loss, matrix=matrix, per=per)
    for targets in (t, t.unsqueeze(1)):
        found = hessdiag.diagnose(model, x, targets, loss="mse", matrix=matrix, per=per, method="exact")
        assert values_of(found) == pytest.approx(values_of(plain), rel=1e-10)


def partly_float32(m: Any, x: Tensor) -> Tensor:
    h = m.first(x)
    return m.last((h * h.float().square().mean(-1, keepdim=True).add(1e-6).rsqrt()).tanh())


@pytest.mark.parametrize("method", ["exact", "probe"])
@two_views
def test_parts_in_float32_of_a_model_in_float64(matrix: str, per: str, method: str) -> None:
    model, x = Net(partly_float32, first=nn.Linear(4, 4), last=nn.Linear(4, 3)).double(), rows()
    report = hessdiag.diagnose(model, x, matrix=matrix, per=per, method=method, rtol=1e-9, max_products=10**6)
    names = [block.name for block in report.blocks]
    equals_dense(report, names, dense_norms(model, x, None, quadratic(3), names, matrix, per), rel=1e-5)
