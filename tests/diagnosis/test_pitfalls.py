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

import hessdiag
from hessdiag.derivatives.losses import RandomQuadratic
from tests.kinds import Checkpointed, NoGradInside, OwnFunction, running
from tests.networks import Multiplier, build
from tests.oracles import frobenius_sq, ggn_blocks, hessian_blocks, mean_over_examples
from tests.unchanged import unchanged

LossOfBatch = Callable[[Tensor, Tensor | None], Tensor]

VIEWS = [("ggn", "example"), ("ggn", "batch"), ("hessian", "example"), ("hessian", "batch")]
DENSE = {"ggn": ggn_blocks, "hessian": hessian_blocks}


def quadratic(outputs: int) -> LossOfBatch:
    """The default loss, as a mean over a batch."""
    R = RandomQuadratic.draw(outputs, seed=0, like=torch.zeros((), dtype=torch.float64)).R
    return lambda y, t: ((y @ R.to(y)) * y).sum() / len(y)


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
    plain = loss or quadratic(model(x).shape[1])
    if per == "example":
        expected = mean_over_examples(DENSE[matrix], model, x, t, plain, names).cpu().numpy()
    else:
        expected = frobenius_sq(DENSE[matrix](model, x, t, plain, names)).cpu().numpy()
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
    model, x = NoGradInside().double(), torch.randn(3, 4, dtype=torch.float64)
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
@pytest.mark.parametrize("network", ["dot product", "attention"])
def test_attention_kernels_without_second_derivatives(network: str, matrix: str, per: str, device: str) -> None:
    model, x = build(network, batch=3, device=device)
    measured_right(model, x, matrix=matrix, per=per)


@pytest.mark.parametrize("matrix", DENSE)
def test_running_statistics_that_a_transformed_call_cannot_update(matrix: str) -> None:
    """One example is independent of itself: training mode is right for it, and leaves the statistics alone."""
    model = nn.Sequential(nn.Conv1d(2, 2, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)).double()
    x = torch.randn(1, 2, 5, dtype=torch.float64)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with unchanged(model, x):
        hessdiag.diagnose(model, x, matrix=matrix)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    measured_right(model, x, matrix=matrix)


@every_view
def test_dropout_in_training_mode(matrix: str, per: str) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    with unchanged(model, x), pytest.raises(hessdiag.HessdiagError, match=r"training mode, call model.eval\(\)"):
        hessdiag.diagnose(model, x, matrix=matrix, per=per)
    measured_right(model.eval(), x, matrix=matrix, per=per)


@every_view
@pytest.mark.parametrize("kind", [Checkpointed, OwnFunction])
def test_operations_without_a_forward_mode_rule(kind: type[nn.Module], matrix: str, per: str) -> None:
    measured_right(kind().double(), torch.randn(3, 4, dtype=torch.float64), matrix=matrix, per=per)


@every_view
def test_a_loss_without_a_forward_mode_rule(matrix: str, per: str) -> None:
    model, x = build("tanh", batch=3)
    t = torch.randn(3, 3, dtype=torch.float64)
    report = measured_right(model, x, t, F.huber_loss, matrix=matrix, per=per)
    if matrix == "hessian":
        assert "not forward over reverse" in report.method_reason


@every_view
def test_group_normalisation_that_batched_gradients_refuse(matrix: str, per: str) -> None:
    model, x = build("groupnorm", batch=3)
    measured_right(model, x, matrix=matrix, per=per)


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
