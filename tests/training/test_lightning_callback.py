"""The monitor in Lightning's Trainer: its events one by one, and whole trainings."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag import HessdiagError
from hessdiag.training.callbacks import lightning_callback
from tests.unchanged import bits


class Logger:
    """Notes what it is asked to log."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.seen.append((metrics, step))


@pytest.fixture
def lightning() -> Any:
    """Import Lightning, which warns of what it imports in turn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("lightning")


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 4, generator=generator), torch.randint(3, (12,), generator=generator)


def test_batches_are_measured_and_numbers_go_to_the_loggers(tmp_path: Path, lightning: Any) -> None:
    seen: list[int] = []
    module = nn.Module()
    module.net = nn.Linear(4, 3)
    log = [tmp_path / "log.csv", lambda record, step: seen.append(step)]
    callback = lightning_callback("cross-entropy", module="net", every=2, overhead=1e9, log=log)
    assert isinstance(callback, lightning.pytorch.Callback)
    trainer = SimpleNamespace(global_step=0, loggers=[Logger()])
    callback.on_validation_start(trainer, module)  # the sanity check, before training
    callback.on_train_start(trainer, module)
    x, t = data()
    for number in range(5):
        trainer.global_step = 10 + number
        callback.on_train_batch_start(trainer, module, (x, t), number)
        callback.on_validation_start(trainer, module)
    assert seen == [10]  # all training time was left out
    assert (tmp_path / "log.csv").exists()
    ((metrics, step),) = trainer.loggers[0].seen
    assert step == 10
    assert metrics["sigma2/weight"] == callback.monitor.history[0]["sigma2/weight"]
    assert all(isinstance(value, float) for value in metrics.values())


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(HessdiagError, match=r"needs lightning, .*: pip install 'hessdiag\[lightning\]'"):
        lightning_callback("cross-entropy")


def fit(lightning: Any, folder: Path, callbacks: list[Any], loader: Any, **options: Any) -> Any:
    """Train a small network for two epochs, and return its module."""

    class Net(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)]
            self.net, self.losses = nn.Sequential(*layers), []

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, t = batch.values() if isinstance(batch, dict) else batch
            loss = F.cross_entropy(self(x), t)
            self.losses.append(bits(loss))
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 0.01)

    lightning.seed_everything(0)
    model = Net()
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
    logger = lightning.pytorch.loggers.CSVLogger(folder)
    options = {"max_epochs": 2, "accelerator": "cpu", "devices": 1, "logger": logger} | quiet | options
    lightning.Trainer(callbacks=callbacks, **options).fit(model, loader, loader)
    return model


@pytest.mark.filterwarnings("ignore")
def test_batches_of_another_form_are_read_by_a_function(tmp_path: Path, lightning: Any) -> None:
    callback = lightning_callback(
        "cross-entropy", read_batch=lambda batch: (batch["image"], batch["label"]), every=2, overhead=1e9
    )
    rows = [{"image": x, "label": t} for x, t in zip(*data(), strict=True)]
    fit(lightning, tmp_path, [callback], torch.utils.data.DataLoader(rows, 4))
    assert callback.monitor.stopped == ""
    assert [record["step"] for record in callback.monitor.history] == [0, 2, 4]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_with_lightning_itself_training_is_the_same(tmp_path: Path, lightning: Any, precision: Any) -> None:
    def train(callbacks: list[Any]) -> tuple[Any, Any]:
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), 4, shuffle=True)
        model = fit(lightning, tmp_path, callbacks, loader, precision=precision)
        return model.losses, {name: bits(value) for name, value in model.state_dict().items()}

    callback = lightning_callback("cross-entropy", every=2, overhead=1e9)
    assert train([callback]) == train([])
    assert callback.monitor.stopped == ""
    assert len(callback.monitor.history) >= 2
    assert "sigma2/net.0.weight" in (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text()
