"""The network as it trains: batch normalisation with the batch's statistics and their derivatives, nothing dropped."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from tests.networks import Net
from tests.oracles import equals_dense, frobenius_sq
from tests.unchanged import unchanged

EXAMPLES = 4
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None), nn.Tanh(), nn.Linear(4, 3),
        nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 3)), (3,)),
    "2d": (lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 2, stride=2),
        nn.SyncBatchNorm(2, affine=False), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)), (1, 5, 5)),
    "3d": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2, momentum=0.5), nn.Sigmoid(), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(8, 3)), (1, 2, 3, 3)),
}  # fmt: skip


def given(name: str, examples: int = EXAMPLES) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    model = build().double()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model, torch.randn(examples, *shape).double(), torch.randint(3, (examples,))


def trained(model: nn.Module, x: Tensor) -> Tensor:
    """Outputs as in training, without dropout; the normalisation is written out."""
    for layer in model:  # type: ignore[attr-defined]
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            axes = [0, *range(2, x.dim())]
            centred = x - x.mean(axes, keepdim=True)
            x = centred / (centred.square().mean(axes, keepdim=True) + layer.eps).sqrt()
            if layer.affine:
                weight, bias = (p.view(-1, *[1] * (x.dim() - 2)) for p in (layer.weight, layer.bias))
                x = x * weight + bias
        elif not isinstance(layer, nn.Dropout):
            x = layer(x)
    return x


def flat(y: Tensor, parameters: list[nn.Parameter], *, twice: bool = False) -> Tensor:
    found = torch.autograd.grad(y, parameters, retain_graph=True, create_graph=twice, materialize_grads=True)
    return torch.cat([each.flatten() for each in found])


def matrices(model: nn.Module, x: Tensor, t: Tensor, matrix: str) -> tuple[Tensor, Tensor]:
    """Each example's own matrix (B, P, P) and gradient (B, P), by plain autograd through the statistics."""
    parameters, y = list(model.parameters()), trained(model, x)
    gradients = [flat(loss, parameters, twice=True) for loss in F.cross_entropy(y, t, reduction="none")]
    if matrix == "hessian":
        found = [torch.stack([flat(g, parameters) for g in gradient]) for gradient in gradients]
    else:
        p = y.detach().softmax(1)
        J = [torch.stack([flat(z, parameters) for z in outputs]) for outputs in y]
        found = [j.T @ (q.diag() - q.outer(q)) @ j for j, q in zip(J, p, strict=True)]
    return torch.stack(found), torch.stack(gradients).detach()


def blocks_of(matrix: Tensor, model: nn.Module) -> Tensor:
    """(L, L) squared norms of the blocks of a matrix."""
    sizes = [p.numel() for p in model.parameters()]
    return frobenius_sq([row.split(sizes, 1) for row in matrix.split(sizes)])


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
@pytest.mark.parametrize("name", NETWORKS)
def test_blocks_are_those_of_dense_autograd_through_the_statistics(name: str, matrix: str) -> None:
    model, x, t = given(name)
    of_each = matrices(model, x, t, matrix)
    check_view(model, x, t, matrix, "example", *of_each)
    check_view(model, x, t, matrix, "batch", *(each.mean(0, keepdim=True) for each in of_each))


def check_view(model: nn.Module, x: Tensor, t: Tensor, matrix: str, per: str, found: Tensor, gradients: Tensor) -> None:
    want = torch.stack([blocks_of(each, model) for each in found]).mean(0)
    sizes = [p.numel() for p in model.parameters()]
    gradient_sq = [float(g.square().sum() / len(found)) for g in gradients.split(sizes, 1)]
    model.eval()
    with unchanged(model):
        report = hessdiag.diagnose(model, x, t, loss="cross-entropy", matrix=matrix, per=per, method="exact")
    names = [name for name, _ in model.named_parameters()]
    assert report.mode == "train"
    assert {b.name for b in report.blocks} >= {n for n, p in model.named_parameters() if p.dim() > 1}
    largest = max(gradient_sq)
    for block in report.blocks:
        i = names.index(block.name)
        assert block.stderr == 0.0
        nu_sq = block.nu * block.weight_sq * block.numel
        assert nu_sq == pytest.approx(gradient_sq[i], rel=1e-10, abs=1e-12 * largest)
    equals_dense(report, names, want)
    if per == "batch":
        options = {"loss": "cross-entropy", "matrix": matrix, "per": per, "method": "exact", "signals": False}
        assert hessdiag.diagnose(model.train(), x, t, **options).blocks == report.blocks


def test_the_batch_view_by_sketch_is_within_its_error_and_batches_are_normalised_one_by_one() -> None:
    model, x, t = given("2d", examples=8)
    how = {"loss": "cross-entropy", "per": "batch", "signals": False}
    exact, sketch = (hessdiag.diagnose(model, x, t, method=method, **how) for method in ("exact", "sketch"))
    for want, found in zip(exact.blocks, sketch.blocks, strict=True):
        error = abs(found.avg_sq_singular_value - want.avg_sq_singular_value)
        assert error <= 5 * found.stderr + 1e-12 * want.avg_sq_singular_value
    model, x, t = given("1d", examples=10)
    options = {"loss": "cross-entropy", "method": "exact", "signals": False}
    whole = hessdiag.diagnose(model, [(x[:4], t[:4]), (x[4:], t[4:])], **options)
    parts = [hessdiag.diagnose(model, x[a:b], t[a:b], **options) for a, b in ((0, 4), (4, 10))]
    for block, first, second in zip(whole.blocks, *(part.blocks for part in parts), strict=True):
        mean = 0.4 * first.avg_sq_singular_value + 0.6 * second.avg_sq_singular_value
        assert block.avg_sq_singular_value == pytest.approx(mean, rel=1e-10)


def test_some_examples_stand_for_the_batch_within_their_error() -> None:
    """Blocks behind the last normalisation are exact; of the others, 95 % intervals hold most."""
    misses, asked = 0, 0
    for seed in range(8):
        torch.manual_seed(seed)
        layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(8, 10)).double()
        x, t = torch.randn(20, 4).double(), torch.randint(10, (20,))
        report = hessdiag.diagnose(model, x, t, loss="cross-entropy", signals=False)
        assert "6 of 20 examples, each within its batch" in report.method_reason
        assert "sampling: some of the examples, standard errors up to" in report.text("whole")
        found, _ = matrices(model, x, t, "ggn")
        want = torch.stack([blocks_of(each, model) for each in found]).mean(0).diagonal()
        names = [name for name, _ in model.named_parameters()]
        for block in report.blocks:
            value = float(want[names.index(block.name)]) / block.numel
            if block.ended == "exact":
                assert block.avg_sq_singular_value == pytest.approx(value, rel=1e-10)
                continue
            if block.avg_sq_singular_value == 0:  # a bias that a normalisation subtracts
                assert value < 1e-20 * float(want.max())
                continue
            misses += abs(block.avg_sq_singular_value - value) > 1.96 * block.stderr
            asked += 1
        assert {b.name for b in report.blocks if b.ended == "exact"} >= {"6.weight", "6.bias"}
    assert asked == 16
    assert misses <= 0.15 * asked, (misses, asked)


class DropPath(nn.Module):
    """Stochastic depth, as libraries have it, by its name."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.empty(len(x), 1, dtype=x.dtype).bernoulli_(0.5) if self.training else x


def attends(p: float) -> nn.Module:
    attention = nn.MultiheadAttention(4, 2, dropout=p, batch_first=True)
    recurrent = nn.LSTM(4, 4, 2, dropout=p, batch_first=True)
    return Net(lambda m, x: m.recurrent(m.attention(x, x, x)[0])[0][:, -1], attention=attention, recurrent=recurrent)


DROPPING: dict[str, tuple[Callable[[float], nn.Module], tuple[int, ...]]] = {
    "modules": (lambda p: nn.Sequential(nn.Linear(4, 4), nn.Dropout(p), DropPath() if p else nn.Identity(),
        nn.Linear(4, 3)), (4,)),
    "functions": (lambda p: Net(lambda m, x: F.alpha_dropout(m.b(F.dropout(m.a(x), p, m.training)), p, m.training),
        a=nn.Linear(4, 4), b=nn.Linear(4, 3)), (4,)),
    "attention": (attends, (5, 4)),
    "layers": (lambda p: Net(lambda m, x: m.b(m.a(x) if float(torch.rand(())) < m.layerdrop else m.a(m.a(x))),
        a=nn.Linear(4, 4), b=nn.Linear(4, 3), layerdrop=2 * p), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", DROPPING)
def test_nothing_is_dropped(name: str) -> None:
    build, shape = DROPPING[name]
    models = [(torch.manual_seed(0), build(p).double())[1] for p in (0.0, 0.5)]
    x = torch.randn(3, *shape).double()
    with unchanged(models[1]):
        plain, dropped = (hessdiag.diagnose(model, x, method="exact", signals=False) for model in models)
    np.testing.assert_allclose(dropped.heatmap.frobenius_sq, plain.heatmap.frobenius_sq, rtol=1e-10)


def test_examples_may_meet_in_normalisations_alone_and_frozen_ones_are_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), Net(lambda m, x: x - x.mean(0)), nn.Linear(6, 3)).double()
    x = torch.randn(5, 4).double()
    with unchanged(model), pytest.raises(hessdiag.HessdiagError, match="other than those of torch's batch norm"):
        hessdiag.diagnose(model, x, method="exact")
    model, x, t = given("2d")
    options = {"loss": "cross-entropy", "method": "exact", "signals": False}
    evaluated = hessdiag.diagnose(model, x, t, mode="eval", **options)
    frozen = copy.deepcopy(model).train()
    frozen[1].eval(), frozen[4].eval()
    assert hessdiag.diagnose(frozen, x, t, **options).blocks == evaluated.blocks
    assert (evaluated.mode, hessdiag.diagnose(model, x, t, **options).mode) == ("eval", "train")
    spectral = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.Linear(8, 3)).double()
    x = torch.randn(3, 4).double()
    with unchanged(spectral):
        assert hessdiag.diagnose(spectral, x).blocks == hessdiag.diagnose(spectral, x, mode="eval").blocks


def test_a_fresh_normalisation_in_evaluation_mode_is_said_and_learning_rates_follow_the_mode() -> None:
    model, x, t = given("2d")
    report = hessdiag.diagnose(model, x, t, loss="cross-entropy", mode="eval")
    assert "batch normalisations that have never seen data (2) leave" in str(report)
    assert "in evaluation mode" in str(report)
    report = hessdiag.diagnose(model, x, t, loss="cross-entropy")
    assert "never seen" not in str(report)
    assert "as it trains" in str(report)
    model, x, t = given("1d", examples=40)
    model.eval()
    with unchanged(model):
        trains, evaluated = (hessdiag.learning_rates(model, x, t, mode=mode, steps=2) for mode in ("train", "eval"))
    assert hessdiag.learning_rates(model.train(), x, t, steps=2)["sgd"] == trains["sgd"]
    assert trains["sgd"] != evaluated["sgd"]
