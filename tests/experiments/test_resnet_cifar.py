"""Four kinds of ResNet-14 on a handful of random images in CIFAR-10's layout."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hessdiag.__main__ import main
from hessdiag.experiments import resnet_cifar
from hessdiag.experiments.resnet_cifar import FIGURE, VARIANTS, build_variants, read_options
from hessdiag.models.channel_bias import ChannelBias
from hessdiag.results.training_curves import TrainingCurves


def test_every_kind_is_trained_at_its_best_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    numbers = np.random.default_rng(0)
    for number in range(1, 6):
        records = numbers.integers(0, 256, (8, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(tmp_path / f"data_batch_{number}.bin")
    monkeypatch.setattr(resnet_cifar, "QUICK_WIDTH", 0.1)
    monkeypatch.setattr(resnet_cifar, "POWERS", (-4,))
    monkeypatch.setattr("hessdiag.experiments.learning_rate_sweep.MAX_POWER", -4)
    monkeypatch.setattr("hessdiag.experiments.learning_rate_sweep.MIN_POWER", -4)
    monkeypatch.chdir(tmp_path)
    options = ["--quick", "--data-dir", ".", "--epochs", "3", "--batch-size", "20", "--seeds", "2", "--out", "out"]
    assert main(["reproduce", "resnet", "--part", "cifar", *options]) == 0
    found = TrainingCurves.from_json(tmp_path / "out" / "resnet-cifar.json")
    assert [each.name for each in found.sets] == list(VARIANTS)
    assert all(each.curves.shape == (2, len(found.steps)) for each in found.sets)
    assert found.steps[-1] == 6
    assert "ResNet-14, width 0.1 on CIFAR-10, 40 images, side 16" in capsys.readouterr().out


def test_enough_rates_and_seeds_are_compared() -> None:
    for quick in (False, True):
        sweep = read_options(quick=quick).sweep
        assert len(sweep.powers) >= 5
        assert sweep.seeds >= 3
        assert FIGURE.steps(quick=quick) == 4 * sweep.units


def test_networks_follow_from_their_seed_and_their_biases_are_centred() -> None:
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    builds = build_variants(read_options(quick=True), x, "cpu")
    for name, build in builds.items():
        one, again, other = build(0), build(0), build(1)
        assert one.training
        assert torch.equal(one.fc.weight, again.fc.weight)
        assert not torch.equal(one.fc.weight, other.fc.weight)
        biases = [module.bias for module in one.modules() if isinstance(module, ChannelBias)]
        assert bool(biases) == (name != "batch norm")
        assert all(bias.abs().max() > 0 for bias in biases)
