"""The recipes of docs/how-to.md for training libraries, run as they are printed, with the libraries themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hessdiag
from tests.pages import Fence, fences
from tests.training.offline_runs import read_offline_run

RUN_HERE = re.compile(r"tests/training/test_recipes\.py runs it with (\w+)$")
RECIPES = {match[1]: fence for fence in fences("docs/how-to.md") if (match := RUN_HERE.search(fence.reason))}
STEPS = 3


def test_all_recipes_are_run() -> None:
    assert sorted(RECIPES) == ["accelerate", "lightning", "tensorboard", "wandb"]


def run(fence: Fence, **names: Any) -> dict[str, Any]:
    """Run a block among the names that the page has made before it."""
    namespace: dict[str, Any] = {"hessdiag": hessdiag, "torch": torch} | names
    exec(compile("\n" * fence.line + fence.text, fence.page, "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")


def train(monitor: Any, model: nn.Module) -> None:
    """Make steps of a training that the monitor watches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        x, t = torch.randn(8, 4), torch.randint(3, (8,))
        monitor.step(x, t)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), t).backward()
        optimizer.step()


def test_tensorboard() -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = nn.Linear(4, 3)
    names = run(RECIPES["tensorboard"], model=model, loss=nn.CrossEntropyLoss())
    train(names["monitor"], model)
    names["monitor"]._logs[0].writer.close()  # at the end of a program it closes by itself
    (event,) = EventAccumulator("runs/balance").Reload().Scalars("sigma2/weight")
    assert event.value == pytest.approx(names["monitor"].history[0]["sigma2/weight"])


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    wandb.teardown()  # it keeps the folder that it was first set up in, as by a test before this one
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    model = nn.Linear(4, 3)
    names = run(RECIPES["wandb"], model=model, loss=nn.CrossEntropyLoss())
    train(names["monitor"], model)
    names["run"].finish()
    assert b"sigma2/weight" in read_offline_run(tmp_path, last=b"sigma2/weight")


@pytest.mark.filterwarnings("ignore")
def test_lightning(capsys: pytest.CaptureFixture[str]) -> None:
    import lightning

    class Net(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    rows = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))
    names = run(RECIPES["lightning"], module=Net(), loader=torch.utils.data.DataLoader(rows, 8))
    assert names["callback"].monitor.stopped == ""
    assert [record["step"] for record in names["callback"].monitor.history] == [0]
    assert "healthy" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

    sizes = {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = TrainingArguments("out", max_steps=STEPS, per_device_train_batch_size=4, **quiet)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(11, (24, 6))]
    names = run(RECIPES["accelerate"], model=model, arguments=arguments, rows=rows)
    assert names["callback"].monitor.stopped == ""
    assert "sigma2/transformer.wte.weight" in Path("balance.csv").read_text(encoding="utf-8")
