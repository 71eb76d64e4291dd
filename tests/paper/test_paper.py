"""The scripts of the paper's figures: each at its smallest, and what they make of the committed results."""

import bz2
import sys
from pathlib import Path

import alexnet
import cifar
import interval_coverage
import layers
import learning_rate_networks
import learning_rates
import libsvm
import numpy as np
import pytest
import resnet
import resnet_cifar
import resnet_imagenet
import study
import torch
from torch import nn

FIGURES, SAVE = Path(__file__).parents[2] / "figures", study.save


def run(script, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [script.__file__, *arguments, "--out", "out", "--device", "cpu"])
    script.main()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are laid out; `test_committed_results_are_drawn` writes one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "save", lambda figure, path: figure.draw_without_rendering())


@pytest.mark.parametrize(("script", "name", "said"), [
    (alexnet, "alexnet", "fan-out     2^-6  1.37  1.36–1.37       0/5  0.00033"),
    (interval_coverage, "coverage", "sketch               LeNet-like     0.949  0.920–0.965"),
    (learning_rates, "learning_rates", "steps 1024   0.47 95%   0.51 95%"),
    (layers, "layers", "| skip connection | x + F(x) | relu | ✓ | 1.47 ("),
    (libsvm, "libsvm", "fan-in                 0.86 (0.76–0.93)     1 (0–5)  12 (4–13)"),
    (resnet, "resnet", "preconditioned                6.2       14  2.6e+03"),
    (resnet_cifar, "resnet-cifar", "RescaleNet            2^-2  1.78  1.75–1.94       0/3  0.48"),
])  # fmt: skip
def test_committed_results_are_read(script, name: str, said: str, monkeypatch, capsys) -> None:
    run(script, monkeypatch, "--show", str(FIGURES / f"{name}.json"))
    assert said in capsys.readouterr().out


def test_committed_results_are_drawn() -> None:
    for draw, name in ((libsvm.draw, "libsvm"), (layers.draw, "layers"), (resnet.draw, "resnet"),
                       (learning_rates.draw, "learning_rates"), (interval_coverage.draw, "coverage")):  # fmt: skip
        assert draw(study.read(FIGURES / f"{name}.json")).axes
    SAVE(cifar.draw(study.read(FIGURES / "alexnet.json"), "loss"), Path("drawn"))
    assert {path.suffix for path in Path().glob("drawn.*")} == {".png", ".svg"}


@pytest.fixture
def data() -> Path:
    """Two sets in svmlight text; the shorter one is a stand-in of another name."""
    folder, generator = Path("data"), np.random.default_rng(0)
    folder.mkdir()
    for name, rows in (("iris.scale.bz2", 40), ("covtype.first20k.bz2", 30)):
        x, classes = generator.normal(size=(rows, 4)).round(3), generator.integers(3, size=rows)
        entries = [" ".join(f"{i + 1}:{v}" for i, v in enumerate(row)) for row in x]
        lines = [f"{c + 1} {row}" for c, row in zip(classes, entries, strict=True)]
        (folder / name).write_bytes(bz2.compress("\n".join(lines).encode()))
    return folder


def test_libsvm(data: Path, monkeypatch, capsys) -> None:
    asked = ("--quick", "--data", "data", "--datasets", "iris,covtype:20x3", "--schemes", "fan-in,geometric")
    asked += ("--epochs", "1")
    monkeypatch.setattr(libsvm, "POWERS", libsvm.POWERS[::2])
    run(libsvm, monkeypatch, *asked)
    first = capsys.readouterr().out
    found = study.read("out/libsvm.json")
    assert [(b["name"], b["rows"], b["features"]) for b in found["blocks"]] == [("iris", 40, 4), ("covtype", 20, 3)]
    assert "covtype.first20k; 30 rows, LIBSVM has 581,012" in found["blocks"][1]["note"]
    for block in found["blocks"]:  # no best rate is on an edge of what was run
        powers = [p for p, losses in zip(block["powers"], np.moveaxis(study.array(block["losses"]), 1, 0), strict=True)
                  if np.isfinite(losses).any()]  # fmt: skip
        assert set(libsvm.medians(found, block, widened=True)[1]) >= set(powers)
    monkeypatch.setattr(libsvm, "train", lambda *_: pytest.fail("trained again"))
    run(libsvm, monkeypatch, *asked)
    assert capsys.readouterr().out == first
    run(libsvm, monkeypatch, "--compare", "out/libsvm.json", "out/libsvm.json")
    assert len(study.read("out/libsvm_robustness.json")["blocks"]) == 2


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_side_by_side_networks_train_as_alone(name: str, data: Path) -> None:
    found, how = libsvm.load("iris", data), {"optimizer": name, "batch_size": 16, "epochs": 2}
    model = libsvm.build(found, "fan-in", 0)
    losses = libsvm.train(model, found, (-3, -6, 40), 0, how)
    kinds = {"adam": torch.optim.Adam, "momentum": torch.optim.SGD}
    more = {"momentum": 0.9} if name == "momentum" else {}
    every = libsvm.inputs(found, torch.arange(40))
    batches = libsvm.minibatches(40, 0, 2, 16)
    for power, loss in zip((-3, -6), losses, strict=False):
        model = libsvm.build(found, "fan-in", 0)
        scale = 0.05 / float(model(libsvm.inputs(found, batches[0])).detach().std())
        optimizer = kinds[name](model.parameters(), lr=2.0**power, weight_decay=1e-5, **more)
        for chosen in batches:
            optimizer.zero_grad()
            y = scale * model(libsvm.inputs(found, chosen))
            nn.functional.cross_entropy(y, found["targets"][chosen]).backward()
            optimizer.step()
        alone = nn.functional.cross_entropy(scale * model(every), found["targets"])
        torch.testing.assert_close(loss, alone.detach().double(), rtol=1e-4, atol=1e-5)


def test_ranks_of_schemes() -> None:
    def block(*losses: float) -> dict:
        return {"name": "a", "powers": [0, -1], "losses": [[[loss] * 2, [2 * loss] * 2] for loss in losses],
                "sigma_spread": [[1.0 + i] for i in range(len(losses))]}  # fmt: skip

    found = {"schemes": ["a", "b"], "powers": [0, -1], "blocks": [block(1.0, 2.0), block(4.0, 1.0)]}
    first, second = libsvm.rank(found, ["a", "b"], widened=True)
    assert (first["average"], second["average"]) == (0.75, 0.625)
    assert (first["worst"], first["best"], second["worst"], second["best"]) == (1, 1, 1, 1)
    assert libsvm.edges(found) == (4, 4)
    assert libsvm.correlate(found, "sigma")["mean"] == pytest.approx(0.0)  # 1 on one set, -1 on the other
    assert libsvm.beyond({0: np.array([[1.0]]), -1: np.array([[2.0]])}, 0) == (1, 2)


@pytest.fixture
def images() -> Path:
    """CIFAR-10's binary layout, with 20 images a file that tell their class."""
    folder, generator = Path("images"), np.random.default_rng(0)
    folder.mkdir()
    for number in range(1, 6):
        records = generator.integers(256, size=(20, cifar.RECORD)).astype(np.uint8)
        records[:, 0] %= 10
        records[:, 1:] //= 1 + records[:, :1]
        records.tofile(folder / f"data_batch_{number}.bin")
    return folder


@pytest.mark.parametrize(("script", "name", "schemes", "reference"), [
    (alexnet, "alexnet", "SCHEMES", "geometric"), (resnet_cifar, "resnet-cifar", "VARIANTS", "preconditioned"),
])  # fmt: skip
def test_training_curves(script, name: str, schemes: str, reference: str, images: Path, monkeypatch, capsys) -> None:
    plan = cifar.Plan
    monkeypatch.setattr(cifar, "Plan", lambda **how: plan(**(how | {"powers": (-4,)})))
    monkeypatch.setattr(cifar, "MAX_POWER", -4)
    monkeypatch.setattr(cifar, "MIN_POWER", -4)
    few = dict.fromkeys([next(iter(getattr(script, schemes))), reference])
    kept = {key: script.VARIANTS[key] for key in few} if schemes == "VARIANTS" else tuple(few)
    monkeypatch.setattr(script, schemes, kept)
    asked = ("--quick", "--data", "images", "--epochs", "1", "--seeds", "1", "--batch-size", "50")
    run(script, monkeypatch, *asked)
    out = capsys.readouterr().out
    found = study.read(f"out/{name}.json")
    assert [each["name"] for each in found["sets"]] == list(kept)
    assert all(np.isfinite(study.array(each["curves"])).all() for each in found["sets"])
    monkeypatch.setattr(cifar, "train", lambda *_, **__: pytest.fail("trained again"))
    run(script, monkeypatch, *asked)
    assert capsys.readouterr().out == out


def test_conditioning(monkeypatch, capsys) -> None:
    weights_only = resnet.weights_only
    monkeypatch.setattr(resnet, "NETWORKS", resnet.NETWORKS[:1])
    monkeypatch.setattr(resnet, "weights_only", lambda *_: (weights_only("mlp:6-5-14", {}), 6))
    run(resnet, monkeypatch, "--quick")
    found = study.read("out/resnet.json")["panels"]["preconditioned"]
    assert np.shape(found["columns"]["gamma"]) == (3, len(found["names"]))
    assert "preconditioned" in capsys.readouterr().out


def test_operations(monkeypatch, capsys) -> None:
    few = [layers.SETTINGS[0], next(setting for setting in layers.SETTINGS if setting.row == "max pooling")]
    monkeypatch.setattr(layers, "SETTINGS", few)
    run(layers, monkeypatch, "--quick")
    assert [r["verdict"] for r in study.read("out/layers.json")["blocks"]] == ["✓", "✗"]


def test_imagenet_needs_torchvision_or_trains(monkeypatch) -> None:
    x, t = torch.randn(16, 3, 32, 32), torch.arange(16) % 2
    held = torch.utils.data.TensorDataset(x, t)
    held.classes = ["a", "b"]
    monkeypatch.setattr(resnet_imagenet, "folders", lambda *_: (held, held))
    run(resnet_imagenet, monkeypatch, "--quick", "--networks", "rescalenet", "--epochs", "2")
    found = study.read("out/resnet-training.json")
    assert resnet_imagenet.values(found, "rescalenet", "rate").tolist() == [[0.1, 0.01]]
    assert [path.name for path in Path("out").glob("*.pt")] == ["resnet-training-rescalenet-seed0.pt"]
    with pytest.raises(SystemExit, match="use preconditioned"):
        run(resnet_imagenet, monkeypatch, "--networks", "vgg")


def test_intervals_and_their_truth(monkeypatch, capsys) -> None:
    few = {"sketch": {"method": "exact"}, "batch": {"method": "exact", "per": "batch"}}
    monkeypatch.setattr(interval_coverage, "METHODS", few)
    monkeypatch.setattr(interval_coverage, "NETWORKS", {"MLP": interval_coverage.mlp})
    run(interval_coverage, monkeypatch, "--seeds", "2")
    rows = study.read("out/coverage.json")["rows"]
    assert len(rows) == 12
    assert max(abs(row["bias"]) for row in rows) < 1e-9  # exact values are the dense ones
    assert "exact" in capsys.readouterr().out


def test_learning_rates(monkeypatch, capsys) -> None:
    make = lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))  # noqa: E731
    case = learning_rate_networks.Case("a", "mlp", make, "ours", seeds=1)
    x = torch.randn(1100, 6, generator=torch.Generator().manual_seed(0))
    monkeypatch.setitem(learning_rate_networks.DATA, "ours", lambda root: (x, x[:, :3].argmax(dim=1)))
    monkeypatch.setattr(learning_rates, "CASES", [case])
    monkeypatch.setattr(learning_rates, "START", {"sgd": -3, "adam": -8})
    monkeypatch.setattr(learning_rates, "STEPS", 5)
    monkeypatch.setattr(learning_rates, "RANGE_STEPS", 20)
    run(learning_rates, monkeypatch, "--quick", "--data", "nowhere")
    found = study.read("out/learning_rates.json")
    assert [row["optimizer"] for row in found["rows"]] == list(learning_rates.START)
    assert all(learning_rates.error(row, row["steps"]["fresh"]) == pytest.approx(0.0) for row in found["rows"])
    assert "adam" in capsys.readouterr().out
