"""Embeddings and weights tied to them are measured by a rule, to the same numbers as by autograd."""

import json
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import hessdiag
from tests.embeddings import EMBEDDINGS, EXAMPLES, GAUSS_NEWTON_ONLY, Made

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
    from hessdiag.data.batch import Batch
    from hessdiag.network.blocks import find_blocks
    from hessdiag.network.trace import run_dry

    model = nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 1000, bias=False))
    model[1].weight = model[0].weight
    blocks, _ = find_blocks(model)
    dry = run_dry(model, Batch.of(torch.randint(1000, (2, 5)), None), blocks)
    shape = dry.shape
    assert shape.dense == 0
    assert shape.looked_up == 5 * 8
    assert all(block.structured for block in dry.blocks)
    assert shape.layers.keys() == {"1"}
    more = shape.bytes_per_example(1) - shape.bytes_per_example(0)
    assert more == 2 * 4 * (5 * 8 + 5 * 1000 + 5 * 1000)
