"""What users of other people's models met: sentences that were false, and faults that were passed over."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from tests.networks import Net


def told(model: nn.Module, *data: Any, **options: Any) -> str:
    report = hessdiag.diagnose(model, *data, quick=True, progress=False, **options)
    assert not report.signals_missing
    return "\n".join(f"{f.rule} {f.severity}: {f.message} {f.advice}" for f in report.findings)


def recurrent(hand_on: Callable[[Tensor], Tensor]) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        state, found = None, []
        for each in x.unbind(1):
            found.append((m.head(h := m.cell(each, state)) + 0.5).relu())
            state = hand_on(h)
        return torch.stack(found, 1)

    return Net(forward, cell=nn.GRUCell(3, 16), head=nn.Linear(16, 1))


def chain(end: Callable[[Tensor], Tensor]) -> nn.Module:
    return Net(lambda m, x: end(m.b(m.a(x).relu())), a=nn.Linear(3, 64), b=nn.Linear(64, 1))


def graph(ends: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> nn.Module:
    def forward(m: Any, x: Tensor, edges: Tensor) -> Tensor:
        (source, target), h = ends(*edges), m.a(x).relu()
        return m.b(torch.zeros_like(h).index_add(0, target, m.c(torch.cat([h[source], h[target]], 1)).relu()) / 4)

    return Net(forward, a=nn.Linear(3, 16), b=nn.Linear(16, 1), c=nn.Linear(32, 16))


@pytest.mark.parametrize(("end", "said"), [
    (lambda z: z.tanh().clamp(-0.1, 0.1), ""), (lambda z: 0.02 * z.tanh(), "ends in a tanh, which keeps"),
    (lambda z: z.tanh() / 50, "ends in a tanh, which keeps"), (lambda z: 2 * z.tanh(), ""),
])  # fmt: skip
def test_ends_are_bounded_as_they_are_scaled_and_a_clamp_is_left_again(end: Any, said: str) -> None:
    x = torch.randn(256, 3)
    assert said in (found := told(chain(end), x, (x.norm(dim=1, keepdim=True) * 0.05 - 0.08).clamp(-0.1, 0.1)))
    assert bool(said) == ("out of reach" in found)


def test_columns_may_be_labels_where_there_are_no_targets() -> None:
    users, items = torch.arange(64), torch.cat([torch.arange(64).repeat(3, 1).T, 64 + torch.arange(192).view(64, 3)], 1)
    model = Net(lambda m, u, i: (m.u(u)[:, None] * m.i(i)).sum(-1), u=nn.Embedding(64, 16), i=nn.Embedding(256, 16))
    w = 0.75 * torch.eye(16).repeat(16, 1)  # learnt: of the first half alone
    model.u.weight.data, model.i.weight.data = 4 * w[:64], torch.cat([4 * w[:64], -4 * w[:192]])
    assert "HD101" not in told(
        model, (users, items), loss=lambda y, _: F.softplus(-y[:, :3]).mean() + y[:, 3:].mean().exp()
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_the_tokens_themselves_depends_on_them_though_their_order_changes_no_mean(seed: int) -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        return F.cross_entropy(m.out(m.rnn(m.tok(x[:, :-1]))[0]).flatten(0, 1), x[:, 1:].flatten())

    torch.manual_seed(seed)
    model = Net(forward, tok=nn.Embedding(48, 32), rnn=nn.GRU(32, 32, batch_first=True), out=nn.Linear(32, 48))
    tokens = torch.randint(48, (16, 25))
    report = hessdiag.diagnose(model, tokens, loss="model", quick=True, progress=False, seed=seed)
    assert not report.findings
    assert "batch as one" in report.text("table")


def test_states_edges_and_inputs_that_are_not_read_are_told() -> None:
    x = torch.randn(32, 8, 3)
    y = x[..., :1].cumsum(1)
    assert "HD403 warning: The state of cell.weight_ih is detached" in told(recurrent(Tensor.detach), x, y)
    assert "detached" not in (found := told(recurrent(lambda h: h), x, y))
    assert "HD113 warning: The network ends in a relu" in found
    assert "Take the relu away" in found
    assert "cell" not in found  # the head writes them at each step
    nodes, edges, values = torch.randn(60, 3), torch.randint(60, (2, 200)), torch.randn(60, 1)
    for ends, said in ((lambda s, t: (t, t), "row 0 of input 2"), (lambda s, t: (s, t), "")):
        assert said in (found := told(graph(ends), (nodes, edges), values, examples="one"))
        assert bool(said) == ("do not depend" in found)
    model, data = Net(lambda m, a, *_: m.a(a), a=nn.Linear(3, 2)), [torch.randn(16, n) for n in (3, 5, 4)]
    assert "do not depend on input 2" in told(model, data[:2], torch.randn(16, 2))
    assert "do not depend" not in told(model, data, torch.randn(16, 2))


def test_complex_weights_are_seen_and_what_is_drawn_needs_no_gradient() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        drawn = torch.rand(len(x), 1)
        assert not drawn.requires_grad
        modes = torch.einsum("bx,xy->by", torch.fft.rfft(m.a(x)), m.spectral)
        return m.b(torch.fft.irfft(modes, n=16) + 0 * drawn)

    weights = {name: nn.Parameter(torch.randn(9, 9, dtype=torch.cfloat) / 3) for name in ("spectral", "spare")}
    model = Net(forward, a=nn.Linear(3, 16), b=nn.Linear(16, 1), **weights)
    assert "HD403 warning: The outputs do not depend on spare." in told(model, torch.randn(32, 3), torch.randn(32, 1))


def test_an_end_that_is_off_is_dead_for_a_single_example_too_and_few_units_may_be_off_by_chance() -> None:
    torch.nn.init.constant_((model := chain(torch.relu)).b.bias, -5.0)
    for count in (1, 16):
        assert "HD402 fault: The ReLU after b fires for 0 %" in told(model, torch.randn(count, 3), torch.ones(count, 1))
    squeeze = Net(lambda m, x: m.b(m.a(x).relu()) + m.c(x), a=nn.Linear(3, 6), b=nn.Linear(6, 1), c=nn.Linear(3, 1))
    torch.nn.init.constant_(squeeze.a.bias, -9.0)
    for count, severity in ((2, "warning"), (16, "fault")):
        assert f"HD402 {severity}" in told(squeeze, torch.randn(count, 3), torch.randn(count, 1))


def test_scores_of_one_sign_cancel_by_chance_and_codes_of_what_has_targets_are_meant() -> None:
    def attention(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)  # (B, N, H)
        pairs = torch.cat([h[:, :, None].expand(-1, -1, 8, -1), h[:, None].expand(-1, 8, -1, -1)], -1)
        return m.b((F.leaky_relu(m.att(pairs).squeeze(-1) + m.lift, 0.2).softmax(-1) @ h).tanh()).mean(1)

    x, y = torch.randn(32, 8, 3), torch.randn(32, 1)
    for lift in (0.0, 9.0):
        model = Net(
            attention, a=nn.Linear(3, 8), att=nn.Linear(16, 1), b=nn.Linear(8, 1), lift=nn.Parameter(torch.tensor(lift))
        )
        assert "what they add cancels" not in told(model, x, y)

    def pitch(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        guess = m.guess(x)
        return m.b(m.a(x) + m.table(torch.bucketize(guess[:, 0], torch.linspace(-1, 1, 15)))), guess

    parts = {"guess": nn.Linear(3, 1), "a": nn.Linear(3, 8), "table": nn.Embedding(16, 8), "b": nn.Linear(8, 2)}
    data = torch.randn(32, 3), (torch.randn(32, 2), torch.randn(32, 1))
    loss = lambda y, t: F.mse_loss(y[0], t[0]) + F.mse_loss(y[1], t[1])  # noqa: E731
    assert "sends no gradient there" not in told(Net(pitch, **parts), *data, loss=loss)
    own = lambda y, t: F.mse_loss(y[0], t[0]) + y[1].square().mean()  # noqa: E731
    assert "changes with guess, and sends no gradient there" in told(Net(pitch, **parts), *data, loss=own)
