"""Every kind of MODEL, and the options that go with it, from the command line."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import hessdiag
from hessdiag.loading.prepare import prepare
from hessdiag.models import mlp
from hessdiag.models.sources import resolve_model
from tests.oracles import ggn_blocks, mean_over_examples

NETS = """
import torch
from torch import nn
def build(width=5, act="relu"):
    print("building")
    layer = {"relu": nn.ReLU, "tanh": nn.Tanh}[act]
    return nn.Sequential(nn.Linear(4, width), layer(), nn.Linear(width, 3)), 4
class Noisy(nn.Module):
    input_size = (4,)
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def forward(self, x):
        import warnings
        warnings.warn("from forward")
        print("forward")
        return self.layer(x)
class Positions(nn.Module):
    input_size = (4,)
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 20)
    def forward(self, x): return self.layer(x).view(-1, 4, 5)
def ones(weight): return torch.ones_like(weight)
def loader(): return [(torch.ones(6, 4), None)] * 2
def collated(): return [torch.ones(6, 4), torch.zeros(6, dtype=torch.long)]
def batches():
    while True:
        yield torch.ones(6, 4), torch.zeros(6, dtype=torch.long)
network, ready = build()[0], torch.utils.data.TensorDataset(*collated())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets_cli.py").write_text(NETS)
    monkeypatch.delitem(sys.modules, "nets_cli", raising=False)
    return tmp_path


def test_models_initialisations_and_data_by_reference(run) -> None:
    found = json.loads(run("diagnose ./nets_cli.py:build --arg width=7 --arg act=tanh --batch-size 3 --json -").out)
    assert (found["model"], found["init"], found["data"]) == ("./nets_cli.py:build", "as built", "random normal")
    assert found["blocks"][0]["shape"] == [7, 4]
    options = "--init nets_cli:ones --data ./nets_cli.py:batches --loss cross-entropy --batch-size 3"
    found = json.loads(run(f"diagnose nets_cli:build {options} --json -").out)
    assert (found["init"], found["data"], found["batch_size"]) == ("nets_cli:ones", "./nets_cli.py:batches", 3)
    assert found["blocks"][0]["weight_sq"] == 1
    out = run("diagnose nets_cli:build --data nets_cli:collated").out
    assert "loss cross-entropy, batch 6 (nets_cli:collated)" in out
    out = run("diagnose nets_cli:build --data nets_cli:loader").out
    assert "\nbatches read of the data: 1 of 2; diagnose(model, data, batches=n) reads more of one shape" in out
    out = run("diagnose nets_cli:network --data nets_cli:ready --batch-size 2 -v").out
    assert "loss cross-entropy, batch 2 (nets_cli:ready)" in out
    told = run("check-init fan-in --model nets_cli:network --input-size 4").err
    assert told == "hessdiag: model 'nets_cli:network' is already built, hence no random one: name a function\n"
    status, out, err = run("diagnose nets_cli:Noisy --json - --batch-size 2")
    assert (status, set(err.splitlines())) == (0, {"forward"})
    json.loads(out)


@pytest.mark.parametrize(("dim", "shape"), [(1, (2, 5)), (-1, (2, 4))])
def test_the_class_dimension_of_random_targets(dim: int, shape: tuple[int, ...], run) -> None:
    options = f"--loss cross-entropy --output :{dim} --batch-size 2 --dtype float64"
    found = json.loads(run(f"diagnose nets_cli:Positions {options} --json -").out)
    source = resolve_model("nets_cli:Positions")
    prepared = prepare(source, batch_size=2, loss="cross-entropy", class_dim=dim, dtype=torch.float64)
    assert prepared.batch.targets.shape == shape
    model, x, t = prepared.module, prepared.batch.args[0], prepared.batch.targets
    plain = lambda y, t: cross_entropy(y.movedim(dim, 1), t)  # noqa: E731
    expected = mean_over_examples(ggn_blocks, model, x, t, plain, ["layer.weight"])
    (weight,) = [block for block in found["blocks"] if block["kind"] == "weight"]
    assert weight["avg_sq_singular_value"] * weight["numel"] == pytest.approx(float(expected), rel=1e-10)
    assert run(f"check-init geometric --model nets_cli:Positions --against fan-in --setups 1 {options}").status == 0


def test_an_output_of_a_huggingface_network(run, folder: Path) -> None:
    config = {"model_type": "bert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 12}
    (folder / "config.json").write_text(json.dumps(config))
    line = "diagnose hf:config.json --batch-size 2 --json - --input-size"
    for output, size in {"": 8 * 3, "last_hidden_state": 8 * 3, "pooler_output": 8, "1": 8}.items():
        assert json.loads(run(f"{line} 3 {f'--output {output}' if output else ''}").out)["outputs"] == size
    assert run(f"{line} 8 --loss cross-entropy").status == 0
    status, _, err = run("diagnose hf:config.json --output logits")
    assert (status, "of last_hidden_state, pooler_output, name one of these" in err) == (2, True)


TRAINING = """
import torch
from torch import nn
class Two(nn.Sequential):
    input_size = (4,)
    def __init__(self, inference=False):
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
        self.train(not inference)
    def forward(self, x):
        y = super().forward(x)
        return {"one": y[:, :1], "both": y}
"""


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_networks_are_measured_as_they_train_or_with_eval_as_for_inference(mode: str, run, folder: Path) -> None:
    (folder / "training.py").write_text(TRAINING)
    prepared = prepare(resolve_model("./training.py:Two", output="both"), batch_size=6, mode=mode)
    direct = hessdiag.diagnose(prepared.module, prepared.batch.inputs, output="both", mode=mode)
    values = [block.avg_sq_singular_value for block in direct.weights]
    options = f"--batch-size 6 --output both --json - {'--eval' if mode == 'eval' else ''}"
    for inference in ("False", "True"):
        found = hessdiag.Report.from_json(run(f"diagnose ./training.py:Two --arg inference={inference} {options}").out)
        assert [block.avg_sq_singular_value for block in found.weights] == pytest.approx(values, rel=1e-5)
        assert found.outputs == 2


def test_every_command_takes_a_mode(run, folder: Path) -> None:
    (folder / "training.py").write_text(TRAINING.replace('{"one": y[:, :1], "both": y}', "y"))
    model = "./training.py:Two"
    for line in (
        f"check-init fan-in --model {model} --setups 1 --against fan-out", f"describe {model}", f"lr {model} --steps 2",
        f"predict {model}", f"prescribe {model}", f"compare {model} {model}", f"predict {model} --setups 2",
    ):  # fmt: skip
        usual, evaluated = (run(f"{line} --batch-size 6{asked}") for asked in ("", " --eval"))
        assert usual.status == evaluated.status == 0
        assert (usual.out == evaluated.out) == line.startswith("compare"), line


def test_an_entry_of_a_checkpoint_is_picked_and_loaded(run) -> None:
    states = {name: mlp([4, 3, 2]).state_dict() for name in ("net", "ema")}
    torch.save({"epoch": 3, **states}, "two.pt")
    line = "diagnose mlp:4-3-2 --batch-size 3 --weights two.pt"
    for key, told in (
        ("", "more than once: name one as in --weights FILE:KEY, 'ema' and 'net'"),
        (":emma", "--weights 'two.pt' has no entry 'emma': did you mean ema?"),
    ):
        status, _, err = run(line + key)
        assert (status, told in err) == (2, True)
    status, out, err = run(f"{line}:ema --dtype float64 --json -")
    assert (status, err) == (0, "hessdiag: --weights two.pt:ema: took what is under 'ema'\n")
    weight_sq = float(states["ema"]["fc1.weight"].double().square().mean())
    report = hessdiag.Report.from_json(out)
    assert (report.init, report.blocks[0].weight_sq) == ("loaded from two.pt:ema", pytest.approx(weight_sq, rel=1e-12))
