"""Every kind of model, embeddings too, is measured right, against dense rows, or refused in one line."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.network.blocks import find_blocks
from hessdiag.network.trace import run_dry
from tests.embeddings import EMBEDDINGS, EXAMPLES, GAUSS_NEWTON_ONLY, Made
from tests.kinds import KINDS, REFUSED, CubeOnce, Kind, own_function, rows
from tests.networks import BUILDERS, Net
from tests.oracles import DENSE, equals_dense, frobenius_sq, quadratic_matrix
from tests.unchanged import unchanged


class Reader:
    """A kind's model as the oracles call it: any inputs in, one tensor out."""

    def __init__(self, model: nn.Module, kind: Kind) -> None:
        self.model, self.kind = model, kind
        self.get_parameter = model.get_parameter

    def __call__(self, inputs: Any) -> Tensor:
        if isinstance(inputs, Mapping):
            return self.kind.outputs(self.model(**inputs))
        return self.kind.outputs(self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs))


def example(inputs: Any, b: int) -> Any:
    if isinstance(inputs, Tensor):
        return inputs[b : b + 1]
    if isinstance(inputs, Mapping):
        return {key: example(value, b) for key, value in inputs.items()}
    return tuple(example(value, b) for value in inputs) if isinstance(inputs, tuple) else inputs


def tensors_of(inputs: Any) -> list[Tensor]:
    values = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else [inputs]
    return [value for value in values if isinstance(value, Tensor)]


def made(kind: Kind) -> tuple[nn.Module, Any, Tensor | None]:
    torch.manual_seed(0)
    return kind.make().double(), kind.inputs(), None if kind.targets is None else kind.targets()


def cross_entropy(y: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(y.flatten(0, 1), t.flatten())


def dense(kind: Kind, model: nn.Module, inputs: Any, t: Tensor | None, names: list[str], matrix: str) -> Tensor:
    """(L, L) squared norms of each example's own matrix, averaged."""
    reader, size = Reader(model, kind), len(tensors_of(inputs)[0])
    R = quadratic_matrix(reader(example(inputs, 0)).numel())
    loss = (lambda y, _: (y.flatten() @ R) @ y.flatten()) if t is None else cross_entropy
    own = zip((example(inputs, b) for b in range(size)), [None] * size if t is None else t.split(1), strict=True)
    return torch.stack([frobenius_sq(DENSE[matrix](reader, *each, loss, names)) for each in own]).mean(dim=0)


@pytest.mark.parametrize("matrix", DENSE)
@pytest.mark.parametrize("name", [name for name in KINDS if name not in BUILDERS])  # those: test_exact.py
def test_every_kind_is_measured_right_and_left_as_it_was(name: str, matrix: str, monkeypatch) -> None:
    kind = KINDS[name]
    model, inputs, t = made(kind)
    loss = "random-quadratic" if t is None else "cross-entropy"
    options = {"loss": loss, "matrix": matrix, "mode": "eval", "method": "exact", "signals": matrix == "ggn"}
    with unchanged(model, *tensors_of(inputs)):
        report = hessdiag.diagnose(model, inputs, t, **options)
    names = [block.name for block in report.blocks]
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    every = [name for name, parameter in trained.items() if parameter.dim() > 1 or parameter.numel() == 1]
    assert set(every) <= set(names)
    # torch's fused kernel has wrong second derivatives: the reference takes the formula that it stands for.
    monkeypatch.setattr(torch, "_weight_norm", lambda v, g, dim: v * (g / torch.norm_except_dim(v, 2, dim)))
    expected = dense(kind, model, inputs, t, names, matrix)
    assert expected.max() > 0
    equals_dense(report, names, expected, rel=1e-8)


@pytest.mark.parametrize("options", [{}, {"matrix": "hessian"}, {"per": "batch"}], ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_every_other_kind_is_refused_in_one_line_and_left_as_it_was(name: str, options: dict[str, str]) -> None:
    kind, message = REFUSED[name]
    model, inputs = kind.make(), kind.inputs()
    if name not in ("bfloat16", "float16", "two dtypes", "lazy"):
        model = model.double()
    lazy = any(map(nn.parameter.is_lazy, model.parameters()))
    as_it_was = nullcontext() if lazy else unchanged(model, *tensors_of(inputs))
    with as_it_was, pytest.raises(hessdiag.HessdiagError) as caught:
        hessdiag.diagnose(model, inputs, rtol=0.5, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not lazy or all(map(nn.parameter.is_lazy, model.parameters()))


def test_a_function_that_differentiates_once_has_a_gauss_newton_matrix_and_no_hessian() -> None:
    once, twice = own_function(CubeOnce).double(), own_function().double()
    once.load_state_dict(twice.state_dict())
    x = rows()
    found, expected = (hessdiag.diagnose(model, x) for model in (once, twice))
    np.testing.assert_allclose(found.heatmap.frobenius_sq, expected.heatmap.frobenius_sq, rtol=1e-10)
    with unchanged(once, x), pytest.raises(hessdiag.HessdiagError, match="no way to a right hessian product") as caught:
        hessdiag.diagnose(once, x, matrix="hessian")
    assert "\n" not in str(caught.value)
    assert len(KINDS) + len(REFUSED) >= 80


SIZES = {"vocab_size": 7, "bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"n_positions": 5, "n_embd": 6, "n_layer": 1, "n_head": 2}
GPT2 |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0)
BERT = {
    "hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 5, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
INFINITE = 1e15


def words() -> dict[str, Any]:
    return {"input_ids": torch.randint(7, (EXAMPLES, 4))}


PLAINLY = ("words", "positions", "positions in one row")
RULED: dict[str, Made] = {
    **{name: made for name, made in EMBEDDINGS.items() if name in PLAINLY or "tied" in name or "class" in name},
    **GAUSS_NEWTON_ONLY,
    "bert": (lambda: BertForMaskedLM(BertConfig(**SIZES, **BERT)), words),
    "gpt2 tied": (lambda: GPT2LMHeadModel(GPT2Config(tie_word_embeddings=True, **SIZES, **GPT2)), words),
    "gpt2 untied": (lambda: GPT2LMHeadModel(GPT2Config(tie_word_embeddings=False, **SIZES, **GPT2)), words),
}
OTHERS: dict[str, Made] = {name: made for name, made in EMBEDDINGS.items() if name not in RULED}


def diagnosed(made: Made, **options: Any) -> hessdiag.Report:
    torch.manual_seed(0)
    model, inputs = made[0]().double().eval(), made[1]()
    return hessdiag.diagnose(model, inputs, signals=False, **options)


OPTIONS = ({}, {"per": "batch"}, {"method": "sketch", "max_products": 40})


@pytest.mark.parametrize("name", RULED | OTHERS)
def test_a_report_is_the_same_with_and_without_the_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with it, no Jacobian of an embedding is differentiated; all three views of some, one of the others."""
    made, some = (RULED | OTHERS)[name], name in ("words", "positions", "tied, recurrent", "words, padding")
    for options in OPTIONS if some else OPTIONS[len(name) % 2 :][:1]:
        with monkeypatch.context() as patch:
            if name in RULED:
                slow = "hessdiag.derivatives.backward.functional_jacobians"
                patch.setattr(slow, lambda *_: pytest.fail("without a rule"))
            found = diagnosed(made, **options)
        assert name not in RULED or not found.skipped or name.startswith(("gpt2", "bert"))
        with monkeypatch.context() as patch:
            patch.setattr("hessdiag.network.blocks.looks_up", lambda _: False)
            expected = diagnosed(made, **options)
        records = [json.loads(found.to_json()), json.loads(expected.to_json())]
        compare(*records, rtol=1e-5 if "method" in options else 1e-8)


RECURRENT: dict[str, Callable[[], tuple[nn.Module, Callable[[Any, Tensor], Tensor]]]] = {
    "projected": lambda: (nn.LSTM(4, 6, 2, batch_first=True, proj_size=5), lambda rnn, x: rnn(x)[0]),
    "both ways": lambda: (nn.GRU(4, 5, batch_first=True, bidirectional=True), lambda rnn, x: rnn(x)[0][..., 2:7]),
    "steps first": lambda: (nn.RNN(4, 5, bias=False), lambda rnn, x: rnn(x.transpose(0, 1))[0][-1]),
    "cell": lambda: (nn.LSTMCell(4, 5), lambda cell, x: cell(x[:, 1], cell(x[:, 0]))[0]),
    "gated": lambda: (nn.GRUCell(4, 5), lambda cell, x: cell(x[:, 1], cell(x[:, 0]))),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_taken_apart_have_the_jacobians_of_each_example_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, slow = [], "hessdiag.derivatives.backward.functional_jacobians"
    for apart in (True, False):
        torch.manual_seed(0)
        with monkeypatch.context() as patch:
            if apart:
                patch.setattr(slow, lambda *_: pytest.fail("by vmap"))
            else:
                patch.setattr("hessdiag.derivatives.backward.recurrent_jacobians", lambda *_: {})
            layer, rule = RECURRENT[name]()
            model = Net(lambda m, x, rule=rule: m.head(rule(m.layer, x)), layer=layer, head=nn.Linear(5, 2))
            report = hessdiag.diagnose(model.double(), torch.randn(6, 3, 4).double(), seed=0)
        found.append(json.loads(report.to_json()))
    compare(*found, rtol=1e-8)


def compare(found: Any, expected: Any, *, rtol: float, least: float = 1e-18) -> None:
    """Numbers alike, but for ratios to what is zero or cancels, and for errors that are rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected.keys() - {"peak_memory", "ratio", "relative_ratio", "spread"}:
            compare(found[key], expected[key], rtol=rtol, least=1e-8 if key == "stderr" else least)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, rtol=rtol, least=least)
    elif any(isinstance(value, float) and value > INFINITE for value in (found, expected)):
        assert all(value is None or value > INFINITE for value in (found, expected))  # divided by zero, or nearly
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rtol, abs=least)
    else:
        assert found == expected


def test_planned_memory_has_no_dense_jacobian_of_a_vocabulary() -> None:
    model = nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 1000, bias=False))
    model[1].weight = model[0].weight
    blocks, _ = find_blocks(model)
    dry = run_dry(model, Batch.of(torch.randint(1000, (2, 5)), None), blocks)
    shape = dry.shape
    assert shape.dense == 0
    assert shape.looked_up == 5 * 8
    assert all(block.structured for block in dry.blocks)
    assert shape.layers.keys() == {"1"}
    assert shape.bytes_per_example(1) - shape.bytes_per_example(0) == 2 * 4 * (5 * 8 + 5 * 1000 + 5 * 1000)
