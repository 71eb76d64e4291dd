"""Attention, and what transformers are written with, against simulation on random networks."""

import math
from statistics import mean

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hessdiag
from hessdiag.calculus import predict
from hessdiag.calculus.graph import trace_graph
from hessdiag.calculus.moments import Activation, alike, distinct, weight_moments
from hessdiag.calculus.propagation import propagate
from hessdiag.calculus.rules.layers import repeated
from tests.networks import Net

POSITIONS, WIDTH, HEADS = 24, 48, 3


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def whole(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def dropped(q, k, v, causal):
    every = torch.ones(1, 1, 1, k.shape[-2], dtype=torch.bool).expand(*q.shape[:-1], -1)  # as BERT's without padding
    seen = None if causal else every
    return F.scaled_dot_product_attention(q, k, v, seen, is_causal=causal, dropout_p=0.1)  # off, as in a diagnosis


def by_hand(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v


def attention(m, x):
    x = x + m.shift  # what positions have in common
    q, k, v = (heads(layer(x)) for layer in (m.q, m.k, m.v))
    return m.o(m.product(q, k, v, m.causal).transpose(1, 2).flatten(2))


def one_head(*, scores=1.0, shared=0.0, causal=False, product=whole):
    layers = {name: nn.Linear(WIDTH, WIDTH, bias=False) for name in "qkvo"}
    for name, layer in layers.items():
        nn.init.normal_(layer.weight, std=(scores**0.25 if name in "qk" else 1) / math.sqrt(WIDTH))
    size = math.sqrt(shared / (1 - shared))
    return Net(
        attention, **layers, shift=nn.Parameter(size * F.normalize(torch.randn(WIDTH), dim=0) * WIDTH**0.5),
        product=product, causal=causal,
    )  # fmt: skip


def compare(make, *, draws=5):
    """log2 of γ predicted for one network over γ measured, a mean over several, by block."""
    reports = []
    for seed in range(draws):
        torch.manual_seed(seed)
        model, x = make().eval(), torch.randn(8, POSITIONS, WIDTH)
        reports.append(hessdiag.diagnose(model, x, quick=True, signals=False, mode="eval", seed=seed))
    measured = {b.name: mean(math.log2(report[b.name].gamma) for report in reports) for b in reports[0].weights}
    return {block.name: math.log2(block.gamma) - measured[block.name] for block in predict(model, x).weights}


@pytest.mark.parametrize(("scores", "shared", "causal"), [
    (0.01, 0.0, False), (1.0, 0.0, True), (1.0, 0.5, False), (1.0, 0.5, True), (3.0, 0.0, False),
])  # fmt: skip
def test_one_attention(scores, shared, causal):
    found = compare(lambda: one_head(scores=scores, shared=shared, causal=causal))
    assert set(found) == {f"{name}.weight" for name in "qkvo"}
    assert max(map(abs, found.values())) < (0.45 if shared or scores > 1 else 0.3), found


def shifted_windows(m, x):
    seen = x.reshape(-1, POSITIONS // 3, WIDTH)
    q, k, v = (heads(layer(seen)) for layer in (m.q, m.k, m.v))
    hidden = m.hidden.repeat(len(x), 1, 1)[:, None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=m.table + hidden).transpose(1, 2).flatten(2)
    x = x + m.o(out).reshape(x.shape)
    return m.last(m.merge(torch.cat([x[:, ::2], x[:, 1::2]], -1)).mean(1))


def test_windows_that_see_different_keys_and_positions_that_are_merged():
    def make():
        count = POSITIONS // 3
        left = torch.arange(count) < count // 2
        split = (left[:, None] != left).float() * -100.0
        return Net(
            shifted_windows, **{name: nn.Linear(WIDTH, WIDTH, bias=False) for name in "qkvo"},
            merge=nn.Linear(2 * WIDTH, WIDTH), last=nn.Linear(WIDTH, 8),
            table=nn.Parameter(0.02 * torch.randn(HEADS, count, count)),
            hidden=torch.stack([0 * split, split, split]),
        )  # fmt: skip

    found = compare(make)
    assert {name: error for name, error in found.items() if name != "table" and not abs(error) < 0.45} == {}
    assert abs(found["last.weight"]) < 0.1  # the mean over positions takes in which are in one window


def test_tokens_that_repeat_and_positions_that_are_alike():
    def kept(q, k, v, causal):
        model.seen = q, k, v, whole(q, k, v, causal)
        return model.seen[-1]

    ids = torch.multinomial(1 / torch.arange(1, 41), 8 * POSITIONS, replacement=True).view(8, POSITIONS)
    turns, simulated = torch.arange(POSITIONS)[:, None] / 50 ** torch.linspace(0, 1, WIDTH // 2), []
    for seed in range(40):
        torch.manual_seed(seed)
        model = one_head(scores=0.1, product=kept)
        model.shift.data.zero_()
        model.table, model.rule = nn.Embedding(40, WIDTH), lambda m, ids: attention(m, m.table(ids) + m.places)
        model.places = nn.Parameter(torch.cat([turns.sin(), turns.cos()], 1), requires_grad=False)
        y = model(ids)
        squares = [each.square().mean().detach() for each in torch.autograd.grad(y, model.seen, torch.randn_like(y))]
        simulated.append([model.seen[-1].square().mean().detach(), *(square / squares[-1] for square in squares[:-1])])
    o, *layers = (predict(model, ids, loss="mse").block(f"{name}.weight") for name in "oqkv")
    found = [o.x_sq, *(layer.out_gradient_sq / o.x_gradient_sq for layer in layers)]
    assert found == pytest.approx(torch.tensor(simulated).mean(0).tolist(), rel=0.12)


def test_late_positions_of_a_causal_network_are_less_alike_than_early_ones():
    def two(m, x):
        x = x + attention(m.first, x)
        return attention(m.second, F.rms_norm(x, x.shape[-1:]))

    def kept(q, k, v, causal):
        model.seen = whole(q, k, v, causal)
        return model.seen

    simulated, x = [], torch.randn(8, POSITIONS, WIDTH)
    for seed in range(40):
        torch.manual_seed(seed)
        model = Net(two, **{name: one_head(scores=0.01, causal=True, product=kept) for name in ("first", "second")})
        model(x)
        simulated.append(float(model.seen.detach().square().mean()))
    assert predict(model, x).block("second.o.weight").x_sq == pytest.approx(mean(simulated), rel=0.08)


def test_what_rows_of_a_table_have_in_common():
    x = torch.randn(5, 4, dtype=torch.float64) + 1
    rest, others = x - x.mean(0), ~torch.eye(5, dtype=torch.bool)
    found = alike(x)
    assert found["site_correlation"] == pytest.approx(float((x @ x.T)[others].mean() / 4 / x.square().mean()))
    size = rest.square().sum(1).mean()
    assert found["alike"] == pytest.approx(float((rest @ rest.T)[others].square().mean() / size**2))
    means = [row[i] * row[j] for row in x for i in range(4) for j in range(4) if i != j]
    assert found["mean"] == pytest.approx(float(torch.stack(means).mean() / x.square().mean()))
    rows = torch.tensor([[0, 0, 1, 0], [2, 1, 1, 3]])
    assert repeated(rows) == pytest.approx((8 / 24, 6 / 48))  # ordered pairs and triples of the same index


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_hand_is_attention(causal):
    predictions = []
    for product in (whole, by_hand, dropped):
        torch.manual_seed(0)
        predictions.append(predict(one_head(product=product, causal=causal), (POSITIONS, WIDTH)))
    gammas = [[block.gamma for block in prediction.weights] for prediction in predictions]
    assert all(map(math.isfinite, gammas[0]))
    assert gammas[0] == gammas[2] == pytest.approx(gammas[1], rel=1e-9)


WRITTEN_OUT = {
    "gelu": (lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
             lambda x: F.gelu(x, approximate="tanh")),
    "silu": (lambda x: x * torch.sigmoid(x), F.silu),
    "rms norm": (lambda x: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6),
                 lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_functions_written_out_are_seen_as_one(name):
    predictions = []
    for function in WRITTEN_OUT[name]:
        torch.manual_seed(0)
        layers = {"first": nn.Linear(20, 30), "last": nn.Linear(30, 5)}
        model = Net(lambda m, x: m.last(m.function(m.first(x))), **layers, function=function)
        predictions.append(predict(model, (6, 20)))
    assert not any("both sides" in note for note in predictions[0].notes)
    for one, other in zip(predictions[0].weights, predictions[1].weights, strict=True):
        assert one.gamma == pytest.approx(other.gamma, rel=1e-6)


def block(m, x):
    x = x + attention(m, m.norm(x))
    return x + m.down(F.silu(m.gate(m.norm(x))) * m.up(m.norm(x)))


def gated(**options):
    model = one_head(**options)
    for name, shape in {"gate": (WIDTH, 96), "up": (WIDTH, 96), "down": (96, WIDTH)}.items():
        model.add_module(name, nn.Linear(*shape, bias=False))
    model.shift.data.zero_()
    model.norm, model.rule = nn.LayerNorm(WIDTH), block
    return model


def test_a_block_and_the_sentence_on_its_design():
    def make():
        model = gated(causal=True)
        nn.init.normal_(model.k.weight, std=0.02)  # γ of the queries falls with their keys
        return model

    found = compare(make)
    assert len(found) == 7
    assert max(map(abs, found.values())) < 0.35, found
    design = predict(make(), (POSITIONS, WIDTH)).design
    assert design.endswith("that of q.weight")
    deep = make()
    for layer in (deep.o, deep.down):  # as GPT-2 scales them, for 32 layers
        layer.weight.data /= math.sqrt(2 * 32)
    design = predict(deep, (POSITIONS, WIDTH)).design
    assert "γ of down.weight is" in design or "γ of o.weight is" in design
    logits = Net(lambda m, x: m.last(m.table(x)), table=nn.Embedding(9, 4), last=nn.Linear(4, 7, bias=False))
    prediction = predict(logits, torch.randint(9, (2, 5)), loss="cross-entropy")  # (B, T, V): the classes are the last
    assert prediction.block("last.weight").out_gradient_sq == pytest.approx((1 - 1 / 7) / 7 / 25, rel=0.2)
    assert dict(prediction.skipped)["table.weight"].endswith("no γ for it")


def test_squared_singular_values_of_one_shared_layer():
    """‖X Xᵀ‖² of T inputs N(0, I) in d dimensions is T d (d + T + 1), and S is 2/N times the identity."""
    T, d, n = 12, 20, 7
    block = predict(nn.Linear(d, n, bias=False), (T, d), loss="mse").blocks[0]
    assert block.avg_sq_singular_value == pytest.approx(T * (d + T + 1) * (2 / (T * n)) ** 2)
    torch.manual_seed(0)
    x, y = torch.randn(200, T, d), torch.randn(200, T, n)
    report = hessdiag.diagnose(nn.Linear(d, n, bias=False), x, y, loss="mse", signals=False)
    assert report.weights[0].avg_sq_singular_value == pytest.approx(block.avg_sq_singular_value, rel=0.05)


@pytest.mark.parametrize("causal", [False, True])
def test_squared_singular_values_of_a_block(causal):
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        model, x = gated(scores=0.1, causal=causal).eval(), torch.randn(6, POSITIONS, WIDTH)
        report = hessdiag.diagnose(model, x, torch.randn_like(x), loss="mse", signals=False, mode="eval", seed=seed)
        predicted = predict(model, x, loss="mse").weights
        found.append([math.log2(b.avg_sq_singular_value / report[b.name].avg_sq_singular_value) for b in predicted])
    off = {b.name: mean(each) for b, each in zip(predicted, zip(*found, strict=True), strict=True)}
    assert max(map(abs, off.values())) < 0.9, off


def test_moments_of_a_causal_network_take_one_number_a_position():
    """Else those of a network of a billion weights take gigabytes: positions × channels of every layer."""

    def packed(m, x):
        q, k, v = (heads(each) for each in m.qkv(m.norm(x).view(-1, WIDTH)).view(*x.shape[:2], -1).split(WIDTH, 2))
        half = WIDTH // HEADS // 2
        q = torch.cat([-q[..., half:], q[..., :half]], -1)
        return m.o(whole(q, k, v, True).transpose(1, 2).reshape(-1, WIDTH)).view(x.shape)

    model = Net(packed, qkv=nn.Linear(WIDTH, 3 * WIDTH), norm=nn.LayerNorm(WIDTH), o=nn.Linear(WIDTH, WIDTH))
    graph = trace_graph(model, (torch.randn(2, POSITIONS, WIDTH),))
    found = propagate(graph, weight_moments(model), moments="kernel", loss="mse")
    moved = [step.out for _, step in found.steps if isinstance(step.out, Activation) and not step.out.parameter]
    held = {distinct(each.sq).numel() for each in (*moved, *found.gradients.values())}
    assert POSITIONS in held
    assert max(held) <= 2 * POSITIONS, held
    qkv = found.gradients[next(operation.name for operation, step in found.steps if step.weight == "qkv.weight")]
    apart = [found.gradients[operation.name] for operation, _ in found.steps if operation.target == "getitem"]
    assert qkv.second_moment == pytest.approx(sum(each.second_moment for each in apart) / 3, rel=1e-12)


def test_exponents_in_the_size_of_the_embedding():
    """‖GGN‖ of queries goes with its sixth power, of values with its second (arXiv 2410.10986)."""
    model, x = one_head(scores=1.0), 0.05 * torch.randn(400, POSITIONS, WIDTH)
    model.shift.data.zero_()
    small, large = (predict(model, size * x, loss="mse") for size in (1, 2))
    for name, power in {"q": 6, "k": 6, "v": 2}.items():
        growth = [p.block(f"{name}.weight").avg_sq_singular_value for p in (small, large)]
        assert math.log2(growth[1] / growth[0]) / 2 == pytest.approx(power, abs=0.05)
