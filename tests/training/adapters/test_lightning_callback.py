"""The monitor in Lightning's Trainer: with a stand-in of it, and with itself where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag import HessdiagError
from hessdiag.training.adapters.lightning_callback import lightning_callback
from tests.unchanged import bits


class Logger:
    """Notes what it is asked to log."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.seen.append((metrics, step))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {"on_fit_start": lambda self, *_: None})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 4, generator=generator), torch.randint(3, (12,), generator=generator)


@pytest.mark.usefixtures("stand_in")
def test_batches_are_measured_and_numbers_go_to_the_loggers(tmp_path: Path) -> None:
    seen: list[int] = []
    module = nn.Module()
    module.net = nn.Linear(4, 3)
    log = [tmp_path / "log.csv", lambda record, step: seen.append(step)]
    callback = lightning_callback("cross-entropy", module="net", every=2, overhead=1e9, log=log)
    assert isinstance(callback, sys.modules["lightning.pytorch"].Callback)
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


@pytest.mark.usefixtures("stand_in")
def test_batches_of_another_form_are_read_by_a_function() -> None:
    callback = lightning_callback("cross-entropy", read_batch=lambda batch: (batch["image"], batch["label"]))
    trainer = SimpleNamespace(global_step=0, loggers=[])
    model = nn.Linear(4, 3)
    x, t = data()
    callback.on_train_start(trainer, model)
    callback.on_train_batch_start(trainer, model, {"image": x, "label": t}, 0)
    assert [record["step"] for record in callback.monitor.history] == [0]


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(HessdiagError, match=r"needs lightning, .*: pip install 'hessdiag\[lightning\]'"):
        lightning_callback("cross-entropy")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_with_lightning_itself_training_is_the_same(tmp_path: Path, precision: Any) -> None:
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)]
            self.net, self.losses = nn.Sequential(*layers), []

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.losses.append(bits(loss))
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 0.01)

    def train(callbacks: list[Any]) -> tuple[Any, Any]:
        lightning.seed_everything(0)
        model = Net()
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), 4, shuffle=True)
        quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
        logger = lightning.pytorch.loggers.CSVLogger(tmp_path)
        options = {"max_epochs": 2, "accelerator": "cpu", "devices": 1, "precision": precision, "logger": logger}
        lightning.Trainer(callbacks=callbacks, **options, **quiet).fit(model, loader, loader)
        return model.losses, {name: bits(value) for name, value in model.state_dict().items()}

    callback = lightning_callback("cross-entropy", every=2, overhead=1e9)
    assert train([callback]) == train([])
    assert callback.monitor.stopped == ""
    assert len(callback.monitor.history) >= 2
    assert "sigma2/net.0.weight" in (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text()
