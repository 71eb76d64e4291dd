"""Known traps of second derivatives in torch, one test each: what hessdiag measures is right all the same.

The first half are traps that give wrong numbers in silence, the second half are crashes.
"""

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, jvp
from transformers.modeling_outputs import CausalLMOutput

import hessdiag
from tests.kinds import checkpointed, no_grad_inside, own_function, running
from tests.networks import Multiplier, build
from tests.oracles import LossOfBatch, frobenius_sq, ggn_blocks, hessian_blocks, mean_over_examples, quadratic
from tests.unchanged import unchanged

VIEWS = [("ggn", "example"), ("ggn", "batch"), ("hessian", "example"), ("hessian", "batch")]
DENSE = {"ggn": ggn_blocks, "hessian": hessian_blocks}


def dense(
    model: nn.Module, x: Tensor, t: Tensor | None, loss: LossOfBatch, names: list[str], matrix: str, per: str
) -> Tensor:
    """(L, L) squared norms, by dense rows."""
    if per == "example":
        return mean_over_examples(DENSE[matrix], model, x, t, loss, names)
    return frobenius_sq(DENSE[matrix](model, x, t, loss, names))


def measured_right(
    model: nn.Module,
    x: Tensor,
    t: Tensor | None = None,
    loss: LossOfBatch | None = None,
    *,
    matrix: str = "hessian",
    per: str = "example",
) -> hessdiag.Report:
    """The report, after holding it against dense rows, and the model against what it was."""
    with unchanged(model, x):
        report = hessdiag.diagnose(
            model, x, t, loss=loss or "random-quadratic", matrix=matrix, per=per, method="exact", seed=0
        )
    names = [block.name for block in report.blocks]
    expected = dense(model, x, t, loss or quadratic(model(x).shape[1]), names, matrix, per).cpu().numpy()
    floor = 1e-12 * expected.max()
    assert expected.max() > 0
    for i, block in enumerate(report.blocks):
        assert block.avg_sq_singular_value * block.numel == pytest.approx(expected[i, i], rel=1e-8, abs=floor)
    order = [names.index(name) for name in report.heatmap.names]
    np.testing.assert_allclose(report.heatmap.frobenius_sq, expected[order][:, order], rtol=1e-8, atol=floor)
    return report


every_view = pytest.mark.parametrize(("matrix", "per"), VIEWS)

# Silently wrong numbers.

NORMS = {
    "layernorm": lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3)),
    "batchnorm eval": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval(), nn.Tanh(), nn.Linear(4, 3)),
    "instancenorm": lambda: nn.Sequential(
        *(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 1), nn.InstanceNorm1d(2, affine=True)),
        *(nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)),
    ),
}


@every_view
@pytest.mark.parametrize("norm", NORMS)
def test_normalisation_layers_whose_jacrev_is_wrong(norm: str, matrix: str, per: str, device: str) -> None:
    model, x = NORMS[norm]().double().to(device), torch.randn(3, 4, dtype=torch.float64, device=device)
    measured_right(model, x, matrix=matrix, per=per)


def test_jacrev_is_not_used_nor_what_is_made_of_it() -> None:
    banned = {"hessian", "jacrev", "jacfwd", "linearize"}
    for file in Path(hessdiag.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text())
        imported = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "torch.func"]
        assert not banned & {alias.name for node in imported for alias in node.names}, file
        used = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in banned]
        assert not [n for n in used if ast.unparse(n.value).endswith("func")], file


@every_view
def test_a_no_grad_block_that_forward_mode_ignores(matrix: str, per: str) -> None:
    model, x = no_grad_inside().double(), torch.randn(3, 4, dtype=torch.float64)
    report = measured_right(model, x, matrix=matrix, per=per)
    if matrix == "hessian":
        assert "not forward over reverse: its products are not symmetric" in report.method_reason
    assert "gain.u" in [block.name for block in report.blocks]


@every_view
@pytest.mark.parametrize("network", ["two paths", "tied"])
def test_a_submodule_of_two_paths_that_functional_call_overwrites(network: str, matrix: str, per: str) -> None:
    model, x = build(network, batch=3)
    measured_right(model, x, matrix=matrix, per=per)  # checks that the weights are as before


@pytest.mark.parametrize("examples_at_once", [1, 2, 100])
@every_view
def test_training_mode_batch_normalisation_that_chunks_would_change(
    matrix: str, per: str, examples_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: examples_at_once)
    model, x = running(), torch.randn(4, 4, dtype=torch.float64)
    with unchanged(model, x), pytest.raises(hessdiag.HessdiagError, match=r"call model.eval\(\) first"):
        hessdiag.diagnose(model, x, matrix=matrix, per=per)
    measured_right(model.eval(), x, matrix=matrix, per=per)


def test_tf32_is_off_during_a_measurement_and_on_again_after_it() -> None:
    model, x = build("conv stride")
    switches = [torch.backends.cudnn, torch.backends.cuda.matmul]
    saved, seen = [switch.allow_tf32 for switch in switches], []
    model.register_forward_hook(lambda *_: seen.append([switch.allow_tf32 for switch in switches]))
    try:
        for switch in switches:
            switch.allow_tf32 = True
        hessdiag.diagnose(model, x)
        assert [switch.allow_tf32 for switch in switches] == [True, True]
    finally:
        for switch, value in zip(switches, saved, strict=True):
            switch.allow_tf32 = value
    assert seen
    assert all(inside == [False, False] for inside in seen)


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


# Crashes.


@every_view
@pytest.mark.parametrize("loss", [F.mse_loss, nn.MSELoss()], ids=["function", "module"])
def test_mse_loss_that_forward_over_reverse_mode_refuses(loss: LossOfBatch, matrix: str, per: str) -> None:
    model, x = build("tanh", batch=3)
    t = torch.randn(3, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        jvp(grad(lambda y: loss(y, t)), (torch.randn_like(t),), (torch.ones_like(t),))
    measured_right(model, x, t, loss, matrix=matrix, per=per)


@every_view
@pytest.mark.parametrize("network", ["dot product", "attention", "groupnorm"])
def test_kernels_without_second_or_batched_derivatives(network: str, matrix: str, per: str, device: str) -> None:
    model, x = build(network, batch=3, device=device)
    measured_right(model, x, matrix=matrix, per=per)


@pytest.mark.parametrize("matrix", DENSE)
def test_running_statistics_that_a_transformed_call_cannot_update(matrix: str) -> None:
    """One example is independent of itself: training mode is right for it, and leaves the statistics alone."""
    model = nn.Sequential(nn.Conv1d(2, 2, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)).double()
    x = torch.randn(1, 2, 5, dtype=torch.float64)
    measured_right(model, x, matrix=matrix)  # checks that buffers are as before


@every_view
def test_dropout_in_training_mode(matrix: str, per: str) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    with unchanged(model, x), pytest.raises(hessdiag.HessdiagError, match=r"training mode, call model.eval\(\)"):
        hessdiag.diagnose(model, x, matrix=matrix, per=per)
    measured_right(model.eval(), x, matrix=matrix, per=per)


@every_view
@pytest.mark.parametrize("kind", [checkpointed, own_function])
def test_operations_without_a_forward_mode_rule(kind: Callable[[], nn.Module], matrix: str, per: str) -> None:
    measured_right(kind().double(), torch.randn(3, 4, dtype=torch.float64), matrix=matrix, per=per)


@every_view
def test_a_loss_without_a_forward_mode_rule(matrix: str, per: str) -> None:
    model, x = build("tanh", batch=3)
    t = torch.randn(3, 3, dtype=torch.float64)
    report = measured_right(model, x, t, F.huber_loss, matrix=matrix, per=per)
    if matrix == "hessian":
        assert "not forward over reverse" in report.method_reason


@every_view
@pytest.mark.parametrize("network", ["lstm", "gru"])
def test_recurrent_cells_whose_cudnn_kernels_have_no_second_derivative(
    network: str, matrix: str, per: str, device: str
) -> None:
    model, x = build(network, batch=2, device=device)
    enabled, inside = torch.backends.cudnn.enabled, []
    handle = model.register_forward_hook(lambda *_: inside.append(torch.backends.cudnn.enabled))
    hessdiag.diagnose(model, x)
    handle.remove()
    assert inside
    assert not any(inside)
    assert torch.backends.cudnn.enabled == enabled
    with torch.backends.cudnn.flags(enabled=False):  # for the reference
        measured_right(model, x, matrix=matrix, per=per)


@every_view
def test_unused_and_frozen_parameters(matrix: str, per: str) -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.frozen, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.unused, self.unused_scalar = nn.Linear(5, 2), Multiplier()
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.frozen(self.first(x).tanh()).tanh())

    report = measured_right(Partly().double(), torch.randn(3, 4, dtype=torch.float64), matrix=matrix, per=per)
    blocks = {block.name: block for block in report.blocks}
    for name in ("unused.weight", "unused.bias", "unused_scalar.u"):
        assert blocks[name].avg_sq_singular_value == blocks[name].nu == 0
    assert {name for name, _ in report.skipped} == {"frozen.weight", "frozen.bias"}
    assert all("frozen (requires_grad=False)" in reason for _, reason in report.skipped)


class Positions(nn.Module):
    """Logits (B, T, V) with as many positions as classes, as a language model's."""

    def __init__(self, *, wrapped: bool = False) -> None:
        super().__init__()
        self.layer, self.wrapped = nn.Linear(4, 9), wrapped

    def forward(self, x: Tensor) -> Tensor | CausalLMOutput:
        y = self.layer(x).tanh().view(-1, 3, 3)
        return CausalLMOutput(logits=y) if self.wrapped else y


@every_view
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_classes_last_where_there_are_as_many_positions(kind: str, wrapped: bool, matrix: str, per: str) -> None:
    """Dimension 1 would be torch's reading, and another loss."""
    model, x = Positions().double(), torch.randn(3, 4, dtype=torch.float64)
    t = torch.randint(3, (3, 3)) if kind == "indices" else torch.rand(3, 3, 3, dtype=torch.float64)
    given = model if not wrapped else Positions(wrapped=True).double()
    given.load_state_dict(model.state_dict())
    options = {} if wrapped else {"class_dim": -1}

    def last(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.movedim(-1, 1), t if kind == "indices" else t.movedim(-1, 1))

    report = hessdiag.diagnose(given, x, t, loss="cross-entropy", matrix=matrix, per=per, method="exact", **options)
    names = [block.name for block in report.blocks]
    expected = dense(model, x, t, last, names, matrix, per)
    for i, block in enumerate(report.blocks):
        assert block.avg_sq_singular_value * block.numel == pytest.approx(float(expected[i, i]), rel=1e-10)
    if not wrapped:
        with pytest.raises(hessdiag.HessdiagError, match="pass class_dim=1 or class_dim=-1"):
            hessdiag.diagnose(model, x, t, loss="cross-entropy", matrix=matrix, per=per)


def branching(y: Tensor, t: Tensor | None) -> Tensor:
    """The mean over examples of one of two formulas."""
    return torch.stack([a.square().sum() ** 2 if a.sum() > 0 else a.exp().sum() for a in y]).mean()


def one_hot(y: Tensor, t: Tensor) -> Tensor:
    return (y.sigmoid() - F.one_hot(t, 3)).square().mean()


@every_view
@pytest.mark.parametrize("loss", [branching, one_hot])
def test_losses_that_look_at_values(loss: LossOfBatch, matrix: str, per: str) -> None:
    model, x = build("tanh", batch=3)
    measured_right(model, x, torch.tensor([0, 2, 1]), loss, matrix=matrix, per=per)


@every_view
def test_a_loss_whose_no_grad_part_forward_mode_ignores(matrix: str, per: str) -> None:
    def weighted(y: Tensor, t: Tensor | None) -> Tensor:
        with torch.no_grad():
            share = y.softmax(1)
        return (share * y.square()).sum(1).mean()

    model, x = build("tanh", batch=3)
    measured_right(model, x, None, weighted, matrix=matrix, per=per)


@every_view
@pytest.mark.parametrize("options", [{"weight": True, "label_smoothing": 0.1}, {"weight": True}, {"ignore_index": 1}])
def test_class_weights_and_label_smoothing(options: dict[str, object], matrix: str, per: str) -> None:
    weight = torch.tensor([0.5, 2.0, 1.3], dtype=torch.float64) if options.get("weight") else None
    model, x = build("tanh", batch=3)
    t = torch.tensor([0, 2, 2] if "ignore_index" in options else [0, 2, 1])
    loss = nn.CrossEntropyLoss(**options | {"weight": weight})
    measured_right(model, x, t, loss, matrix=matrix, per=per)


def test_a_weighted_mean_of_a_batch_that_no_mean_over_examples_gives() -> None:
    weight = torch.tensor([0.5, 2.0, 1.3], dtype=torch.float64)
    model, x = build("tanh", batch=3)
    t = torch.tensor([0, 2, 1])

    def own(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t, weight=weight)

    measured_right(model, x, t, own)
    with pytest.raises(hessdiag.HessdiagError, match=r"not the mean of theirs.*per='batch' needs it"):
        hessdiag.diagnose(model, x, t, loss=own, per="batch")


@every_view
@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), "mse"], ids=["bce", "mse"])
@pytest.mark.parametrize("outputs", [(), (1,)], ids=["(B,)", "(B, 1)"])
def test_one_number_an_example(outputs: tuple[int, ...], loss, matrix: str, per: str) -> None:
    model, x = build("mlp", batch=3)
    model = nn.Sequential(*model, nn.Tanh(), nn.Linear(3, 1, dtype=torch.float64), nn.Flatten(0))
    t = torch.rand(3, dtype=torch.float64)
    if loss == "mse":
        report = hessdiag.diagnose(model, x, t.view(3, *outputs), loss="mse", matrix=matrix, per=per, method="exact")
        plain = measured_right(model, x, t, F.mse_loss, matrix=matrix, per=per)
        for one, other in zip(report.blocks, plain.blocks, strict=True):
            assert one.avg_sq_singular_value == pytest.approx(other.avg_sq_singular_value, rel=1e-10)
    elif not outputs:
        measured_right(model, x, t, loss, matrix=matrix, per=per)


class PartlyFloat32(nn.Module):
    """Normalises in float32, as T5 does whatever its weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last((h * h.float().square().mean(-1, keepdim=True).add(1e-6).rsqrt()).tanh())


@pytest.mark.parametrize("method", ["exact", "probe"])
@every_view
def test_parts_in_float32_of_a_model_in_float64(matrix: str, per: str, method: str) -> None:
    """Second derivatives are symmetric to float32 then, and no better."""
    model, x = PartlyFloat32().double(), torch.randn(3, 4, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, matrix=matrix, per=per, method=method, rtol=1e-9, max_products=10**6)
    names = [block.name for block in report.blocks]
    expected = dense(model, x, None, quadratic(3), names, matrix, per)
    for i, block in enumerate(report.blocks):
        assert block.avg_sq_singular_value * block.numel == pytest.approx(float(expected[i, i]), rel=1e-5)
    if matrix == "hessian" or method == "probe":
        assert "parts of the model compute in float32" in report.method_reason
