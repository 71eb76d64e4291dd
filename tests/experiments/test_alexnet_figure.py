"""The AlexNet figure on a handful of random images: sweeps, best rates, resuming, and what the files say."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hessdiag.__main__ import main
from hessdiag.execution.work import Work
from hessdiag.experiments import alexnet_figure
from hessdiag.experiments.learning_rate_sweep import Sweep, curves_of
from hessdiag.results.training_curves import TrainingCurves
from hessdiag.training.image_training import ImageTraining


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder in CIFAR-10's layout with few images."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar"
    folder.mkdir()
    for number in range(1, 6):
        records = rng.integers(0, 256, (16, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(folder / f"data_batch_{number}.bin")
    return folder


def command(images: Path, *more: str) -> list[str]:
    quick = ["reproduce", "alexnet", "--quick", "--epochs", "2", "--batch-size", "16", "--seeds", "2"]
    return [*quick, "--data-dir", str(images), *more]


def test_the_figure_its_numbers_and_what_is_printed(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(alexnet_figure, "QUICK_WIDTH", 0.05)
    monkeypatch.setattr(alexnet_figure, "QUICK_POWERS", (-3, -4, -5))
    monkeypatch.setattr("hessdiag.experiments.learning_rate_sweep.MIN_POWER", -6)
    monkeypatch.setattr("hessdiag.experiments.learning_rate_sweep.MAX_POWER", -2)
    monkeypatch.chdir(tmp_path)
    assert main(command(images, "--out", "one", "--resume", "run.db")) == 0
    printed = capsys.readouterr().out
    found = TrainingCurves.from_json(tmp_path / "one" / "alexnet.json")
    assert {each.name for each in found.sets} == {"geometric", "fan-in", "fan-out", "arithmetic"}
    for each in found.sets:
        assert each.curves.shape == (2, len(found.steps))
        medians = np.median(each.sweep, axis=1)
        assert each.power == each.powers[int(medians.argmin())]
        assert each.powers[0] > each.power > each.powers[-1] or each.power in (-2, -6)  # widened off the edge
        assert f"{each.name} " in printed
    monkeypatch.setattr("hessdiag.experiments.learning_rate_sweep.train", lambda *_, **__: pytest.fail("trained again"))
    assert main(command(images, "--out", "two", "--resume", "run.db")) == 0
    assert (tmp_path / "one" / "alexnet.json").read_bytes() == (tmp_path / "two" / "alexnet.json").read_bytes()
    assert (tmp_path / "one" / "alexnet.png").stat().st_size > 10_000


def test_networks_of_a_seed_share_their_random_numbers_and_outputs_are_scaled() -> None:
    x = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    builds = alexnet_figure.build_schemes(0.1, x, "cpu")
    one, other = builds["geometric"](3), builds["fan-in"](3)
    for network in (one, other):
        assert float(network(x).std().detach()) == pytest.approx(0.05, rel=1e-4)
    a, b = (dict(network.named_parameters())["conv2.weight"].detach() for network in (one, other))
    torch.testing.assert_close(a / a.std(), b / b.std())


def test_a_sweep_is_widened_until_its_best_rate_is_inside() -> None:
    """A linear network on separable data: the more the better, up to a rate that is not in the sweep."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1, 2, 2, generator=generator)
    t = (x.sum((1, 2, 3)) > 0).long()

    def build(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))

    training = ImageTraining(rate=0.0, epochs=3, batch_size=16, augment=False)
    sweep = Sweep(training=training, powers=(-8, -9), sweep_seeds=2, seeds=3, window=4)
    ends, (found,) = curves_of({"linear": build}, x, t, sweep, seed=0, work=Work())
    assert ends[-1] == 12
    assert found.powers[0] > found.power > found.powers[-1] or found.power == 4
    assert found.power > -8
    assert found.curves.shape == (3, len(ends))
