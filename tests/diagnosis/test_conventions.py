"""Models as their authors write them, each against dense float64 autograd: losses of any form, and any form of batch. A
case is a model, what `diagnose` is told, and `units`: for the view asked for, pairs of outputs in one vector, with
their graph, and the loss of that vector, written as the author means it.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal

import hessdiag
from hessdiag.__main__ import main
from hessdiag.data.seeds import Noise
from hessdiag.diagnosis.roles import _sees_padding
from tests.networks import network
from tests.oracles import dense_rows, equals_dense, frobenius_sq, values_of
from tests.unchanged import unchanged

B = 3
Unit = tuple[Tensor, Callable[[Tensor], Tensor]]
Units = Callable[[nn.Module, slice], Unit]
CASES: dict[str, Callable[[], "Case"]] = {}
PARTS = ("example", "batch")


class Case(SimpleNamespace):
    """`model`, `inputs`, `targets`, `options`, `units(model, part)` of a slice of the examples, `views`, `matrices`."""


def case(build: Callable[[], dict[str, Any]]) -> Callable[[], Case]:
    def made() -> Case:
        torch.manual_seed(0)
        found = {"targets": None, "options": {}, "views": PARTS, "matrices": ("ggn", "hessian"), "one": False} | build()
        found["model"] = found["model"].double()
        return Case(**found)

    CASES[build.__name__] = made
    return made


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def units(call: Callable[[nn.Module, slice], Any], loss: Callable[..., Tensor]) -> Units:
    """Units of the outputs of a call, a tensor or several (B, n), and a loss of these and the slice of the examples."""

    def of(m: nn.Module, part: slice) -> Unit:
        found = call(m, part)
        if isinstance(found, Tensor):
            return found.flatten(), lambda z: loss(z.view(found.shape), part)
        sizes = [each.shape[1] for each in found]
        return torch.cat(found, 1).flatten(), lambda z: loss(z.view(-1, sum(sizes)).split(sizes, 1), part)

    return of


def language_model(returns: Callable[..., Any]) -> nn.Module:
    forward = lambda m, tokens, labels=None: returns(m.head(m.wte(tokens).cumsum(1).tanh()), labels)  # noqa: E731
    return network(forward, wte=nn.Embedding(5, 3), head=nn.Linear(3, 5))


def shifted(z: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(z[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


@case
def logits_and_loss() -> dict[str, Any]:
    tokens, labels = torch.randint(5, (2, B, 4))
    labels[0, 1] = -100
    loss = lambda z, t: F.cross_entropy(z.flatten(0, 1), t.flatten())  # noqa: E731
    model = language_model(lambda z, t: (z, loss(z, t) if t is not None else None))
    of = units(lambda m, part: m(tokens[part])[0], lambda z, part: loss(z, labels[part]))
    return {"model": model, "inputs": tokens, "targets": labels, "options": {"loss": "model"}, "units": of}


@case
def loss_of_the_next_token() -> dict[str, Any]:
    """As in transformers, found without being asked for."""
    tokens = torch.randint(5, (B, 4))
    model = language_model(lambda z, t: {"loss": None if t is None else shifted(z, t), "logits": z})
    of = units(lambda m, part: m(tokens[part])["logits"], lambda z, part: shifted(z, tokens[part]))
    return {"model": model, "inputs": {"tokens": tokens, "labels": tokens}, "units": of}


def flattened(name: str, made: Callable[[], nn.Module], *, flat: bool, **told: Any) -> None:
    """Cases of positions and examples in one dimension of the outputs, and of the targets where they are `flat`."""

    def build() -> dict[str, Any]:
        tokens, labels = torch.randint(5, (2, B, 5 if told.get("loss") is F.cross_entropy else 4))
        loss = lambda z, part: F.cross_entropy(z.view(-1, 5), labels[part].flatten())  # noqa: E731
        of = units(lambda m, part: m.head(m.wte(tokens[part]).cumsum(1).tanh()), loss)
        x, t = (tokens.T, labels.T) if told.get("batch_dim") == 1 else (tokens, labels)
        return {"model": made(), "inputs": x, "targets": t.flatten() if flat else t, "options": told, "units": of}

    build.__name__ = name
    case(build)


def rows(z: Tensor, labels: Tensor | None) -> Tensor:
    return z.reshape(-1, 5)


def rows_and_loss(z: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
    y = rows(z, labels)
    return y, None if labels is None else F.cross_entropy(y, labels.flatten())


def positions_first() -> nn.Module:
    """As in PyTorch's example of a language model, which reads (positions, examples)."""
    forward = lambda m, tokens: rows(m.head(m.wte(tokens).cumsum(0).tanh()), None)  # noqa: E731
    return network(forward, wte=nn.Embedding(5, 3), head=nn.Linear(3, 5))


flattened("rows_of_positions", lambda: language_model(rows), flat=False)
flattened("rows_and_their_targets", lambda: language_model(rows), flat=True)
flattened("rows_and_a_function", lambda: language_model(rows), flat=True, loss=lambda z, t: F.cross_entropy(z, t))
flattened("rows_and_torchs_module", lambda: language_model(rows), flat=True, loss=nn.CrossEntropyLoss())
flattened("as_many_rows_as_classes", lambda: language_model(rows), flat=True, loss=F.cross_entropy)
flattened("rows_with_positions_first", positions_first, flat=True, batch_dim=1)
flattened(
    "rows_with_positions_first_under_a_function", positions_first, flat=True, batch_dim=1,
    loss=lambda z, t: F.cross_entropy(z, t),
)  # fmt: skip
flattened("rows_and_loss", lambda: language_model(rows_and_loss), flat=False, loss="model")
flattened("targets_alone", lambda: language_model(lambda z, t: z), flat=True, class_dim=-1)


@case
def one_input_after_the_other() -> dict[str, Any]:
    x, t = randn(2, B, 3), randn(2 * B, 2)
    model = network(lambda m, x, y: torch.cat([m.a(x).tanh(), m.a(y).tanh()]), a=nn.Linear(3, 2))
    loss = lambda z, part: F.mse_loss(z, t.view(2, B, 2)[:, part].flatten(0, 1))  # noqa: E731
    return {"model": model, "inputs": (*x,), "targets": t, "units": units(lambda m, part: m(*x[:, part]), loss)}


@case
def loss_alone() -> dict[str, Any]:
    x, t = randn(B, 3), randn(B, 2)
    model = network(lambda m, x, t: F.huber_loss(m.a(x).tanh(), t), a=nn.Linear(3, 2))
    of = units(lambda m, part: m(x[part], t[part]), lambda z, part: z)
    return {"model": model, "inputs": (x, t), "options": {"loss": "model"}, "units": of, "matrices": ("hessian",)}


def evidence(out: Any, x: Tensor) -> Tensor:
    recon, mu, logvar = out
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum()
    return F.mse_loss(recon, x, reduction="sum") + kl


@case
def several_outputs() -> dict[str, Any]:
    x = randn(B, 4)

    def forward(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = m.encode(x).chunk(2, 1)
        return m.decode(mu + 0.1 * logvar.exp()), mu, logvar

    model = network(forward, encode=nn.Linear(4, 4), decode=nn.Linear(2, 4))
    of = units(lambda m, part: m(x[part]), lambda z, part: evidence(z, x[part]))
    return {"model": model, "inputs": x, "targets": x, "options": {"loss": evidence}, "units": of}


@case
def a_number_of_the_batch_among_the_outputs() -> dict[str, Any]:
    """As of a mixture of experts, or a vector-quantised autoencoder."""
    x, t = randn(B, 3), torch.tensor([0, 1, 1])

    def forward(m: nn.Module, x: Tensor) -> dict[str, Tensor]:
        h = m.a(x).tanh()
        return {"balance": h.mean(0).square().sum(), "scores": m.b(h), "chosen": h.argmax(1)}

    def loss(out: dict[str, Tensor], t: Tensor) -> Tensor:
        return F.cross_entropy(out["scores"], t) + out["balance"] * out["scores"].square().mean()

    model = network(forward, a=nn.Linear(3, 3), b=nn.Linear(3, 2))

    def of(m: nn.Module, part: slice) -> Unit:
        out, size = m(x[part]), len(x[part])
        y = torch.cat([out["balance"].view(1), out["scores"].flatten()])
        return y, lambda z: loss({"balance": z[0], "scores": z[1:].view(size, 2)}, t[part])

    return {"model": model, "inputs": x, "targets": t, "options": {"loss": loss}, "units": of}


def contrastive(out: Any, t: Tensor | None) -> Tensor:
    a, b = (F.normalize(each, dim=1) for each in out)
    scores = 5 * a @ b.T
    return (F.cross_entropy(scores, torch.arange(len(a))) + F.cross_entropy(scores.T, torch.arange(len(a)))) / 2


@case
def a_loss_that_compares_examples() -> dict[str, Any]:
    x, y = randn(B, 3), randn(B, 2)
    model = network(lambda m, x, y: (m.image(x), m.text(y)), image=nn.Linear(3, 2), text=nn.Linear(2, 2))
    of = units(lambda m, part: m(x, y), lambda z, part: contrastive(z, None))
    return {"model": model, "inputs": (x, y), "options": {"loss": contrastive}, "units": of, "views": ("batch",)}


def similarities(m: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    scores = m.scale.exp() * F.normalize(m.image(x), dim=1) @ F.normalize(m.text(y), dim=1).T  # type: ignore[operator]
    return scores, scores.T


def of_similarities(out: Any, t: Tensor) -> Tensor:
    return (F.cross_entropy(out[0], t) + F.cross_entropy(out[1], t)) / 2


@case
def similarities_of_all_examples() -> dict[str, Any]:
    """As CLIP returns them: an example has a number for each other one."""
    x, y, t = randn(B, 3), randn(B, 2), torch.arange(B)
    model = network(similarities, image=nn.Linear(3, 2), text=nn.Linear(2, 2))
    model.scale = nn.Parameter(torch.tensor(1.5))
    of = units(lambda m, part: m(x, y), lambda z, part: of_similarities(z, t))
    options = {"loss": of_similarities}
    return {"model": model, "inputs": (x, y), "targets": t, "options": options, "units": of, "views": ("batch",)}


@case
def one_table_of_similarities() -> dict[str, Any]:
    """As of sentence pairs, whose targets say which column is an example's own."""
    found = vars(similarities_of_all_examples())
    model = network(lambda m, x, y: similarities(m, x, y)[0], **dict(found["model"].named_children()))
    model.scale = found["model"].scale
    of = units(lambda m, part: m(*found["inputs"]), lambda z, part: F.cross_entropy(z, torch.arange(B)))
    return found | {"model": model, "units": of, "options": {}}


@case
def similarities_as_one_example() -> dict[str, Any]:
    found = similarities_of_all_examples()
    return vars(found) | {"options": {"loss": of_similarities, "examples": "one"}, "views": PARTS, "one": True}


@case
def log_probabilities() -> dict[str, Any]:
    x, t = randn(B, 4), torch.tensor([0, 2, 1])
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3), nn.LogSoftmax(1))
    of = units(lambda m, part: m[:3](x[part]), lambda z, part: F.cross_entropy(z, t[part]))
    return {"model": model, "inputs": x, "targets": t, "options": {"loss": F.nll_loss}, "units": of}


@case
def sequences_first() -> dict[str, Any]:
    x, t = randn(4, B, 3), torch.randint(2, (4, B))
    model = network(lambda m, x: m.out(m.rnn(x)[0]), rnn=nn.RNN(3, 3), out=nn.Linear(3, 2))
    loss = lambda z, part: F.cross_entropy(z.view(-1, 2), t[:, part].flatten())  # noqa: E731
    options, of = {"batch_dim": 1, "loss": "cross-entropy"}, units(lambda m, part: m(x[:, part]), loss)
    return {"model": model, "inputs": x, "targets": t, "options": options, "units": of}


@case
def hidden_states() -> dict[str, Any]:
    """Nested inputs, of which the examples stand at the second dimension in some, and one that all share."""
    x, h, c, t, scale = randn(B, 4, 3), randn(1, B, 3), randn(1, B, 3), randn(B, 2), randn(2)
    layers = {"rnn": nn.LSTM(3, 3, batch_first=True), "out": nn.Linear(3, 2)}
    model = network(lambda m, x, h, s: s * m.out(m.rnn(x, h)[0][:, -1]), **layers)
    of = units(lambda m, i: m(x[i], (h[:, i], c[:, i]), scale), lambda z, i: F.mse_loss(z, t[i]))
    options = {"batch_dim": (0, (1, 1), None), "loss": "mse"}
    return {"model": model, "inputs": (x, (h, c), scale), "targets": t, "options": options, "units": of}


@case
def a_function_of_the_last_step() -> dict[str, Any]:
    x, t = randn(4, B, 2), torch.randint(2, (4, B))
    model = network(lambda m, x: m.b(m.a(x).cumsum(0).tanh()), a=nn.Linear(2, 3), b=nn.Linear(3, 2))
    last = lambda z, t: F.cross_entropy(z[-1], t[-1])  # noqa: E731
    of = units(lambda m, part: m(x[:, part]), lambda z, part: last(z, t[:, part]))
    return {"model": model, "inputs": x, "targets": t, "options": {"batch_dim": 1, "loss": last}, "units": of}


@case
def rows_of_a_function_alone() -> dict[str, Any]:
    """Outputs with positions first, and targets of both in one dimension."""
    x, t = randn(4, B, 2), torch.randint(2, (4, B))
    model = network(lambda m, x: m.b(m.a(x).cumsum(0).tanh()), a=nn.Linear(2, 3), b=nn.Linear(3, 2))
    loss = lambda z, t: F.cross_entropy(z.reshape(-1, 2), t)  # noqa: E731
    of = units(lambda m, part: m(x[:, part]), lambda z, part: loss(z, t[:, part].flatten()))
    return {"model": model, "inputs": x, "targets": t.flatten(), "options": {"batch_dim": 1, "loss": loss}, "units": of}


@case
def positions_first_in_outputs_alone() -> dict[str, Any]:
    x, t = randn(B, 2, 5), torch.randint(3, (B,))
    model = network(lambda m, x: m.b(m.a(x.permute(2, 0, 1)).tanh()), a=nn.Linear(2, 3), b=nn.Linear(3, 3))
    last = lambda z, t: F.cross_entropy(z[-1], t)  # noqa: E731
    of = units(lambda m, part: m(x[part]), lambda z, part: last(z, t[part]))
    return {"model": model, "inputs": x, "targets": t, "options": {"loss": last}, "units": of}


@case
def a_graph() -> dict[str, Any]:
    """One example of seven nodes, four of which are labelled, with a normalisation over the nodes."""
    x, t = randn(7, 3), torch.tensor([0, 1, 1, 0, -100, -100, -100])
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 0]])

    def forward(m: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
        h = m.norm(m.a(x).index_add(0, edges[0], m.a(x)[edges[1]])).tanh()
        return m.b(h.index_add(0, edges[0], h[edges[1]]))

    model = network(forward, a=nn.Linear(3, 3), norm=nn.BatchNorm1d(3), b=nn.Linear(3, 2))
    of = units(lambda m, part: m(x, edges), lambda z, part: F.cross_entropy(z, t))
    options = {"examples": "one", "loss": "cross-entropy"}
    return {"model": model, "inputs": (x, edges), "targets": t, "options": options, "units": of, "one": True}


@case
def a_collated_dict() -> dict[str, Any]:
    x, t = randn(B, 3), torch.tensor([0, 1, 1])
    model = network(lambda m, pixels: {"logits": m.b(m.a(pixels).tanh())}, a=nn.Linear(3, 3), b=nn.Linear(3, 2))
    of = units(lambda m, part: m(x[part])["logits"], lambda z, part: F.cross_entropy(z, t[part]))
    inputs = [{"pixels": x, "label": t, "path": ["a", "b", "c"]}]
    return {"model": model, "inputs": inputs, "options": {"loss": nn.CrossEntropyLoss()}, "units": of}


@case
def an_autoencoder_and_its_loss() -> dict[str, Any]:
    """Its loss is measured although nothing is asked for and there are no labels."""
    x = randn(B, 4)
    model = network(lambda m, x: (y := m.b(m.a(x).tanh()), F.mse_loss(y, x)), a=nn.Linear(4, 2), b=nn.Linear(2, 4))
    of = units(lambda m, part: m(x[part])[0], lambda z, part: F.mse_loss(z, x[part]))
    return {"model": model, "inputs": x, "options": {}, "units": of}


DRAWN: list[Tensor] = []


@case
def noise_inside() -> dict[str, Any]:
    """A variational autoencoder: its last call of all examples has the noise of them all."""
    x = randn(B, 4)
    DRAWN.clear()

    def forward(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = m.encode(x).chunk(2, 1)
        DRAWN.append(torch.randn_like(mu))
        return m.decode(mu + DRAWN[-1] * (0.5 * logvar).exp()), mu, logvar

    def again(m: nn.Module, part: slice) -> tuple[Tensor, Tensor, Tensor]:
        noise = [each for each in DRAWN if len(each) == B][-1]
        mu, logvar = m.encode(x[part]).chunk(2, 1)
        return m.decode(mu + noise[part] * (0.5 * logvar).exp()), mu, logvar

    model = network(forward, encode=nn.Linear(4, 4), decode=nn.Linear(2, 4))
    of = units(again, lambda z, part: evidence(z, x[part]))
    return {"model": model, "inputs": x, "targets": x, "options": {"loss": evidence}, "units": of}


@case
def noise_with_examples_second() -> dict[str, Any]:
    """As the first states of two recurrent layers."""
    x, t = randn(B, 4), randn(B, 2)
    DRAWN.clear()

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        DRAWN.append(torch.randn(2, len(x), 3, dtype=x.dtype))
        return m.b((m.a(x) + DRAWN[-1][0] - 2 * DRAWN[-1][1]).tanh())

    def again(m: nn.Module, part: slice) -> Tensor:
        noise = [each for each in DRAWN if each.shape[1] == B][-1][:, part]
        return m.b((m.a(x[part]) + noise[0] - 2 * noise[1]).tanh())

    model, of = network(forward, a=nn.Linear(4, 3), b=nn.Linear(3, 2)), lambda z, part: F.mse_loss(z, t[part])
    return {"model": model, "inputs": x, "targets": t, "options": {"loss": F.mse_loss}, "units": units(again, of)}


@case
def what_training_calls_once() -> dict[str, Any]:
    """A teacher forced by chance, a state taken up again, and a number larger by one from what the first call left."""
    x, t = randn(B, 3), randn(B, 2)

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        DRAWN.append(torch.tensor(random.random() + np.random.rand() + m.own.random()))  # noqa: NPY002
        m.held = m.a(x).tanh() if m.held is None else 3 * m.held
        return m.b(m.held) * DRAWN[-1] * m.calls.add_(1).clone()

    of = units(lambda m, part: m.b(m.a(x[part]).tanh()) * DRAWN[-1] * 2, lambda z, part: F.mse_loss(z, t[part]))
    model = network(forward, a=nn.Linear(3, 3), b=nn.Linear(3, 2))
    model.own, model.held = random.Random(3), None
    model.register_buffer("calls", torch.zeros(()))
    given = {"model": model, "inputs": x, "targets": t, "options": {"loss": nn.MSELoss()}}
    return given | {"units": of, "matrices": ["ggn"]}


def test_masks_packed_sequences_and_distributions_are_read() -> None:
    cell, last = nn.GRU(3, 4, batch_first=True).double(), nn.Linear(4, 2).double()
    sequences, labels = [randn(2 + b % 3, 3) for b in range(B)], torch.arange(B) % 2
    packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
    lengths = torch.tensor([*map(len, sequences)])
    padded = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    of_packed = network(lambda m, x: m.last(m.cell(x)[1][0]), cell=cell, last=last)
    at_end = network(lambda m, x, n: m.last(m.cell(x)[0][torch.arange(len(n)), n - 1]), cell=cell, last=last)
    one = hessdiag.diagnose(at_end, (padded, lengths), labels, examples="one")
    for given in (packed, (packed,)):
        assert values_of(hessdiag.diagnose(of_packed, given, labels)) == pytest.approx(values_of(one), rel=1e-8)
    mask = torch.full((3, 3), -math.inf, dtype=torch.float64).triu(1)
    masked = network(lambda m, x, mask: m.a((x @ x.mT + mask).softmax(-1) @ x), a=nn.Linear(4, 2).double())
    x, t = randn(B, 3, 4), randn(B, 3, 2)
    given = hessdiag.diagnose(masked, (x, mask), t, batch_dim=(0, None))
    assert given.blocks == hessdiag.diagnose(network(lambda m, x: masked(x, mask), a=masked.a), x, t).blocks
    layers = {"a": masked.a, "b": nn.Linear(4, 2).double()}
    normal = network(lambda m, x: Normal(m.a(x), m.b(x).exp()), **layers)
    pair = network(lambda m, x: (m.a(x), m.b(x).exp()), **layers)
    of_pair = hessdiag.diagnose(pair, x[:, 0], t[:, 0], loss=lambda y, t: -Normal(*y).log_prob(t).mean())
    report = hessdiag.diagnose(normal, x[:, 0], t[:, 0], loss=lambda d, t: -d.log_prob(t).mean())
    assert values_of(report, "nu") == pytest.approx(values_of(of_pair, "nu"))
    drawn = [hessdiag.diagnose(m, x[:, 0], t[:, 0], quick=True, loss=loss) for m, loss in (
        (normal, lambda d, t: (d.rsample() - t).square().mean()),
        (pair, lambda y, t: (Normal(*y).rsample() - t).square().mean()))]  # fmt: skip
    assert values_of(drawn[0], "nu") == pytest.approx(values_of(drawn[1], "nu"))


def test_states_that_a_model_returns_are_those_of_its_examples_or_left_out() -> None:
    parts = {"lstm": nn.LSTM(3, 4, 2, batch_first=True).double(), "head": nn.Linear(4, 2).double()}
    pair = network(lambda m, x: (m.head((read := m.lstm(x))[0][:, -1]), read[1]), **parts)
    alone = network(lambda m, x: m.head(m.lstm(x)[0][:, -1]), **parts)
    joined = network(lambda m, x: torch.cat([(r := pair(x))[0], r[1][0].movedim(1, 0).flatten(1)], 1), **parts)
    x, t = randn(B, 5, 3), randn(B, 2)
    for bare, loss, of_pair in (
        (alone, lambda y, t: F.mse_loss(y, t), lambda y, t: F.mse_loss(y[0], t)),
        (joined, lambda y, t: F.mse_loss(y[:, :2], t) + y[:, 2:].square().mean(),
            lambda y, t: F.mse_loss(y[0], t) + y[1][0].square().mean()),
    ):  # fmt: skip
        wanted, found = hessdiag.diagnose(bare, x, t, loss=loss), hessdiag.diagnose(pair, x, t, loss=of_pair)
        assert values_of(found) == pytest.approx(values_of(wanted), rel=1e-8)


class Habits(nn.Module):
    """What authors write: half precision within, a dict, any keyword, a buffer that grows, noise of NumPy."""

    def __init__(self, habit: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.habit = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), habit
        self.rng = np.random.default_rng(0)
        self.register_buffer("seen", torch.zeros(0))
        if habit == "dict":
            self.forward = lambda batch: self.net(batch["x"])

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        if self.habit == "buffer":
            self.seen.resize_(5).fill_(1.0)
        if self.habit == "numpy":
            x = x + torch.as_tensor(self.rng.normal(0, 1e-9, x.shape), dtype=x.dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.habit == "autocast"):
            return self.net(x)


@pytest.mark.parametrize("habit", ["autocast", "dict", "keywords", "buffer", "numpy", "wrapped"])
def test_habits_of_authors_change_nothing(habit: str) -> None:
    x, t = torch.randn(16, 4), torch.arange(16) % 3
    model, expected = Habits(habit), hessdiag.diagnose(Habits("plain"), x, t)
    given = {"dict": ({"x": x}, t), "keywords": ({"x": x, "labels": t},), "wrapped": ({"x": x, "labels": t},)}
    with nullcontext() if habit == "buffer" else unchanged(model):  # whose memory NumPy would hold
        report = hessdiag.diagnose(nn.DataParallel(model) if habit == "wrapped" else model, *given.get(habit, (x, t)))
    assert (report.findings, expected.findings, model.seen.numel()) == ((), (), 0)
    if habit != "numpy":
        values = [block.avg_sq_singular_value for block in report.blocks]
        assert values == pytest.approx([block.avg_sq_singular_value for block in expected.blocks], rel=1e-6)
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    hessdiag.diagnose(model.net, x, t, loss=lambda y, t: F.cross_entropy(y + np.random.rand(), t))  # noqa: NPY002
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_noise_is_that_of_torch_and_is_held(hard: bool) -> None:
    x, found = randn(B, 4), []
    for scope in (nullcontext(), Noise()):
        torch.manual_seed(0)
        with scope:
            found.append(F.gumbel_softmax(x, 0.7, hard))
    assert torch.equal(*found)
    model = network(lambda m, x: m.b(F.gumbel_softmax(m.a(x), hard=hard)), a=nn.Linear(4, 3), b=nn.Linear(3, 2))
    assert hessdiag.diagnose(model.double(), x, progress=False)["a.weight"].nu > 0
    each = network(lambda m, x: m.a(x) + sum(torch.rand(()) for _ in x[::2]), a=nn.Linear(4, 3))  # as many as fit
    assert hessdiag.diagnose(each.double(), x, quick=True, progress=False).signals is not None


def squares(given: Case, matrix: str, per: str) -> Tensor:
    """(L, L) squared norms of the blocks of the matrix, a mean over the units."""
    at = [p for _, p in given.model.named_parameters()]
    parts = [slice(b, b + 1) for b in range(B)] if per == "example" and not given.one else [slice(None)]
    found = []
    for part in parts:
        y, loss = given.units(given.model, part)
        if matrix == "hessian":
            blocks = [dense_rows(g, at) for g in torch.autograd.grad(loss(y), at, create_graph=True)]
        else:
            z = y.detach().requires_grad_()
            (g,) = torch.autograd.grad(loss(z), z, create_graph=True)
            J, (S,) = dense_rows(y, at), dense_rows(g, [z])
            blocks = [[i.T @ S @ j for j in J] for i in J]
        found.append(frobenius_sq(blocks))
    return torch.stack(found).mean(0)


def asked() -> Iterator[tuple[str, str, str]]:
    for name, made in CASES.items():
        given = made()
        yield from ((name, matrix, per) for matrix in given.matrices for per in given.views)


@pytest.mark.parametrize(("name", "matrix", "per"), list(asked()))
def test_blocks_are_those_of_dense_autograd(name: str, matrix: str, per: str) -> None:
    given = CASES[name]()
    options = {"matrix": matrix, "per": per, "method": "exact"} | given.options
    with unchanged(given.model):
        report = hessdiag.diagnose(given.model, given.inputs, given.targets, **options)
    names = [n for n, _ in given.model.named_parameters()]
    assert report.per == per
    equals_dense(report, names, squares(given, matrix, per))
    assert len(report.blocks) + len(report.skipped) == len(names)


class Once(torch.autograd.Function):
    """A checkpoint as in code for diffusion, which can be sent back through once."""

    @staticmethod
    def forward(ctx: Any, run: nn.Module, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.run, ctx.kept = run, (x, *weights)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # type: ignore[override]
        x, *weights = ctx.kept
        with torch.enable_grad():
            y = ctx.run(x := x.detach().requires_grad_())
        del ctx.kept
        return None, *torch.autograd.grad(y, (x, *weights), g, allow_unused=True)


def test_a_checkpoint_is_sent_back_through_again_and_again() -> None:
    plain, (x, t) = network(lambda m, x: m.b(m.a(x).tanh()), a=nn.Linear(3, 3), b=nn.Linear(3, 2)), (X, T)
    model = network(lambda m, x: m.b(Once.apply(m.a, x, *m.a.parameters()).tanh()), a=plain.a, b=plain.b)
    for quick in (True, False):
        report, once = (hessdiag.diagnose(m, x, t, quick=quick) for m in (plain, model))
        assert (once["b.weight"].nu, once.findings) == (pytest.approx(report["b.weight"].nu), report.findings)
        assert [name for name, _ in once.skipped] == ["a.weight", "a.bias"]  # which the function closes over


def test_noise_of_weights_is_no_examples_own_though_a_layer_is_as_wide_as_the_batch() -> None:
    noisy = network(lambda m, x: F.linear(x, m.a.weight * torch.randn(6, 1)), a=nn.Linear(3, 6, bias=False))
    report = hessdiag.diagnose(nn.Sequential(noisy, nn.Tanh(), nn.Linear(6, 2)), X, T, progress=False)
    assert report["0.a.weight"].nu > 0
    own = network(lambda m, x: m.a(x) + torch.randn(len(x), 2), a=nn.Linear(3, 2))
    assert hessdiag.diagnose(own, X, T, progress=False)["a.weight"].nu > 0


def test_a_model_that_differentiates_in_its_forward_is_seen_whole() -> None:
    """It does not run under torch.no_grad(), draws noise, and has a layer that nothing depends on."""

    def forward(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone().requires_grad_()
        u = m.b(m.a(x).tanh()) + torch.randn(len(x), 1)
        return u, torch.autograd.grad(u.sum(), x, create_graph=True)[0]

    model, loss = network(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 1), idle=nn.Linear(2, 2)), PENALISED
    report = hessdiag.diagnose(model, X, T, loss=loss, progress=False)
    assert [finding.rule for finding in report.findings if "idle.weight" in finding.blocks] == ["HD403"]
    assert {block.name for block in hessdiag.prescribe(model, X, T, loss=loss).blocks} == {"a.weight", "b.weight"}


PENALISED = lambda y, t: (y[0][:, 0] - t).square().mean() + y[1].square().mean()  # noqa: E731
HINGE = lambda y, t: (1 - y * (2 * t - 1)).relu().mean()  # noqa: E731
X, T = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])
LINEAR = nn.Linear(3, 2)
PAIR = network(lambda m, x: (m.a(x), m.a(x).square()), a=LINEAR)


@pytest.mark.parametrize(("model", "arguments", "options", "message"), [
    (network(lambda m, x: ((y := m.a(x)).register_hook(lambda g: setattr(m.a.bias, "grad", g.sum(0))), y)[1], a=LINEAR),
        (X, T), {}, r"backward pass adds to \.grad"),
    (LINEAR, (X, T), {"loss": "model"}, r"returned a tensor of shape \(2, 2\), no loss, or several: pass labels"),
    (network(lambda m, x, t: F.huber_loss(m.a(x), t), a=LINEAR), ((X, X[:, :2]),), {"loss": "model"},
        r"has no Gauss-Newton matrix here \(no outputs.* beside it\).*diagnose with matrix='hessian'"),
    (network(lambda m, x: (m.a(x), -m.a(x), m.a(x).sum()), a=LINEAR), (X,), {"loss": "model"},
        r"with 2 tensors over the examples \(0, 1\).*name one, as in output=0"),
    (PAIR, (X,), {"loss": lambda y, t: (y[0] * (y[0] - y[0].mean(0)).detach()).sum()}, "compares the examples"),
    (network(lambda m, x: m.a(x), a=LINEAR), (X,), {"loss": lambda y, t: F.mse_loss(*y.chunk(2))}, "compares the"),
    (network(lambda m, x: m.a(x) @ m.a(x).T, a=LINEAR), (X, torch.arange(6)), {}, "a number for each other one"),
    (network(lambda m, x: 2 * [m.a(x) @ m.a(x).T], a=LINEAR), (X, torch.arange(6)), {"output": 0}, "place of output"),
    (nn.ModuleDict({"a": LINEAR}), (X, T), {}, r"has no forward method: wrap it.*training step's loss \(loss='model'"),
    (PAIR, (X,), {"loss": contrastive}, r"compares the examples of a batch.*pass per='batch' \(--per batch\)"),
    (network(lambda m, x: (m.a(x) @ m.a(x).T, m.a(x)), a=LINEAR), (X, T),
        {"loss": lambda out, t: F.cross_entropy(out[0], t)},
        "a number for each other one, as similarities have: pass per='batch'"),
    (network(lambda m, x: (m.a(x), m.a.bias.sum()), a=LINEAR), (X, torch.arange(6)),
        {"loss": lambda out, t: F.cross_entropy(out[0] @ out[0].T * out[1], t)},
        r"cannot be called with an example alone \(IndexError.*per='batch'"),
    (PAIR, (X,), {"loss": lambda out, t: out["a"].sum()}, r"and no targets \(TypeError.*pass targets.*output=0"),
    (nn.Linear(3, 1), (X, T.view(-1, 1)), {"loss": HINGE}, r"is linear in the outputs.*matrix='hessian'"),
    (LINEAR, (X, T), {"loss": F.nll_loss}, "'nll_loss' is linear in the outputs"),
    (nn.RNN(3, 2), (torch.randn(4, 2, 3),), {"batch_dim": 3}, "batch_dim 3: pass a dimension of the inputs"),
    (LINEAR, (X,), {"batch_dim": (0, 0)}, r"batch_dim \(0, 0\): pass a dimension of the inputs, or one for each"),
    (LINEAR, (X, torch.zeros(3, 3)), {"batch_dim": 1}, r"targets \(3, 3\) have 3 examples in dimension 0 or 1"),
    (LINEAR, (X,), {"examples": "two"}, "examples 'two' is not known: use one of batch, one"),
    (LINEAR, ([(X,), (X,)],), {"examples": "one", "per": "batch"}, "is one example: per='batch' needs a single one"),
    (network(lambda m, x: m.a(x), a=LINEAR), ({"x": X, "label": T, "y": T},), {}, "inputs hold label, y: leave one"),
])  # fmt: skip
def test_what_cannot_be_measured_is_one_sentence(model: nn.Module, arguments, options, message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=message) as caught:
        hessdiag.diagnose(model, *arguments, **{"rtol": 0.5} | options)
    assert "\n" not in str(caught.value)


SCRIPT = """
import torch
from torch import nn

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(5, 3), nn.Linear(3, 5)

    def forward(self, tokens, labels=None):
        z = self.head(self.wte(tokens))
        return z, None if labels is None else nn.functional.cross_entropy(z.flatten(0, 1), labels.flatten())

def data():
    tokens = torch.randint(5, (4, 3))
    return tokens, tokens.roll(1, 1)

def graph():
    return (torch.randn(7, 3),), torch.randint(2, (7,))

graph.examples = "one"

def sequences():
    return torch.randn(4, 2, 3), torch.randn(4, 2, 5)

sequences.batch_dim = 1

def several():
    return torch.randn(8, 3), (torch.randn(8, 2), torch.arange(8) % 3)

def pair(outputs, targets):
    values, labels = targets
    return (outputs[:, :2] - values).abs().mean() + torch.nn.functional.cross_entropy(outputs[:, 2:], labels)

def mine(outputs, targets):
    return (outputs[0] if isinstance(outputs, tuple) else outputs).square().mean()
"""


def pair(y: Tensor, t: Any) -> Tensor:
    return F.l1_loss(y[:, :2], t["boxes"][0]) + F.cross_entropy(y[:, 2:], t["labels"])


def test_targets_pair_tensors_are_those_of_their_examples() -> None:
    model, x = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5)).double(), randn(6, 3)
    boxes, labels = randn(6, 2), torch.tensor([0, 1, 2, 2, 1, 0])
    given = {"boxes": [boxes], "labels": labels}
    joined = lambda y, t: pair(y, {"boxes": [t[:, :2]], "labels": t[:, 2].long()})  # noqa: E731
    for options in ({}, {"per": "batch"}, {"matrix": "hessian"}, {"quick": True}):
        plain = hessdiag.diagnose(model, x, torch.cat([boxes, labels[:, None]], 1), loss=joined, **options)
        several = hessdiag.diagnose(model, x, given, loss=pair, **options)
        assert ([b.to_dict() for b in several], several.loss) == ([b.to_dict() for b in plain], "pair")
    halves = [(x[part], {"boxes": [boxes[part]], "labels": labels[part]}) for part in (slice(3), slice(3, 6))]
    both, whole = ([b.gamma for b in hessdiag.diagnose(model, *each, loss=pair)] for each in ((halves,), (x, given)))
    assert both == pytest.approx(whole)
    one = hessdiag.diagnose(model, x, given, loss=pair, examples="one").signals
    assert one.initial_loss == pytest.approx(pair(model(x), given).item())
    for targets, loss, said in (
        (given, "mse", "pass loss as a function"),
        ((boxes, labels[:2]), pair, "does not run over the 6 examples first"),
        ({"boxes": [boxes / 0], "labels": labels}, pair, "look for targets that are NaN or infinite, and leave"),
    ):
        with pytest.raises(hessdiag.HessdiagError, match=said):
            hessdiag.diagnose(model, x, targets, loss=loss)


def test_a_sparse_adjacency_is_of_all_nodes() -> None:
    x, t, dense = randn(6, 3), torch.arange(6) % 2, torch.eye(6, dtype=torch.float64).roll(1, 0) / 3
    model = network(lambda m, x, adj: torch.sparse.mm(adj, m.a(x).tanh()), a=nn.Linear(3, 2)).double()
    given = {"targets": t, "examples": "one", "loss": "cross-entropy"}
    reports = [hessdiag.diagnose(model, (x, adj), **given) for adj in (dense, dense.to_sparse())]
    one, other = ([n for b in r for n in (b.gamma, b.nu, b.avg_sq_singular_value, b.out_gradient_sq)] for r in reports)
    assert one == pytest.approx(other, rel=1e-12)
    with pytest.raises(hessdiag.HessdiagError, match="Linear reads a sparse tensor"):
        hessdiag.diagnose(model, (x.to_sparse(), dense), **given)


def test_the_command_line_takes_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = tmp_path / "net.py"
    at.write_text(SCRIPT)
    rnn = "torch.nn:RNN --arg input_size=3 --arg hidden_size=5 --output 0 --method exact"
    linear = "torch.nn:Linear --arg in_features=3 --arg"
    for line, said in (
        (f"diagnose {at}:Language --data {at}:data --loss model", "loss cross-entropy"),
        (f"diagnose {rnn} --data {at}:sequences --loss mse", "batch 2"),
        (f"diagnose {linear} out_features=2 --data {at}:graph --loss {at}:mine", "loss mine"),
        (f"diagnose {linear} out_features=5 --data {at}:several --loss {at}:pair", "loss pair"),
        (f"lr {linear} out_features=2 --data {at}:graph --loss cross-entropy", "loss cross-entropy"),
        (
            f"diagnose {linear} out_features=2 --data {at}:graph --loss torch.nn:CrossEntropyLoss",
            "loss CrossEntropyLos",
        ),
    ):
        main(line.split())
        assert said in capsys.readouterr().out


def test_a_loss_may_leave_out_targets_that_are_missing() -> None:
    x, t = randn(6, 3), torch.where(torch.arange(6)[:, None] % 2 == torch.arange(2), torch.nan, randn(6, 2))
    report = hessdiag.diagnose(nn.Linear(3, 2).double(), x, t, loss=lambda y, t: (y - t)[~t.isnan()].square().mean())
    assert report.blocks[0].avg_sq_singular_value == pytest.approx(float(4 * x.square().sum(1).square().mean()) / 6)


@pytest.mark.parametrize("quick", [False, True])
def test_a_number_among_the_inputs_is_the_same_for_all_examples(quick: bool) -> None:
    """As the step of a diffusion, or a temperature."""
    first, table, last = nn.Linear(4, 8), nn.Embedding(5, 8), nn.Linear(8, 3)
    layers = {"first": first, "table": table, "last": last}
    model = network(lambda m, x, step, tau: m.last((m.first(x) + m.table(step)).relu()) / tau, **layers)
    other = network(lambda m, x: m.last((m.first(x) + m.table(torch.tensor(2))).relu()) / 1.5, **layers)
    x, t = torch.randn(16, 4), torch.arange(16) % 3
    one = hessdiag.diagnose(model, (x, torch.tensor(2), torch.tensor(1.5)), t, quick=quick)
    two = hessdiag.diagnose(other, x, t, quick=quick)
    assert not one.signals_missing
    assert values_of(one) == pytest.approx(values_of(two), nan_ok=True)
    assert [each.gradient_sq for each in one.signals.parameters] == pytest.approx(
        [each.gradient_sq for each in two.signals.parameters]
    )


QUICK: dict[str, Any] = {"quick": True, "progress": False}


def test_a_guess_for_a_graph_is_one_for_its_nodes() -> None:
    model, x, t = nn.Linear(4, 1).double(), randn(9, 4), randn(9, 1)
    rows, graph = (hessdiag.diagnose(model, x, t, examples=how, **QUICK).signals for how in ("batch", "one"))
    assert graph.loss_kind == rows.loss_kind == "mse"
    assert graph.chance_loss == pytest.approx(rows.chance_loss, rel=0.2)  # of all but its own, or of all
    graph = hessdiag.diagnose(model, x, t[:, 0], loss=lambda y, t: (y - t).square().mean(), examples="one", **QUICK)
    assert "broadcasts the shapes (9, 1) and (9,)" in graph.findings[0].message


def test_a_mask_hides_the_same_of_all_queries_and_heads() -> None:
    tokens = torch.tensor([[1, 2, 0, 0], [3, 0, 0, 0]])
    padding = (tokens == 0).double()
    hidden = (padding / padding.sum(1, keepdim=True))[:, None, None].expand(2, 2, 4, 4)
    assert _sees_padding(hidden, tokens)
    ruled = hidden.clone()  # by one key, as where logits are large
    ruled[..., -1, :] = F.one_hot(torch.tensor([2, 3]), 4).double()[:, None]
    assert not _sees_padding(ruled, tokens)


def test_what_the_model_reads_may_be_named_targets_of_its_own_loss() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(4, 3)

        def forward(self, x: dict[str, Tensor], y: dict[str, Tensor]) -> Tensor:
            return F.mse_loss(self.f(x["a"]), y["b"]) + self.f(x["a"]).square().mean()

    data = {"a": torch.randn(8, 4)}, {"b": torch.randn(8, 3)}
    for per in PARTS:  # of a loader that is read once, too
        report = hessdiag.diagnose(Own(), iter([data, data]), loss="model", per=per, progress=False)
        assert report.method_reason.startswith("loss 'model' has no Gauss-Newton matrix here")
        assert report.verdict.sentence.startswith("No problem found")
        assert "loss is inside of the model" in report.verdict.sentence


def test_similarities_ask_for_their_loss_and_outputs_may_be_as_long_as_the_longest() -> None:
    pairs = network(lambda m, x: m.a(x) @ m.b(x).T, a=nn.Linear(4, 3), b=nn.Linear(4, 3))
    with pytest.raises(hessdiag.HessdiagError, match="as similarities have: pass their loss as a function"):
        hessdiag.diagnose(pairs, torch.randn(6, 4), **QUICK)
    steps = network(lambda m, x, n: (m.a(x)[:, : int(n.max())].transpose(0, 1), n), a=nn.Linear(4, 5))
    data = (torch.randn(6, 7, 4), torch.tensor([3, 4, 5, 6, 7, 7])), torch.randint(1, 5, (6, 2))

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.ctc_loss(y[0].log_softmax(-1), t, y[1], torch.full_like(y[1], 2))

    assert hessdiag.diagnose(steps, *data, loss=loss, **QUICK).signals is not None
    tags = network(lambda m, x, n: m.a(x)[:, : int(n.max())], a=nn.Linear(4, 5))
    with pytest.raises(hessdiag.HessdiagError, match="its total_length"):
        hessdiag.diagnose(tags, data[0], torch.randint(5, (6, 7)), class_dim=-1, **QUICK)
