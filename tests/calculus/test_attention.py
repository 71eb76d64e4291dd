"""Attention, and what transformers are written with, against simulation on random networks."""

import math
from statistics import mean

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hessdiag
from hessdiag.calculus import predict
from tests.networks import Net

POSITIONS, WIDTH, HEADS = 24, 48, 3


def heads(x, count=HEADS):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def whole(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def by_hand(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(q.shape[-2], k.shape[-2]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1) @ v


def attention(m, x):
    x = x + m.shift  # what positions have in common
    q, k, v = (heads(layer(x)) for layer in (m.q, m.k, m.v))
    out = m.product(q, k, v, m.causal).transpose(1, 2).flatten(2)
    return m.o(out)


def one_head(*, scores=1.0, shared=0.0, causal=False, product=whole):
    layers = {name: nn.Linear(WIDTH, WIDTH, bias=False) for name in "qkvo"}
    for name, layer in layers.items():
        nn.init.normal_(layer.weight, std=(scores**0.25 if name in "qk" else 1) / math.sqrt(WIDTH))
    size = math.sqrt(shared / (1 - shared))
    return Net(attention, **layers, shift=nn.Parameter(size * torch.randn(WIDTH)), product=product, causal=causal)


def compare(make, inputs, *, draws=5, names=None, **loss):
    """Mean over networks of log2 γ measured, and log2 γ predicted, by block."""
    measured, predicted = {}, {}
    for seed in range(draws):
        torch.manual_seed(seed)
        model, x = make().eval(), inputs()
        report = hessdiag.diagnose(model, x, quick=True, signals=False, mode="eval", seed=seed, **loss)
        for block in predict(model, x, **{k: v for k, v in loss.items() if k != "targets"}).weights:
            if math.isfinite(block.gamma) and (names is None or block.name in names):
                predicted.setdefault(block.name, []).append(math.log2(block.gamma))
                measured.setdefault(block.name, []).append(math.log2(report[block.name].gamma))
    return {name: mean(predicted[name]) - mean(measured[name]) for name in predicted}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("scores", "shared"), [(0.01, 0.0), (1.0, 0.0), (1.0, 0.5), (3.0, 0.0)])
def test_one_attention(scores, shared, causal):
    found = compare(
        lambda: one_head(scores=scores, shared=shared, causal=causal), lambda: torch.randn(8, POSITIONS, WIDTH)
    )
    assert set(found) == {f"{name}.weight" for name in "qkvo"}
    assert max(map(abs, found.values())) < (0.45 if shared or scores > 1 else 0.3), found


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_hand_is_attention(causal):
    predictions = []
    for product in (whole, by_hand):
        torch.manual_seed(0)
        predictions.append(predict(one_head(product=product, causal=causal), (POSITIONS, WIDTH)))
    gammas = [[block.gamma for block in prediction.weights] for prediction in predictions]
    assert all(map(math.isfinite, gammas[0]))
    assert gammas[0] == pytest.approx(gammas[1], rel=1e-9)
