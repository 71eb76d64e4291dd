"""Losses of every kind against dense float64 autograd: right or refused, in both views, for both matrices. A loss is a
line of `LOSSES`: what `diagnose` is given, what it is of, and, where that is a name, the same in torch. It is in
`COMPARE` where it compares the examples of a batch, in `LINEAR` where it has no Gauss-Newton matrix.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.diagnosis.learning_rates import FACTORS
from tests.networks import Net
from tests.oracles import dense_norms, equals_dense, ggn_blocks, joined
from tests.unchanged import unchanged

B, C = 8, 3
W = torch.tensor([0.4, 1.0, 2.5], dtype=torch.float64)


def focal(y: Tensor, t: Tensor) -> Tensor:
    log_p = y.log_softmax(1).gather(1, t[:, None])[:, 0]
    return (-((1 - log_p.exp()) ** 2) * log_p).mean()


def contrast(y: Tensor, t: Tensor) -> Tensor:
    z = F.normalize(y, dim=1)
    return F.cross_entropy(5 * z @ z.roll(1, 1).T, torch.arange(len(y)))


def batch_hard(y: Tensor, t: Tensor) -> Tensor:
    d, same = (y[:, None] - y[None]).square().sum(2), t[:, None] == t[None]
    return F.softplus(torch.where(same, d, -1e9).amax(1) - torch.where(same, 1e9, d).amin(1).clamp(max=99)).mean()


def dice(y: Tensor, t: Tensor) -> Tensor:
    p, one = y.softmax(1), F.one_hot(t, C)
    return 1 - 2 * (p * one).sum() / (p.square().sum() + one.sum())


def correlation(y: Tensor, t: Tensor) -> Tensor:
    a, b = y - y.mean(), t - t.mean()
    return 1 - (a * b).sum() / (a.square().sum() * b.square().sum()).sqrt()


def writes_in_place(y: Tensor, t: Tensor) -> Tensor:
    y -= y.detach().amax(1, keepdim=True)
    y[y < -1] *= 0.5
    t += 0
    return F.cross_entropy(y, t)


class Proxies(nn.Module):
    """Learnt centres of the classes, as in ArcFace, and a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(C, C, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, y: Tensor, t: Tensor) -> Tensor:
        self.calls += 1
        return F.cross_entropy(4 * F.normalize(y, dim=1) @ F.normalize(self.centres, dim=1).T, t)


def branching(y: Tensor, t: Tensor | None) -> Tensor:
    return torch.stack([a.square().sum() ** 2 if a.sum() > 0 else a.exp().sum() for a in y]).mean()


def weighted(y: Tensor, t: Tensor | None) -> Tensor:
    """A part of it is computed without gradients, which forward mode ignores."""
    with torch.no_grad():
        share = y.softmax(1)
    return (share * y.square()).sum(1).mean()


Given = tuple[Any, str] | tuple[Any, str, Callable[..., Tensor]]
LOSSES: dict[str, Given] = {
    "cross-entropy": ("cross-entropy", "labels", F.cross_entropy), "its module": (nn.CrossEntropyLoss(), "labels"),
    "its function": (F.cross_entropy, "labels"), "class weights": (nn.CrossEntropyLoss(weight=W), "labels"),
    "class weights, function": (lambda y, t: F.cross_entropy(y, t, weight=W), "labels"),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), "labels"),
    "smoothed with weights": (nn.CrossEntropyLoss(weight=W, label_smoothing=0.1), "labels"),
    "summed": (nn.CrossEntropyLoss(reduction="sum"), "labels"),
    "summed with weights": (nn.CrossEntropyLoss(weight=W, reduction="sum"), "labels"),
    "summed, function": (lambda y, t: F.cross_entropy(y, t, reduction="sum"), "labels"),
    "padded": ("cross-entropy", "padded", F.cross_entropy),
    "padded, module": (nn.CrossEntropyLoss(weight=W), "padded"), "padded, function": (F.cross_entropy, "padded"),
    "another index left out": (nn.CrossEntropyLoss(ignore_index=1, label_smoothing=0.1), "labels"),
    "soft labels": ("cross-entropy", "probabilities", F.cross_entropy),
    "soft labels, function": (F.cross_entropy, "probabilities"), "focal": (focal, "labels"),
    "squared loss": (lambda y, t: F.cross_entropy(y, t, reduction="none").square().mean(), "labels"),
    "temperature": (lambda y, t: F.cross_entropy(y / 2.5, t), "labels"),
    "confidence penalty": (lambda y, t: F.cross_entropy(y, t) + 0.1 * y.softmax(1).square().sum(1).mean(), "labels"),
    "proxies": (Proxies(), "labels"),
    "one-hot inside": (lambda y, t: (y.sigmoid() - F.one_hot(t, C)).square().mean(), "labels"),
    "in place": (writes_in_place, "labels"), "nll": (lambda y, t: F.nll_loss(y.log_softmax(1), t), "labels"),
    "multi-label": (nn.BCEWithLogitsLoss(), "bits"),
    "multi-label, weights": (nn.BCEWithLogitsLoss(pos_weight=W), "bits"),
    "multi-label, summed": (nn.BCEWithLogitsLoss(reduction="sum"), "bits"),
    "probabilities": (lambda y, t: F.binary_cross_entropy(y.sigmoid(), t), "bits"),
    "soft margin": (nn.MultiLabelSoftMarginLoss(), "bits"),
    "squared hinge": (lambda y, t: (1 - y * (2 * t - 1)).relu().square().mean(), "bits"),
    "mse": ("mse", "values", F.mse_loss), "mse, function": (F.mse_loss, "values"),
    "mse, summed": (nn.MSELoss(reduction="sum"), "values"), "huber": (nn.HuberLoss(delta=2.0), "values"),
    "smooth l1": (nn.SmoothL1Loss(), "values"), "log cosh": (lambda y, t: (y - t).cosh().log().mean(), "values"),
    "poisson": (nn.PoissonNLLLoss(), "bits"),
    "gaussian": (lambda y, t: F.gaussian_nll_loss(y[:, :1], t[:, :1], y[:, 1:2].exp()), "values"),
    "root of the mean square": (lambda y, t: F.mse_loss(y, t).sqrt(), "values"),
    "scaled by itself": (lambda y, t: (v := F.mse_loss(y, t)) / v.detach(), "values"),
    "without targets": (lambda y, t: (y.exp() - y).mean(), "none"), "branching": (branching, "none"),
    "no gradients inside": (weighted, "none"),
    "kl": (lambda y, t: F.kl_div(y.log_softmax(1), t, reduction="batchmean"), "probabilities"),
    "contrastive": (contrast, "labels"), "batch hard": (batch_hard, "labels"),
    # The mean over the quarter with the largest losses, at least one.
    "hardest": (lambda y, t: F.cross_entropy(y, t, reduction="none").topk(max(1, len(y) // 4)).values.mean(), "labels"),
    "dice": (dice, "labels"), "correlation": (correlation, "values"), "l1": (nn.L1Loss(), "values"),
    "spread": (lambda y, t: F.mse_loss(y, t) + (y.std(0, correction=0) - 1).square().sum(), "values"),
    "hinge": (lambda y, t: (1 - y * (2 * t - 1)).relu().mean(), "bits"),
    "quantile": (lambda y, t: torch.maximum(0.9 * (t - y), 0.1 * (y - t)).mean(), "values"),
    "critic": (lambda y, t: y.mean(), "none"),
}  # fmt: skip
COMPARE = {"contrastive", "batch hard", "dice", "correlation", "spread", "root of the mean square"}
LINEAR = {"l1", "hinge", "quantile", "critic"}
TARGETS: dict[str, Tensor | None] = {
    "labels": torch.tensor([0, 2, 1, 1, 2, 0, 1, 0]),
    "padded": torch.tensor([0, 2, -100, 1, -100, 0, 1, -100]),
    "probabilities": torch.rand(B, C, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(1),
    "bits": (torch.arange(B * C).view(B, C) % 3 > 0).double(),
    "values": torch.randn(B, C, dtype=torch.float64, generator=torch.Generator().manual_seed(2)),
    "none": None,
}


def network() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    layers = nn.Linear(2, 3, bias=False), nn.Tanh(), nn.Linear(3, C, bias=False)
    return nn.Sequential(*layers).double(), 2 * torch.randn(B, 2).double()


@pytest.mark.parametrize("name", LOSSES)
def test_right_or_refused(name: str) -> None:
    loss, kind, *same = LOSSES[name]
    function, (model, x), t = (same or [loss])[0], network(), TARGETS[kind]
    names = [n for n, _ in model.named_parameters()]

    def author(y: Tensor, t: Tensor | None) -> Tensor:
        value = function(y.clone(), None if t is None else t.clone()).nan_to_num()
        return value if y.requires_grad else value.detach()

    cases = [(B, matrix, per) for matrix in ("ggn", "hessian") for per in ("example", "batch")]
    for size, matrix, per in [*cases, (1, "ggn", "batch"), (1, "hessian", "example")]:
        some, theirs = x[:size], None if t is None else t[:size]
        options: dict[str, Any] = {"loss": loss, "matrix": matrix, "per": per, "method": "exact"}
        refused = name in COMPARE and per == "example" and size > 1
        refused |= name in LINEAR and matrix == "ggn"
        if refused:
            with pytest.raises(hessdiag.HessdiagError, match=r"compares the|is linear in|is NaN or"):
                hessdiag.diagnose(model, some, theirs, **options)
            continue
        want = dense_norms(model, some, theirs, author, names, matrix, per)
        if size == B:
            signals = (matrix, per) == ("hessian", "batch")
            report = hessdiag.diagnose(model, some, theirs, signals=signals, **options)
            equals_dense(report, names, want)
            assert (name, matrix) != ("huber", "hessian") or "not forward over reverse" in report.method_reason
            assert name not in ("cross-entropy", "mse") or "not forward" not in report.method_reason
            if signals:
                initial = float(author(model(some).detach(), theirs))
                assert report.signals.initial_loss == pytest.approx(initial, rel=1e-10)
            if matrix == "hessian":
                continue
        options["method"] = "probe" if size == 1 else "sketch"
        for block in hessdiag.diagnose(model, some, theirs, signals=False, **options).blocks:
            exact = float(want.diagonal()[names.index(block.name)]) / block.numel
            error = abs(block.avg_sq_singular_value - exact)
            assert error <= 6 * block.stderr + 1e-10 * exact + 1e-12 * float(want.max()), per


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in LINEAR])
def test_learning_rates_are_those_of_the_loss(name: str) -> None:
    """The first step, along the gradient of all examples: |g|² / gᵀGg."""
    loss, kind, *same = LOSSES[name]
    function, (model, x), t = (same or [loss])[0], network(), TARGETS[kind]
    value = function(model(x).clone(), None if t is None else t.clone())
    g = torch.cat([each.flatten() for each in torch.autograd.grad(value, list(model.parameters()))])
    names = [n for n, _ in model.named_parameters()]
    G = joined(ggn_blocks(model, x, t, lambda y, t: function(y.clone(), t), names))
    rates = hessdiag.learning_rates(model, x, t, loss=loss, optimizers=["sgd"], steps=1)
    want = FACTORS["sgd"] * float(g @ g / (g @ G @ g)) if g @ G @ g > 0 else math.nan
    assert rates["sgd"].steps[0] == pytest.approx(want, rel=1e-8, nan_ok=True)


class Detached(nn.Linear):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_what_is_no_function_of_the_outputs_is_refused() -> None:
    model, x = network()
    t, held, detached = TARGETS["labels"], list(model.parameters()), Detached(2, C).double()
    body = Net(lambda m, x: m.body(x), body=model, head=nn.Linear(C, C).double())
    state = torch.get_rng_state()
    weighs: Callable[..., Tensor] = lambda y, t: y.square().mean() + held[0].sum()  # noqa: E731
    noisy: Callable[..., Tensor] = lambda y, t: F.cross_entropy(y + torch.randn_like(y), t)  # noqa: E731
    losses = {"draws random numbers": noisy, r"weights of the model \('0.weight'\)": weighs}
    for message, loss in losses.items():
        for measure in (partial(hessdiag.diagnose, rtol=0.5), hessdiag.learning_rates):
            with pytest.raises(hessdiag.HessdiagError, match=message):
                measure(model, x, t, loss=loss)
    report = hessdiag.diagnose(model, x, t, loss=weighs, quick=True)
    assert "through the outputs alone: it reads 0.weight" in report.loss
    assert len({hessdiag.diagnose(model, x, t, loss=noisy, quick=True).signals.initial_loss for _ in range(2)}) == 1
    found = hessdiag.diagnose(body, x, t, loss=lambda y, t: F.cross_entropy(body.head(y), t), quick=True)
    assert not [each for each in found.findings if each.severity != "note" or each.rule == "HD403"]
    with pytest.raises(hessdiag.HessdiagError, match=r"no gradient: forward runs under torch.no_grad\(\)"):
        hessdiag.diagnose(detached, x, t, loss="cross-entropy")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loss_module_comes_back_as_it_was() -> None:
    (model, x), loss = network(), Proxies()
    with unchanged(loss):
        hessdiag.diagnose(model, x, TARGETS["labels"], loss=loss)
        hessdiag.learning_rates(model, x, TARGETS["labels"], loss=loss, steps=1)
    assert loss.calls == 0


def test_a_quick_diagnosis_takes_losses_of_a_whole_batch_and_without_second_derivatives() -> None:
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), torch.randn(8, 4)

    def apart(y: Tensor, t: Tensor) -> Tensor:
        return (y @ y.T - t).square().mean()

    def aligned(y: Tensor, t: Tensor) -> Tensor:
        sizes = torch.ones(len(y), dtype=torch.long)
        return F.ctc_loss(y.log_softmax(-1)[None], t[:, None], sizes, sizes)

    pairs = Net(lambda m, x: (m.a(x), m.a(-x)), a=nn.Linear(4, 3))
    hardest: Callable[..., Tensor] = lambda y, t: (y[0] @ y[1].T).topk(12)[0].square().mean()  # noqa: E731
    assert hessdiag.diagnose(pairs, torch.randn(16, 4), torch.ones(16), loss=hardest, quick=True).batch_size == 1
    quick = hessdiag.diagnose(model, x, torch.eye(8), loss=apart, quick=True)
    assert quick.per == "batch"
    whole = hessdiag.diagnose(model, x, torch.eye(8), loss=apart, per="batch")
    assert quick.signals.initial_loss == pytest.approx(whole.signals.initial_loss, rel=1e-6)
    for measure in (partial(hessdiag.diagnose, rtol=0.5), hessdiag.prescribe):
        with pytest.raises(hessdiag.HessdiagError, match="per='batch'"):
            measure(model, x, torch.eye(8), loss=apart)
    by_default = hessdiag.diagnose(model, iter([(x, torch.eye(8))]), loss=apart)
    assert (by_default.blocks, by_default.findings, by_default.method) == (quick.blocks, quick.findings, "none")
    assert "The curvature was not measured: the loss 'apart' compares the examples of a batch" in by_default.text()
    assert hessdiag.diagnose(model, x, torch.randint(1, 3, (8,)), loss=aligned, quick=True).signals is not None
    with pytest.raises(hessdiag.HessdiagError, match="outputs NaN or infinite: the slope of sqrt makes the first"):
        hessdiag.diagnose(model, x, loss=lambda y, _: (y - y).square().sum().sqrt() + y.sum(), quick=True)


def test_a_loss_writes_to_one_of_several_outputs_and_another_is_a_scaled_error_of_what_is_detached() -> None:
    layers = {"a": nn.Linear(4, 5), "b": nn.Linear(5, 200)}
    model = Net(lambda m, x: (m.b(h := m.a(x)), 0.5 * F.mse_loss(h, h.detach())), **layers)
    x, t = torch.randn(8, 4), torch.rand(8, 200)
    writes = lambda y, t: F.mse_loss(y[0].sigmoid_(), t) + y[1]  # noqa: E731
    reads = lambda y, t: F.mse_loss(y[0].sigmoid(), t) + y[1]  # noqa: E731
    written, plain = (hessdiag.diagnose(model, x, t, loss=loss) for loss in (writes, reads))
    assert (written.method, written.blocks) == ("sketch", plain.blocks)


def test_a_loss_of_pairs_that_is_zero_for_one_of_them_compares_examples() -> None:
    """Two views of an example have no negatives (SimCLR); with shuffled examples."""

    def contrast(y: Tensor, _: Any) -> Tensor:
        y = F.normalize(y)
        others = (y @ y.T).masked_fill(torch.eye(len(y)).bool(), -1e9)
        return F.cross_entropy(others / 0.1, torch.arange(len(y)).roll(len(y) // 2))

    def shuffled(m: nn.Module, x: Tensor) -> Tensor:
        order = torch.randperm(len(x))
        return m.last(m.first(x[order]).tanh()[order.argsort()])

    model = Net(shuffled, first=nn.Linear(4, 8), last=nn.Linear(8, 3))
    report = hessdiag.diagnose(model, torch.randn(16, 4), loss=contrast)
    assert (report.findings, report.method) == ((), "none")
    assert "compares the examples" in report.method_reason
    assert hessdiag.diagnose(model, torch.randn(16, 4), torch.randn(16, 3)).method == "exact"


@pytest.mark.parametrize("quick", [False, True])
def test_a_loss_may_take_derivatives_of_outputs_in_inputs(*, quick: bool) -> None:
    """The equation u'' = -u, where the user's own points require a gradient; and in another output."""
    x = torch.linspace(0, 1, 16)[:, None].requires_grad_()

    def residual(u: Tensor, _: Any) -> Tensor:
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return (torch.autograd.grad(slope.sum(), x, create_graph=True)[0] + u).square().mean()

    def length(y: tuple[Tensor, Tensor], _: Any) -> Tensor:
        return torch.autograd.grad(y[0].sum(), y[1], create_graph=True)[0].square().mean()

    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    model = Net(lambda m, x: (m.net(h := m.first(x)), h), first=nn.Linear(1, 1), net=net)
    for network, loss in ((net, residual), (model, length)):
        with unchanged(network):
            report = hessdiag.diagnose(network, x, loss=loss, quick=quick)
        assert (report.loss, report.verdict.level, report.method) == (loss.__name__, "no-problem", "none")
        assert report.signals.initial_loss == pytest.approx(loss(network(x), None).item())


def test_the_function_of_cross_entropy_is_the_name() -> None:
    model, x, t = nn.Linear(4, 3), torch.randn(2, 5, 4), torch.randint(3, (2, 5))
    named, function = (hessdiag.diagnose(model, x, t, loss=loss) for loss in ("cross-entropy", F.cross_entropy))
    assert named["weight"] == function["weight"]
    with pytest.raises(hessdiag.HessdiagError, match="pass class_dim=-1"):
        hessdiag.diagnose(model, x, t, loss=nn.CrossEntropyLoss())


def test_outputs_in_another_order_of_memory_go_to_a_loss_as_they_are_meant() -> None:
    model = Net(lambda m, x: m.c(x).permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2), c=nn.Conv2d(3, 5, 1))
    x, t = torch.randn(4, 3, 4, 4), torch.randint(5, (4, 4, 4))
    losses = [lambda y, t: F.nll_loss(y.log(), t), lambda y, t: -y.log().gather(1, t.unsqueeze(1)).mean()]
    one, other = (hessdiag.diagnose(model, x, t, loss=loss) for loss in losses)
    assert one["c.weight"].avg_sq_singular_value == pytest.approx(other["c.weight"].avg_sq_singular_value, rel=1e-4)


@pytest.mark.parametrize(("end", "said"), [
    (nn.ReLU(), "ReLU"), (nn.Sigmoid(), "sigmoid"), (nn.Softmax(1), "softmax"), (nn.Identity(), ""),
])  # fmt: skip
def test_what_stands_before_a_log_softmax_bounds_logits(end: nn.Module, said: str) -> None:
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10), end, nn.LogSoftmax(1))
    x, t = torch.randn(64, 20), torch.randint(10, (64,))
    told = [each.message for each in hessdiag.diagnose(model, x, t, loss=F.nll_loss, quick=True).findings]
    assert [f"ends in a {said}, " in message for message in told] == [True] * bool(said)


def test_masked_logits_of_minus_infinity_are_measured_as_large_numbers_and_a_loss_that_loses_there_is_refused() -> None:
    x, t = torch.randn(8, 5, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    last, mask = nn.Linear(4, 1), torch.arange(5) == 4
    masked: Callable[..., Tensor] = lambda m, x: m.last(x).squeeze(-1).masked_fill(mask, m.value)  # noqa: E731
    one, other = (Net(masked, last=last, value=value) for value in (-math.inf, -1e9))
    found, same = (hessdiag.diagnose(net, x, t, loss=F.cross_entropy) for net in (one, other))
    assert (found.blocks, found.findings) == (same.blocks, same.findings)
    assert hessdiag.describe(one, x).blocks == hessdiag.describe(other, x).blocks  # before it is known that they mask
    with pytest.raises(hessdiag.HessdiagError, match="NaN or infinite at outputs of -inf"):
        hessdiag.diagnose(one, x, t, loss=lambda y, t: F.cross_entropy(y, t) + 0 * y.log_softmax(1).sum())
    x[0, 0, 0], t[0], whole = 9.0, -100, Net(lambda m, x: one(x).masked_fill(x[:, 0, :1] > 8, -math.inf), one=one)
    with pytest.raises(hessdiag.HessdiagError, match="a row that is all -inf"):  # its gradient is NaN, ignored or not
        hessdiag.diagnose(whole, x, t, loss=F.cross_entropy)
