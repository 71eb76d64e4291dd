"""Signals of small networks against closed forms and plain autograd, and roles in the graph."""

import math
import random
import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from strangers.gallery.case import Variant
from strangers.gallery.data import text
from strangers.gallery.language import mamba
from torch import Tensor, nn

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.diagnosis.rules import find
from hessdiag.diagnosis.signals import MAX_EXAMPLES, SignalPass, second_moment
from hessdiag.network.trace import backpropagate
from hessdiag.results.signals import LayerSignals, Signals
from tests.kinds import KINDS
from tests.layouts import WITHOUT_RULES
from tests.networks import Net
from tests.unchanged import unchanged


def signals_of(model: nn.Module, x: Tensor, targets: Tensor | None = None, loss: Any = "random-quadratic") -> Signals:
    resolved = resolve_loss(loss, y=model(x[:2]).detach(), targets=targets, seed=0)
    part = Batch.of(x, targets).narrow(0, MAX_EXAMPLES)
    noted = SignalPass(model, part)
    with noted.watching():
        y = part.call(model)
        own = resolved.gradient(y.detach(), part.targets).unsqueeze(0)
        noted.measure(y, backpropagate(y, noted.edges, own), own, resolved)
    found, missing = noted.signals, noted.missing
    assert found is not None, missing
    return found


def by_path(signals: Signals) -> dict[str, LayerSignals]:
    return {layer.path: layer for layer in signals.layers}


def unread(frozen: bool) -> nn.Module:
    """A parameter that the outputs do not depend on, one whose gradient is zero, and one that is frozen or not."""
    layers = {"first": nn.Linear(4, 6), "last": nn.Linear(6, 3), "unread": nn.Linear(2, 2)}
    nn.init.zeros_(layers["last"].weight)
    layers["first"].bias.requires_grad_(not frozen)
    return Net(lambda m, x: m.last(torch.tanh(m.first(x))), **layers).double()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
def test_the_gradient_that_is_at_hand_is_that_of_the_first_batch(batches: int, *, frozen: bool) -> None:
    model = unread(frozen)
    data = [(torch.randn(5, 4, dtype=torch.float64), torch.randint(3, (5,))) for _ in range(batches)]
    found = hessdiag.diagnose(model, data, loss="cross-entropy").signals
    assert found is not None
    alone = signals_of(model, *data[0], "cross-entropy")
    for one, other in zip(found.parameters, alone.parameters, strict=True):
        assert (one.name, one.gradient, one.trainable) == (other.name, other.gradient, other.trainable)
        assert one.gradient_sq == pytest.approx(other.gradient_sq, rel=1e-12)
    assert {p.name: p.gradient for p in found.parameters}["unread.weight"] == "none"
    assert {p.name: p.gradient for p in found.parameters}["first.weight"] == "later"  # once the last one has moved


@pytest.mark.parametrize("draw", [random.random, lambda: float(torch.rand(()))])
def test_layers_that_are_skipped_by_chance_are_used(draw: Callable[[], float]) -> None:
    forward = lambda m, x: reduce(lambda h, layer: h + layer(h).tanh() if draw() > 0.5 else h, m.children(), x)  # noqa: E731
    model = Net(forward, **{f"l{i}": nn.Linear(4, 4) for i in range(16)})
    report = hessdiag.diagnose(model, torch.randn(8, 4), torch.randn(8, 4), quick=True)
    assert {p.gradient for p in report.signals.parameters} == {"some", "later"}
    assert not [finding for finding in report.findings if finding.rule == "HD403"]


def test_what_opens_when_others_move_is_told_from_what_never_does() -> None:
    """Zeros two deep open one after the other, from the outputs on; two factors that are both zero never do."""
    names = ("first", "second", "third", "left", "right")
    layers = {name: nn.Linear(4, 4, bias=False) for name in names}
    for name in names[1:]:
        nn.init.zeros_(layers[name].weight)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return x + m.third(m.second(m.first(x)) + x) * (1 + m.second(x)) + m.right(m.left(x))

    model, x = Net(forward, **layers).double(), torch.randn(6, 4, dtype=torch.float64)
    with unchanged(model, x):
        found = signals_of(model, x, torch.arange(6) % 4, "cross-entropy")
    expected = {"first": "later", "second": "later", "third": "some", "left": "zero", "right": "zero"}
    assert {p.owners[0]: p.gradient for p in found.parameters} == expected


def test_moments_and_gradients_are_those_of_autograd() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    x, targets = torch.randn(6, 5, dtype=torch.float64), torch.randint(3, (6,))
    found = signals_of(model, x, targets, "cross-entropy")
    hidden = model[0](x).detach().requires_grad_()
    read = F.relu(hidden)
    read.retain_grad()
    F.cross_entropy(model[2](read), targets, reduction="sum").backward()
    assert hidden.grad is not None
    assert read.grad is not None
    first, last = found.layers
    assert first.out_sq == pytest.approx(hidden.square().mean().item(), rel=1e-12)
    assert first.out_varies == pytest.approx((hidden.var(0).mean() / hidden.square().mean()).item(), rel=1e-12)
    assert first.out_gradient_total == pytest.approx(hidden.grad.square().sum().item() / 6, rel=1e-12)
    assert last.x_gradient_sq == pytest.approx(read.grad.square().mean().item(), rel=1e-12)
    assert (first.labels, last.labels) == (("relu",), ("output",))
    values = F.cross_entropy(model(x), targets, reduction="none")
    assert found.initial_loss == pytest.approx(values.mean().item(), rel=1e-12)
    assert found.initial_loss_stderr == pytest.approx(values.std().item() / math.sqrt(6), rel=1e-12)
    assert found.output_variance == pytest.approx(model(x).var(correction=0).item(), rel=1e-12)
    (gradient,) = torch.autograd.grad(values.mean(), [model[0].weight])
    (weight,) = (p for p in found.parameters if p.name == "0.weight")
    assert weight.gradient_sq == pytest.approx(gradient.square().mean().item(), rel=1e-12)
    assert weight.weight_sq == pytest.approx(model[0].weight.square().mean().item(), rel=1e-12)


def test_chance_is_each_label_guessed_from_the_others_and_zero_outputs_get_noise() -> None:
    targets = torch.tensor([0] * 9 + [1])
    found = signals_of(nn.Linear(3, 4), torch.randn(10, 3), targets, "cross-entropy")
    expected = -(9 * math.log(9 / 13) + math.log(1 / 13)) / 10
    assert found.chance_loss == pytest.approx(expected, rel=1e-12)
    again = signals_of(nn.Linear(3, 4), torch.randn(10, 3), F.one_hot(targets, 4).float(), "cross-entropy")
    assert again.chance_loss == pytest.approx(expected, rel=1e-6)
    head = nn.Linear(3, 2)
    found = signals_of(head, torch.randn(4, 3))
    assert math.isnan(found.chance_loss)
    assert found.sent_back == "loss"
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    found = signals_of(head, torch.randn(4, 3))
    assert found.sent_back == "noise"
    assert {p.gradient for p in found.parameters} == {"some"}


def block() -> nn.Module:
    rule = lambda m, x: x + m.down(F.gelu(m.up(m.norm(x)), approximate="tanh"))  # noqa: E731
    return Net(rule, norm=nn.LayerNorm(6), up=nn.Linear(6, 6), down=nn.Linear(6, 6))


def test_roles_of_a_residual_branch() -> None:
    model = nn.Sequential(nn.Linear(4, 6), block(), block(), nn.Linear(6, 2))
    model[1].down.requires_grad_(False)
    layers = by_path(signals_of(model, torch.randn(5, 4)))
    assert {"norm", "self-add"} <= set(layers["0"].labels)
    assert layers["1.up"].labels == ("gelu",)
    assert [layers[path].labels for path in ("1.down", "2.down")] == [("add",)] * 2
    assert [layers[path].sources for path in ("1.up", "2.down")] == [("1.norm",), ("2.up",)]
    assert layers["3"].labels == ("output",)
    assert layers["1.norm"].normalises
    assert not model[1].down.weight.requires_grad  # as it was


@pytest.mark.parametrize("activation", [F.selu, F.elu, torch.tanh, F.relu6, F.silu])
def test_nonlinearities_by_name(activation: Callable[[Tensor], Tensor]) -> None:
    model = Net(lambda m, x: m.b(activation(m.a(x))), a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    assert by_path(signals_of(model, torch.randn(4, 3)))["a"].labels == (activation.__name__,)


USES = {  # of parameters by shape: free ones are added, joined, or multiply number by number; kernels times a number
    "left": ((5, 5), ("product",)), "kernel": ((6, 6, 3), ("convolution", "product")),
    "standardised": ((6, 6), ("product",)), "gain": ((6, 1), ()), "positions": ((5, 6), ("sum",)),
    "token": ((1, 6), ()), "latents": ((3, 6), ()), "query": ((6, 6), ("product",)), "decay": ((6, 6), ()),
    "table": ((7, 6), ("lookup", "output", "product")),
}  # fmt: skip


def test_what_a_matrix_is_for_is_read_off_the_graph() -> None:
    def forward(m: Any, ids: Tensor) -> Tensor:
        x = F.conv1d((m.left @ (F.embedding(ids, m.table) + m.positions)).mT, 0.5 * m.kernel, padding=1).mT  # (B, 5, 6)
        weight = m.standardised - m.standardised.mean(1, keepdim=True)
        x = torch.cat([m.token.expand(len(x), 1, 6), F.linear(x, weight * m.gain)], 1)
        q = F.linear(F.layer_norm(m.latents, (6,)).expand(len(x), -1, -1), m.query)
        y = (q @ x.mT).softmax(-1) @ x  # (B, 3, 6)
        return (y.unsqueeze(-1) * torch.exp(-m.decay.exp())).sum(-1).mean(1) @ m.table.T

    model = Net(forward, **{name: nn.Parameter(torch.randn(shape)) for name, (shape, _) in USES.items()})
    signals = signals_of(model, torch.randint(7, (4, 5)))
    assert {p.name: p.uses for p in signals.parameters} == {name: uses for name, (_, uses) in USES.items()}
    layers = {"rnn": nn.LSTM(4, 4), "attention": nn.MultiheadAttention(4, 2)}
    model = Net(lambda m, x: m.attention(*[m.rnn(x)[0]] * 3)[0], **layers)
    uses = {p.name: p.uses for p in signals_of(model, torch.randn(5, 3, 4)).parameters if len(p.shape) > 1}
    assert set(uses.values()) == {("product",), ("output", "product")}


def test_a_module_with_an_activation_of_its_own_writes_nothing_linear() -> None:
    linear = lambda x: 2 * x.unflatten(1, (2, 2)).flatten(1)  # noqa: E731
    for inner, label in ((F.leaky_relu, ()), (lambda x: (x.relu() + x.sin()) / 2, ()), (linear, ("linear",))):
        own = Net(lambda m, x, inner=inner: inner(F.linear(x, m.weight)), weight=nn.Parameter(torch.randn(4, 4)))
        assert by_path(signals_of(nn.Sequential(own, nn.Linear(4, 2)), torch.randn(5, 4)))["0"].labels == label


def test_an_input_that_unused_layers_alone_read_is_told_unless_it_is_exchanged_in_vain() -> None:
    layers = {name: nn.Embedding(9, 4) for name in ("source", "target")}
    tokens = torch.randint(9, (2, 6, 5))
    for used, said in ((False, True), (True, False)):
        run = lambda m, a, b, used=used: m.head(m.target(b) + (m.source(a) if used else 0 * len(m.source(a))))  # noqa: E731
        model = Net(run, **layers, head=nn.Linear(4, 3))
        report = hessdiag.diagnose(model, tuple(tokens), tokens[1] % 3, quick=True, progress=False,
                                   loss=lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))  # fmt: skip
        assert [f.blocks for f in report.findings if f.rule == "HD120"] == [("source.weight",)] * said


def test_a_gain_of_a_residual_branch_is_told_from_other_factors() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.stem(x)
        return m.head(h + m.gamma * torch.tanh(m.first(h) * m.scale) * m.rate.exp())

    free = {name: nn.Parameter(torch.randn(4)) for name in ("gamma", "scale", "rate")}
    layers = {name: nn.Linear(4, 4) for name in ("stem", "first", "head")}
    signals = signals_of(Net(forward, **layers, **free), torch.randn(5, 4))
    assert {p.name for p in signals.parameters if "branch" in p.uses} == {"gamma"}


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_other_losses_are_compared_with_those_of_constants_however_large(size: float) -> None:
    """Of the mean output and of zero; of log-probabilities of their mean and equal ones. One that scales has none."""
    model, x, t = nn.Linear(6, 8), torch.randn(12, 6), torch.randint(8, (12,))
    nn.init.normal_(model.weight, std=size)
    y = model(x).detach()
    mean = float(F.cross_entropy(y.mean(0).expand_as(y), t))
    signals = signals_of(model, x, t, loss=lambda y, t: F.cross_entropy(y, t, reduction="none").mean())
    assert signals.chance_loss == pytest.approx(min(mean, math.log(8)), rel=1e-5)
    probabilities = y.double().log_softmax(1).exp().mean(0)
    signals = signals_of(nn.Sequential(model, nn.LogSoftmax(1)), x, t, loss=lambda y, t: -y[range(len(y)), t].mean())
    assert signals.chance_loss == pytest.approx(min(float(-probabilities[t].log().mean()), math.log(8)), rel=1e-5)
    assert math.isnan(signals_of(model, x, loss=lambda y, t: y.square().sum()).chance_loss)
    contrast = lambda y, t: F.cross_entropy(y @ y.T, torch.arange(len(y)))  # noqa: E731
    compared = hessdiag.diagnose(nn.Linear(6, 8), x, t, loss=contrast, quick=True, per="batch").signals
    assert compared is not None
    assert compared.chance_loss <= math.log(12) * 1.01


def test_no_constant_is_a_guess_where_the_loss_has_no_least_or_the_labels_are_told() -> None:
    model, x, t = nn.Linear(6, 8), torch.randn(12, 6), torch.randint(8, (12,))
    flow = Net(lambda m, x: (m.a(x), m.a(x).sum(1)), a=model)
    told = Net(lambda m, x, t: m.a(x) - F.one_hot(t, 8), a=model)
    for net, given, loss in (
        (flow, (x, None), lambda y, t: (y[0].square().sum(1) - y[1]).mean()),
        (told, ((x, t), t), "cross-entropy"),
    ):
        found = hessdiag.diagnose(net, *given, loss=loss, quick=True).signals
        assert found is not None
        assert math.isnan(found.chance_loss)


def test_the_best_constant_is_found_where_examples_are_many_for_its_outputs() -> None:
    """Of an absolute error the median of each output, far from the outputs at the start."""
    x, t = torch.randn(33, 4).double(), 50 + torch.randn(33, 2).double()
    found = signals_of(nn.Linear(4, 2).double(), x, t, loss=lambda y, t: (y - t).abs().mean())
    assert found.chance_loss == pytest.approx(float((t - t.median(0).values).abs().mean()), rel=0.02)
    assert math.sqrt(found.chance_sq) == pytest.approx(50, rel=0.01)


def test_a_loss_of_log_probabilities_has_no_least_value_of_raw_outputs() -> None:
    model, x, t = nn.Sequential(nn.Linear(6, 8)), torch.randn(12, 6), torch.randint(8, (12,))
    losses: dict[str, Any] = {"nll": F.nll_loss, "cross-entropy": F.cross_entropy, "far": lambda y, t: y.exp().sum()}
    assert {name for name, loss in losses.items() if signals_of(model, x, t, loss=loss).unbounded} == {"nll"}
    (named,) = find(signals_of(model, x, t, loss=F.nll_loss))
    assert (named.rule, named.severity, named.blocks) == ("HD113", "fault", ("0.weight",))
    assert not signals_of(nn.Sequential(model, nn.LogSoftmax(1)), x, t, loss=F.nll_loss).unbounded


@pytest.mark.parametrize(("ahead", "shift", "shown"), [
    (True, 1, "ahead"), (False, 1, ""), (False, 0, "own"), (True, 0, ""), (False, 2, "skips"), (True, 2, ""),
])  # fmt: skip
def test_targets_that_stand_in_what_the_outputs_see(ahead: bool, shift: int, shown: str) -> None:
    table, head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def run(m: Any, tokens: Tensor) -> Tensor:
        x = m.table(tokens)
        seen = x.mean(1, keepdim=True).expand_as(x) + x if ahead else x.cumsum(1)
        return m.head(seen)

    tokens = torch.randint(20, (3, 9))
    model, x, t = Net(run, table=table, head=head), tokens[:, : 9 - shift], tokens[:, shift:]
    loss = lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten())  # noqa: E731
    assert signals_of(model, x, t, loss=loss).shown == shown
    assert signals_of(model, x, t.roll(2, 1), loss=loss).shown == ""
    late = Net(lambda m, x: F.pad(m.model(x)[:, :-1], (0, 0, 1, 0)), model=model)  # a decoder's output for the token
    assert signals_of(late, x, t, loss=loss).shown == {"own": "", "skips": ""}.get(shown, shown)
    both = Net(lambda m, x: {"aux": m.model(x).mean(dim=(1, 2)), "logits": m.model(x)}, model=model)
    report = hessdiag.diagnose(
        both, x, t, quick=True, loss=lambda y, t: loss(y["logits"], t) + y["aux"].square().mean()
    )
    assert report.signals.shown == shown


def test_outputs_that_no_weight_moves_are_counted() -> None:
    def bent(activation: nn.Module) -> nn.Module:
        def run(m: Any, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(m.net(x).sum(), x, create_graph=True)
            (bend,) = torch.autograd.grad((slope * x).sum(), x, create_graph=True)
            return torch.cat([bend - slope, m.net(x)], 1)

        return Net(run, net=nn.Sequential(nn.Linear(1, 8), activation, nn.Linear(8, 1)))

    x, t = torch.rand(8, 1), torch.ones(8, 2)
    assert [signals_of(bent(each), x, t, loss="mse").unmoved for each in (nn.ReLU(), nn.Tanh())] == [1, 0]
    fixed = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    nn.init.constant_(fixed[0].weight, -1.0)  # nothing passes, until the weights are others
    nn.init.constant_(fixed[0].bias, -1.0)
    assert signals_of(fixed, x, t, loss="mse").unmoved == 0


@pytest.mark.parametrize(("loss", "stuck"), [
    (lambda y, t: (y > t).double().mean() + 0 * y.sum(), True),  # steps
    (lambda y, t: 0 * y.sum() + 1, True),
    (lambda y, t: F.relu(y.abs() - 10).mean(), False),  # at its least
])  # fmt: skip
def test_a_loss_without_a_gradient_is_stuck_unless_it_is_at_its_least(loss: Any, stuck: bool) -> None:
    model, x = nn.Linear(3, 2), torch.randn(8, 3)
    assert signals_of(model, x, torch.zeros(8, 2), loss=loss).stuck == stuck
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    assert not signals_of(model, x).stuck  # nor is ours, at outputs of zero


def test_a_loss_is_judged_where_it_is_defined() -> None:
    model, x = nn.Sequential(nn.Linear(3, 1), nn.Softplus()), torch.randn(16, 3)
    rates = lambda y, t: F.poisson_nll_loss(y, t, log_input=False)  # noqa: E731
    assert signals_of(model, x, torch.poisson(x[:, :1].exp()), loss=rates).swing > 0.05


@pytest.mark.parametrize(("variant", "said"), [("before", [("HD101", "warning", "embedding.weight")]), ("after", [])])
def test_of_mamba_only_the_tied_embedding_is_named(variant: Variant, said: list[tuple[str, str, str]]) -> None:
    """Neither the decay rates, which are alike in all channels, nor the biases of the steps, which are far below 0."""
    found = find(signals_of(mamba(variant, 64, 2), *text(0), loss="cross-entropy"))
    assert [(f.rule, f.severity, *f.blocks) for f in found] == said


def test_a_detached_layer_is_told_from_an_unused_one_and_comes_back_as_it_was() -> None:
    layers = {name: nn.Linear(4, 4) for name in ("first", "second", "unread")}
    model = Net(lambda m, x: m.head(torch.tanh(m.second(m.first(x))).detach()), **layers, head=nn.Linear(4, 3))
    x = torch.randn(5, 4)
    with unchanged(model):
        cut, unread = find(signals_of(model, x))
    names = [f"{path}.{kind}" for path in ("second", "first") for kind in ("weight", "bias")]
    assert (cut.rule, cut.severity, cut.blocks) == ("HD403", "warning", tuple(names))
    assert cut.message.endswith("but no gradient gets there.")
    assert (unread.severity, unread.blocks) == ("note", ("unread.weight", "unread.bias"))


def test_a_weight_before_a_normalisation_is_radially_blind_and_left_out_of_the_balance() -> None:
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    x, targets = torch.randn(32, 5), torch.randint(3, (32,))
    report = hessdiag.diagnose(model, x, targets, loss="cross-entropy")
    radial = {p.name: p.radial for p in report.signals.parameters}
    along = {p.name: p.along for p in report.signals.parameters}
    assert along["0.weight"] < 1e-6 < along["2.weight"]
    assert radial["0.weight"] < 1e-6
    assert math.isnan(radial["2.weight"])  # nothing normalises behind it
    assert "Before a normalisation: 0." in report.verdict.balance.notes
    before = report.verdict.balance.factor
    model[0].weight.data.mul_(0.3)
    report = hessdiag.diagnose(model, x, targets, loss="cross-entropy")
    assert report.verdict.balance.factor == pytest.approx(before, rel=0.02)  # but for ε
    assert report.spread["avg_sq_singular_value"] > 10 * before


@pytest.mark.parametrize("name", [*WITHOUT_RULES, "attention", "lstm", "gru", "checkpointed"])
def test_unusual_networks_have_signals_and_nothing_is_said_against_them(name: str) -> None:
    kind = KINDS[name]
    report = hessdiag.diagnose(kind.make().double(), kind.inputs(), max_products=2)
    assert not report.signals_missing
    assert report.verdict.level == "no-problem", report.findings


def test_tiny_variation_is_told_from_none_and_a_scale_changes_no_relative_curvature() -> None:
    """Deviations of 1e-5 from a mean of 1000: the squares of sums would lose them in float64."""
    x = 1000 + 1e-5 * torch.randn(6, 50, dtype=torch.float64)
    _, varies = second_moment(x, 6)
    assert varies == pytest.approx(float(x.var(0).mean() / x.square().mean()), rel=1e-6)
    assert second_moment(x[:1].expand(6, -1).float(), 6)[1] == 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(8, 5, dtype=torch.float64)
    first = hessdiag.diagnose(model, x)["0.weight"].relative_curvature
    for tensor, factor in ((model[0].weight, 3.0), (model[0].bias, 3.0), (model[2].weight, 1 / 3)):
        tensor.data.mul_(factor)
    assert hessdiag.diagnose(model, x)["0.weight"].relative_curvature == pytest.approx(first)


def test_findings_do_not_depend_on_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of 256 KiB this network goes through two examples at a time; whether they differ takes four (HD105)."""
    model = nn.Sequential(nn.Linear(20000, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    x, targets = 1 + 1e-3 * torch.randn(12, 20000), torch.randint(3, (12,))
    many = hessdiag.diagnose(model, x, targets, loss="cross-entropy")
    monkeypatch.setattr("hessdiag.data.memory.CHUNK", 2**18)
    monkeypatch.setattr("hessdiag.diagnosis.measure.GRADIENTS", 0)
    few = hessdiag.diagnose(model, x, targets, loss="cross-entropy")
    assert few.signals.examples == 12
    said = [[(f.rule, f.severity, f.blocks) for f in report.findings] for report in (few, many)]
    assert said[0] == said[1]
    assert "HD105" in {rule for rule, _, _ in said[0]}


def split(m: Any, layer: nn.Module, x: Tensor) -> Tensor:
    return layer(m.norm(x)).unflatten(-1, (2, 8)).transpose(1, 2)


def logits(m: Any, x: Tensor) -> Tensor:
    return split(m, m.q, x) @ split(m, m.k, x).mT / math.sqrt(8)


def attention(how: str) -> nn.Module:
    """Two heads of attention beside a router, whose softmax is none of attention's."""

    def forward(m: Any, x: Tensor) -> Tensor:
        if how == "kernel":
            y = F.scaled_dot_product_attention(*(split(m, layer, x) for layer in (m.q, m.k, m.v)))
        else:
            y = torch.einsum("bhqk,bhkd->bhqd", F.dropout(logits(m, x).softmax(-1), 0.1, m.training), split(m, m.v, x))
        return m.head(y.transpose(1, 2).flatten(2)) * F.softmax(m.router(x), -1).amax(-1, keepdim=True)

    layers = {"norm": nn.LayerNorm(16), **{name: nn.Linear(16, 16) for name in "qkv"}}
    model = Net(forward, **layers, router=nn.Linear(16, 40), head=nn.Linear(16, 2))
    for layer in (model.q, model.k):
        nn.init.normal_(layer.weight)
    nn.init.normal_(model.router.weight, std=30)
    return model.double().eval()


@pytest.mark.parametrize("how", ["kernel", "by hand"])
def test_peaked_attention_is_that_of_its_rows_and_is_laid_to_queries_and_keys(how: str) -> None:
    model, x = attention(how), torch.randn(3, 40, 16, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, max_products=2, rtol=0.5)
    peaked = {layer.path: layer.peaked for layer in report.signals.layers if not math.isnan(layer.peaked)}
    expected = (logits(model, x).softmax(-1).amax(-1) > 0.99).double().mean().item()
    assert 0.1 < expected < 0.9
    assert peaked == {"q": pytest.approx(expected), "k": pytest.approx(expected)}
    (found,) = (finding for finding in report.findings if finding.rule == "HD112")
    assert set(found.blocks) == {"q.weight", "k.weight"}


def test_rows_that_a_mask_leaves_one_key_are_not_peaked_and_masked_weights_may_be_astray() -> None:
    mask = torch.ones(6, 6).tril()

    def run(m: Any, x: Tensor, dim: int = -1) -> Tensor:
        weights = (m.q(x) @ m.k(x).mT).masked_fill(mask == 0, -1e9).softmax(dim) * mask
        return m.last(weights @ m.v(x))

    for dim, rules in ((-1, []), (-2, ["HD114"])):
        model = Net(partial(run, dim=dim), **{name: nn.Linear(4, 4) for name in "qkv"}, last=nn.Linear(4, 2))
        report = hessdiag.diagnose(model, torch.randn(8, 6, 4), quick=True)
        peaked = [layer.peaked for layer in report.signals.layers if layer.path == "q"]
        assert dim == -2 or peaked == [0.0]
        assert [each.rule for each in report.findings] == rules


def test_peaked_attention_of_a_packed_projection_is_laid_to_it() -> None:
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    encoder.self_attn.in_proj_weight.data.mul_(20)
    model = nn.Sequential(nn.Linear(4, 16), encoder, nn.Linear(16, 2))
    report = hessdiag.diagnose(model, torch.randn(2, 40, 4), max_products=2, rtol=0.5)
    assert [layer.path for layer in report.signals.layers if layer.peaked > 0.1] == ["1.self_attn"]


def test_a_failure_is_said_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.diagnosis.signals.example_dim", Mock(side_effect=RuntimeError("do not watch me")))
    report = hessdiag.diagnose(nn.Linear(3, 2), torch.randn(4, 3))
    assert report.signals is None
    assert report.findings == ()
    assert report.signals_missing == "RuntimeError: do not watch me"
    assert report.verdict.level == "undecided"
    assert "do not watch me" in report.verdict.sentence
    assert report["weight"].avg_sq_singular_value > 0
    assert hessdiag.Report.from_json(report.to_json()) == report


class NormalisedTable(nn.Embedding):
    """An embedding that is normalised as it is read."""

    def forward(self, ids: Tensor) -> Tensor:
        return F.rms_norm(super().forward(ids), (self.embedding_dim,))


class Sandwich(nn.Module):
    """Attention whose normalised result is added to what it reads, scaled, and a gated branch that starts at zero."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o, self.gate = (nn.Linear(width, width) for _ in range(5))
        self.after, self.last = nn.RMSNorm(width), nn.LayerNorm(width)
        self.extra = nn.Parameter(torch.empty(0, width))  # as where a configuration needs none
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5
        x = (x + self.after(self.o(scores.softmax(-1) @ self.v(x))) + self.extra.sum()) / 2**0.5
        branch = self.last(F.gelu(x))
        return x + branch * torch.sigmoid(self.gate(branch))


def test_ways_of_healthy_networks_are_no_finding() -> None:
    """Normalised ends of branches, gates behind zero gains, tables that are normalised, parameters without numbers."""
    layers = [NormalisedTable(30, 8), *(Sandwich() for _ in range(4)), nn.Flatten(), nn.Linear(48, 5)]
    nn.init.normal_(layers[0].weight, std=0.02)
    report = hessdiag.diagnose(nn.Sequential(*layers), torch.randint(30, (16, 6)), torch.randint(5, (16,)), quick=True)
    assert report.findings == ()


def test_what_does_not_fit_its_batch_is_a_fault_where_that_is_tried() -> None:
    x, labels = torch.randn(32, 8), torch.randint(3, (32,))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    said = []
    with unchanged(model):
        for inputs in (x, x[:2].repeat(16, 1)):  # of the latter two rows the labels are noise
            report = hessdiag.diagnose(model, inputs, labels, fit=True, quick=True)
            said.append(report.signals.fitted_loss / report.signals.initial_loss)
            assert [f.severity for f in report.findings if f.rule == "HD121"] == (["fault"] if said[-1] > 0.8 else [])
    assert said[0] < 0.3 < 0.8 < said[1]


def test_what_training_on_the_batch_makes_of_a_layer_is_named() -> None:
    """Targets of thousands drive a tanh out of range, and the loss stays."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    x, t = torch.randn(64, 8), 3000 * torch.randn(64, 1)
    with unchanged(model):
        report = hessdiag.diagnose(model, x, t, loss=lambda y, t: (y - t).abs().pow(1.9).mean(), fit=True, quick=True)
    found, cause = report.findings
    assert (found.rule, found.severity, found.blocks) == ("HD121", "fault", ("2.weight",))
    assert (cause.rule, cause.severity, cause.blocks) == ("HD105", "warning", ("4.weight",))
    assert re.search(r"leaves 9. % of its loss .* After that: .. % of the units after layer 2 are at", found.message)
    assert hessdiag.Report.from_json(report.to_json()).findings == report.findings


def test_a_parameter_that_is_compared_with_is_cut() -> None:
    torch.manual_seed(1)
    over = Net(
        lambda m, x: m.out((x > m.threshold).float()), threshold=nn.Parameter(torch.zeros(4)), out=nn.Linear(4, 2)
    )
    (found,) = [f for f in find(signals_of(over, torch.randn(32, 4))) if f.rule == "HD403"]
    assert (found.severity, found.blocks) == ("warning", ("threshold",))


def test_what_makes_scores_of_one_key_is_not_said_not_to_learn() -> None:
    def attend(m: Any, x: Tensor) -> Tensor:
        scores = m.q(x) @ m.k(x).mT + m.biases[0, : x.shape[1], : x.shape[1]]
        return m.out((scores.softmax(-1) @ m.v(x)).mean(1))

    layers = {name: nn.Linear(4, 4) for name in ("q", "k", "v", "out")}
    for positions, told in ((1, True), (3, False)):
        model = Net(attend, **layers, biases=nn.Parameter(torch.zeros(2, 3, 3)))
        found = signals_of(model, torch.randn(8, positions, 4))
        named = {p.name for p in found.parameters if "one key" in p.uses}
        assert named == ({"q.weight", "q.bias", "k.weight", "k.bias", "biases"} if told else set())
        assert not [f for f in find(found) if f.rule == "HD401"]


def test_one_key_and_channels_that_become_examples_are_no_wrong_axes() -> None:
    """As in asteroid's DPRNN and vit-pytorch's Twins."""
    one = lambda m, x: m.b((m.a(x) @ m.a(x[:, :1]).mT).softmax(-1) * m.a(x[:, :1]))  # noqa: E731
    split = lambda m, x: m.b(m.a(x).reshape(-1, 4, 3, 5).mean((2, 3))).view(-1, 4)  # noqa: E731
    for rule, a, size in ((one, nn.Linear(4, 4), (8, 3, 4)), (split, nn.Conv2d(2, 8, 1), (8, 2, 3, 5))):
        found = signals_of(Net(rule, a=a, b=nn.Linear(4, 2)), torch.randn(size))
        assert not any({"astray", "mixed"} & {*each.labels} for each in found.layers)


def test_a_pooler_that_is_passed_by_is_a_note_and_a_layer_amid_others_is_not() -> None:
    def reads(m: Any, x: Tensor, late: bool) -> Tensor:
        x = m.body["first"](x).relu()
        _ = None if late else m.body["extra"](x)
        x = m.body["last"](x).relu()
        _ = m.body["extra"](x) if late else None
        return m.head(x)

    body, head = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("first", "extra", "last")}), nn.Linear(4, 2)
    x = torch.randn(8, 4)
    for late in (False, True):
        (found,) = find(signals_of(Net(partial(reads, late=late), body=body, head=head), x))
        assert (found.rule, found.severity) == ("HD403", "note" if late else "warning")
        assert found.message == "Nothing reads what is made of body.extra, or only as indices."
