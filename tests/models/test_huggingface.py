"""transformers networks from small real configurations: inputs and outputs fit, seeds repeat, no network is used."""

import json
import socket
import sys
from pathlib import Path

import pytest
import torch

import hessdiag
from hessdiag.loading.prepare import prepare
from hessdiag.loading.weights import load_weights
from hessdiag.models.sources import NormalInputs, TokenInputs, resolve_model

TEXT = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
GPT2 = {"model_type": "gpt2", "vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 6}
VIT = {"model_type": "vit", "image_size": 8, "patch_size": 4}
RESNET = {"model_type": "resnet", "embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "num_channels": 1}
T5 = {"model_type": "t5", "vocab_size": 20, "d_model": 8, "d_ff": 12, "d_kv": 4, "num_heads": 2, "num_layers": 1}
CASES = {  # configuration, architecture, and shape of the outputs of one example
    "bert": ({"model_type": "bert", "num_labels": 3} | TEXT, "BertForSequenceClassification", (3,)),
    "bert base": ({"model_type": "bert", "max_position_embeddings": 5} | TEXT, "", (5, 8)),
    "gpt2": (GPT2, "GPT2LMHeadModel", (6, 20)),
    "gpt2 classifier": (GPT2 | {"num_labels": 3}, "GPT2ForSequenceClassification", (3,)),
    "vit": (VIT | {k: v for k, v in TEXT.items() if k != "vocab_size"}, "ViTForImageClassification", (2,)),
    "resnet": (RESNET, "ResNetForImageClassification", (2,)),
    "t5": (T5, "T5ForConditionalGeneration", (64, 20)),
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_, **__: pytest.fail("a test used the network"))


@pytest.fixture
def config(tmp_path: Path):
    def write(name: str, **changes) -> str:
        path = tmp_path / f"{name.replace(' ', '_')}.json"
        configuration, architecture, _ = CASES[name]
        named = {"architectures": [architecture]} if architecture else {}
        path.write_text(json.dumps(configuration | named | changes))
        return f"hf:{path}"

    return write


@pytest.mark.parametrize("name", list(CASES))
def test_inputs_outputs_and_targets_fit(config, name: str) -> None:
    source = resolve_model(config(name), input_size=(1, 32, 32) if name == "resnet" else None)
    outputs = CASES[name][2]
    for loss, wanted in (("mse", outputs), ("cross-entropy", outputs[:-1])):
        prepared = prepare(source, batch_size=3, loss=loss)
        with torch.no_grad():
            assert tuple(prepared.batch.call(prepared.module).shape[1:]) == outputs
        assert prepared.batch.targets.shape == (3, *wanted)


@pytest.mark.parametrize(("name", "matrix"), [("bert", "ggn"), ("t5", "ggn"), ("vit", "hessian")])
def test_they_are_measured(config, name: str, matrix: str) -> None:
    source = resolve_model(config(name), input_size=(4,) if name == "t5" else None)
    prepared = prepare(source, batch_size=2, loss="cross-entropy", dtype=torch.float64)
    batch, options = prepared.batch, {"loss": "cross-entropy", "matrix": matrix, "rtol": 0.5, "max_products": 4}
    last = hessdiag.diagnose(prepared.module, batch.inputs, batch.targets, **options).weights[-1]
    assert last.avg_sq_singular_value > 0
    assert last.gamma > 0


def test_checkpoints_of_the_library_fit(config, tmp_path: Path) -> None:
    source = resolve_model(config("gpt2"))
    trained = source.build().module
    trained.save_pretrained(tmp_path / "saved")  # leaves the tied head out
    module = source.build().module
    load_weights(module, str(tmp_path / "saved" / "model.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), trained.parameters(), strict=True))


def test_seeds_repeat_and_differ_and_tokens_stay_in_range_and_off_the_padding(config) -> None:
    source = resolve_model(config("bert"))
    first, again, other = (prepare(source, batch_size=2, seed=seed) for seed in (0, 0, 1))
    for a, b, c in zip(*(p.module.state_dict().values() for p in (first, again, other)), strict=True):
        assert torch.equal(a, b)
        assert a.unique().numel() < 3 or not a.is_floating_point() or not torch.equal(a, c)
    assert torch.equal(first.batch.kwargs["input_ids"], again.batch.kwargs["input_ids"])
    assert not torch.equal(first.batch.kwargs["input_ids"], other.batch.kwargs["input_ids"])
    inputs = resolve_model(config("bert", pad_token_id=4)).build().inputs
    assert inputs == TokenInputs(20, 64, padding=4)
    ids = inputs(50, torch.Generator().manual_seed(0))["input_ids"]
    assert sorted(ids.unique().tolist()) == [token for token in range(20) if token != 4]


def test_sizes_come_from_the_configuration_or_the_user(config) -> None:
    assert len(resolve_model(config("gpt2"), arguments={"n_layer": 3}).build().module.transformer.h) == 3
    assert resolve_model(config("gpt2")).build().inputs.length == 6
    assert resolve_model(config("gpt2"), input_size=(3,)).build().inputs.length == 3
    assert resolve_model(config("vit")).build().inputs == NormalInputs((3, 8, 8), "pixel_values")
    assert resolve_model(config("vit", image_size=[8, 12])).build().input_size == (3, 8, 12)
    assert resolve_model(config("resnet")).build().input_size == (1, 224, 224)
    assert resolve_model(config("t5")).build().inputs.keywords == ("input_ids", "decoder_input_ids")


@pytest.mark.parametrize(("text", "message"), [
    ("{", "raised JSONDecodeError"), ('{"hidden_size": 3}', "has no 'model_type'"),
    ('{"model_type": "brt"}', "Unrecognized model identifier: brt"),
    ('{"model_type": "bert", "architectures": ["BertForSequenceClasification"]}', "no attribute BertForSequenceC"),
    ('{"model_type": "bert", "hidden_size": 7, "num_attention_heads": 2}', "raised ValueError"),
    (json.dumps({"model_type": "bert", "architectures": ["BertForPreTraining"]} | TEXT), "prediction_logits"),
])  # fmt: skip
def test_wrong_configurations_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(hessdiag.HessdiagError, match=message):
        prepare(resolve_model(f"hf:{tmp_path}", input_size=(4,)), batch_size=2)


@pytest.mark.parametrize(("name", "options", "message"), [
    ("bert", {"arguments": {"hiden_size": 4}}, "no argument 'hiden_size': pass entries of its configuration"),
    ("bert", {"input_size": (3, 8, 8)}, "reads tokens, pass their number"),
    ("gpt2", {"input_size": (9,)}, "cannot read inputs of shape 2×9"),
    ("vit", {"input_size": (3, 9, 9)}, "cannot read inputs of shape 2×3×9×9"),
])  # fmt: skip
def test_wrong_options_are_one_line(config, name: str, options, message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=message):
        prepare(resolve_model(config(name), **options), batch_size=2)


def test_hub_names_are_not_downloaded_and_the_library_is_asked_for(config, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bert-base-uncased", "google/vit-base"):
        with pytest.raises(hessdiag.HessdiagError, match="hessdiag downloads nothing"):
            resolve_model(f"hf:{name}")
    with pytest.raises(hessdiag.HessdiagError, match=r"no file .config.json. .hessdiag downloads nothing"):
        resolve_model("hf:")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(hessdiag.HessdiagError, match=r"which is not installed: pip install transformers$"):
        resolve_model(config("bert"))
