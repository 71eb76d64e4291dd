"""Every kind of MODEL, and the options that go with it, from the command line."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import hessdiag
from hessdiag.__main__ import main
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
def batches():
    while True:
        yield torch.ones(6, 4), torch.zeros(6, dtype=torch.long)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets_cli.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets_cli", raising=False)
    return tmp_path


def report(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["diagnose", *arguments, "--batch-size", "3", "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def test_models_initialisations_and_data_by_reference(capsys: pytest.CaptureFixture[str]) -> None:
    found = report("./nets_cli.py:build", "--arg", "width=7", "--arg", "act=tanh", capsys=capsys)
    assert (found["model"], found["init"], found["data"]) == ("./nets_cli.py:build", "as built", "random normal")
    assert found["blocks"][0]["shape"] == [7, 4]
    options = ("--init", "nets_cli:ones", "--data", "./nets_cli.py:batches", "--loss", "cross-entropy")
    found = report("nets_cli:build", *options, capsys=capsys)
    assert (found["init"], found["data"], found["batch_size"]) == ("nets_cli:ones", "./nets_cli.py:batches", 3)
    assert found["blocks"][0]["weight_sq"] == 1
    assert main(["diagnose", "nets_cli:build", "--data", "nets_cli:loader"]) == 0
    assert "\n1 of 2 batches of the data read: diagnose(model, batches) reads more" in capsys.readouterr().out
    assert main(["diagnose", "nets_cli:Noisy", "--json", "-", "--batch-size", "2"]) == 0
    out, err = capsys.readouterr()
    json.loads(out)
    assert set(err.splitlines()) == {"forward"}


@pytest.mark.parametrize(("dim", "shape"), [("1", (2, 5)), ("-1", (2, 4))])
def test_the_class_dimension_of_random_targets(dim: str, shape: tuple[int, ...], folder: Path, capsys) -> None:
    """Labels of 4 or 5 classes, as `hessdiag.diagnose` takes them."""
    options = ["--loss", "cross-entropy", "--output", f":{dim}", "--batch-size", "2", "--dtype", "float64"]
    assert main(["diagnose", "nets_cli:Positions", *options, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    source = resolve_model("nets_cli:Positions")
    prepared = prepare(source, batch_size=2, loss="cross-entropy", class_dim=int(dim), dtype=torch.float64)
    assert prepared.batch.targets.shape == shape
    model, x, t = prepared.module, prepared.batch.args[0], prepared.batch.targets

    def plain(y, t):
        return cross_entropy(y.movedim(int(dim), 1), t)

    expected = mean_over_examples(ggn_blocks, model, x, t, plain, ["layer.weight"])
    (weight,) = [block for block in found["blocks"] if block["kind"] == "weight"]
    assert weight["avg_sq_singular_value"] * weight["numel"] == pytest.approx(float(expected), rel=1e-10)
    against = ["--against", "fan-in", "--setups", "1"]
    assert main(["check-init", "geometric", "--model", "nets_cli:Positions", *against, *options]) == 0


def test_an_output_of_a_huggingface_network(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "bert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 12}
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {"": 8 * 3, "last_hidden_state": 8 * 3, "pooler_output": 8, "1": 8}
    for output, size in sizes.items():
        options = ["--output", output] if output else []
        found = report("hf:config.json", "--input-size", "3", "--batch-size", "2", *options, capsys=capsys)
        assert found["outputs"] == size
    # As many positions as features: the library's convention decides.
    report("hf:config.json", "--input-size", "8", "--batch-size", "2", "--loss", "cross-entropy", capsys=capsys)
    assert main(["diagnose", "hf:config.json", "--output", "logits"]) == 2
    assert "of last_hidden_state, pooler_output, name one of these" in capsys.readouterr().err


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
def test_networks_are_measured_as_they_train_or_with_eval_as_for_inference(mode: str, folder: Path, capsys) -> None:
    """In whatever mode the factory leaves them; the output that is asked for is taken in both."""
    (folder / "training.py").write_text(TRAINING)
    options = ["--batch-size", "6", "--output", "both", *(["--eval"] if mode == "eval" else [])]
    prepared = prepare(resolve_model("./training.py:Two", output="both"), batch_size=6, mode=mode)
    direct = hessdiag.diagnose(prepared.module, prepared.batch.inputs, output="both", mode=mode)
    values = [block.avg_sq_singular_value for block in direct.weights]
    for inference in ("False", "True"):
        line = ["./training.py:Two", "--arg", f"inference={inference}", *options]
        assert main(["diagnose", *line, "--json", "-"]) == 0
        found = hessdiag.Report.from_json(capsys.readouterr().out)
        assert [block.avg_sq_singular_value for block in found.weights] == pytest.approx(values, rel=1e-5)
        assert found.outputs == 2


def test_every_command_takes_a_mode(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what is measured follows it."""
    (folder / "training.py").write_text(TRAINING.replace('{"one": y[:, :1], "both": y}', "y"))
    model, size = "./training.py:Two", ["--batch-size", "6"]
    check = f"check-init fan-in --model {model} --setups 1 --against fan-out"
    lines = (
        check, f"describe {model}", f"lr {model} --steps 2", f"predict {model}", f"prescribe {model}",
        f"compare {model} {model}",
    )  # fmt: skip
    for line in (*lines, f"predict {model} --setups 2"):
        printed = []
        for asked in ([], ["--eval"]):
            assert main([*line.split(), *size, *asked]) == 0
            printed.append(capsys.readouterr().out)
        assert (printed[0] == printed[1]) == line.startswith("compare"), line


def test_an_entry_of_a_checkpoint_is_picked_and_loaded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = {name: mlp([4, 3, 2]).state_dict() for name in ("net", "ema")}
    torch.save({"epoch": 3, **states}, "two.pt")
    line = ["diagnose", "mlp:4-3-2", "--batch-size", "3", "--weights", "two.pt"]
    assert main(line) == 2
    assert "more than once: name one as in --weights FILE:KEY, 'ema' and 'net'" in capsys.readouterr().err
    assert main([*line[:-1], "two.pt:emma"]) == 2
    assert "--weights 'two.pt' has no entry 'emma': did you mean ema?" in capsys.readouterr().err
    assert main([*line[:-1], "two.pt:ema", "--dtype", "float64", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert err == "hessdiag: --weights two.pt:ema: took what is under 'ema'\n"
    weight_sq = float(states["ema"]["fc1.weight"].double().square().mean())
    report = hessdiag.Report.from_json(out)
    assert (report.init, report.blocks[0].weight_sq) == ("loaded from two.pt:ema", pytest.approx(weight_sq, rel=1e-12))
