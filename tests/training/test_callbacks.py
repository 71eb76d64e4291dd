"""The monitor in the Trainers of Lightning and transformers, and the recipes of docs/how-to.md as they are printed."""

import importlib
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import hessdiag
from hessdiag.training.callbacks import lightning_callback, read_labels, transformers_callback
from tests.pages import fences
from tests.unchanged import bits, unchanged

RUN_HERE = re.compile(r"tests/training/test_callbacks\.py runs it with (\w+)$")
RECIPES = {match[1]: fence for fence in fences("docs/how-to.md") if (match := RUN_HERE.search(fence.reason))}
QUIET = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
DEADLINE = 20.0  # seconds until another process has written its file
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.fixture(scope="module")
def lightning() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("lightning")


@pytest.fixture
def make_module(lightning: Any) -> Callable[[], Any]:
    """A function that makes a small LightningModule, which notes its losses."""

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

    return Net


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 4, generator=generator), torch.randint(3, (12,), generator=generator)


def gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def tokens(count: int = 4) -> Tensor:
    return torch.randint(11, (count, 6), generator=torch.Generator().manual_seed(0))


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "transformers", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(hessdiag.HessdiagError, match=r"needs lightning, .*: pip install 'hessdiag\[lightning\]'"):
        lightning_callback("cross-entropy")
    with pytest.raises(hessdiag.HessdiagError, match=r"needs transformers, .*: pip install 'hessdiag\[trainer\]'"):
        transformers_callback()


def test_numbers_go_to_the_loggers_of_lightning(tmp_path: Path, lightning: Any) -> None:
    seen: list[int] = []
    logged: list[tuple[dict[str, float], int]] = []
    module = nn.Module()
    module.net = nn.Linear(4, 3)
    log = [tmp_path / "log.csv", lambda record, step: seen.append(step)]
    callback = lightning_callback("cross-entropy", module="net", every=2, overhead=1e9, log=log)
    assert isinstance(callback, lightning.pytorch.Callback)
    logger = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((metrics, step)))
    trainer = SimpleNamespace(global_step=0, loggers=[logger])
    callback.on_validation_start(trainer, module)  # the sanity check, before training
    callback.on_train_start(trainer, module)
    for number in range(5):
        trainer.global_step = 10 + number
        callback.on_train_batch_start(trainer, module, data(), number)
        callback.on_validation_start(trainer, module)
    assert seen == [10]  # all training time was left out
    assert (tmp_path / "log.csv").exists()
    ((metrics, step),) = logged
    assert step == 10
    assert metrics["sigma2/weight"] == callback.monitor.history[0]["sigma2/weight"]
    assert all(isinstance(value, float) for value in metrics.values())


@pytest.mark.parametrize(("precision", "in_dicts"), [("32-true", True), ("bf16-mixed", False)])
def test_training_by_lightning_is_the_same(tmp_path: Path, lightning, make_module, precision, in_dicts) -> None:
    rows: Any = [{"image": x, "label": t} for x, t in zip(*data(), strict=True)] if in_dicts else TensorDataset(*data())
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}

    def train(callbacks: list[Any]) -> tuple[Any, Any]:
        lightning.seed_everything(0)
        model, loader = make_module(), DataLoader(rows, 4, shuffle=True)
        logger = lightning.pytorch.loggers.CSVLogger(tmp_path)
        options = {"max_epochs": 2, "accelerator": "cpu", "devices": 1, "logger": logger, "precision": precision}
        lightning.Trainer(callbacks=callbacks, **options, **quiet).fit(model, loader, loader)
        return model.losses, {name: bits(value) for name, value in model.state_dict().items()}

    read = {"read_batch": lambda batch: (batch["image"], batch["label"])} if in_dicts else {}
    callback = lightning_callback("cross-entropy", every=2, overhead=1e9, **read)
    assert train([callback]) == train([])
    assert callback.monitor.stopped == ""
    assert [record["step"] for record in callback.monitor.history] == [0, 2, 4]
    assert "sigma2/net.0.weight" in (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text()


def test_the_first_batch_of_an_update_is_measured_before_it() -> None:
    model, t = gpt().train(), tokens()
    callback = transformers_callback(every=1, overhead=1e9)
    assert isinstance(callback, TrainerCallback)
    callback.on_train_begin(None, None, None, model=model)
    for step in range(2):
        callback.on_step_begin(None, SimpleNamespace(global_step=step), None)
        for _ in range(2):  # gradient accumulation
            loss = model(input_ids=t, labels=t, num_items_in_batch=4).loss
    (first, _) = callback.monitor.history
    assert [record["step"] for record in callback.monitor.history] == [0, 1]
    assert first["loss"] == pytest.approx(model.eval()(input_ids=t, labels=t).loss.item(), rel=1e-4)
    assert torch.isfinite(loss)
    callback.on_step_begin(None, SimpleNamespace(global_step=2), None)
    model.eval()(input_ids=t, labels=t)  # of an evaluation
    assert len(callback.monitor.history) == 2
    (hook,) = model._forward_pre_hooks.values()
    model.train()
    with unchanged(model, t):  # by a measurement inside a forward pass
        hook(model, (), {"input_ids": t, "labels": t})
    assert len(callback.monitor.history) == 3
    callback.on_train_end(None, None, None)
    assert not model._forward_pre_hooks


def test_labels_are_shifted_where_the_model_does_so() -> None:
    t = tokens(2)
    inputs, targets = read_labels(gpt(), {"input_ids": t, "labels": t, "num_items_in_batch": 3})
    assert list(inputs) == ["input_ids"]
    assert torch.equal(targets[:, :-1], t[:, 1:])
    assert (targets[:, -1] == -100).all()
    assert torch.equal(read_labels(nn.Linear(1, 1), {"labels": t})[1], t)


@pytest.mark.parametrize("options", [{"bf16": True}, {"gradient_accumulation_steps": 2}], ids=str)
def test_training_by_transformers_is_the_same(options: dict[str, Any]) -> None:
    def train(callbacks: list[Any]) -> tuple[Any, Any]:
        model, rows = gpt(), [{"input_ids": row, "labels": row} for row in tokens(24)]
        arguments = TrainingArguments("out", max_steps=3, per_device_train_batch_size=4, **QUIET, **options)
        trainer = Trainer(model, arguments, train_dataset=rows, callbacks=callbacks)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, {name: bits(value) for name, value in model.state_dict().items()}

    callback = transformers_callback(every=2, overhead=1e9)
    assert train([callback]) == train([])
    assert [record["step"] for record in callback.monitor.history] == [0, 2]


def run(recipe: str, **names: Any) -> dict[str, Any]:
    """Run a block of the page among the names that the page has made before it."""
    fence, namespace = RECIPES[recipe], {"hessdiag": hessdiag, "torch": torch} | names
    exec(compile("\n" * fence.line + fence.text, fence.page, "exec"), namespace)
    return namespace


def watched(recipe: str) -> dict[str, Any]:
    names = run(recipe, model=nn.Linear(4, 3), loss=nn.CrossEntropyLoss())
    for _ in range(2):
        names["monitor"].step(*data())
    return names


def test_the_recipes_with_trainers(make_module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(RECIPES) == ["accelerate", "lightning", "wandb"]
    names = run("lightning", module=make_module(), loader=DataLoader(TensorDataset(*data()), 4))
    assert names["callback"].monitor.stopped == ""
    assert [record["step"] for record in names["callback"].monitor.history] == [0]
    assert "no-problem" in capsys.readouterr().out
    arguments = TrainingArguments("out", max_steps=3, per_device_train_batch_size=4, **QUIET)
    rows = [{"input_ids": row, "labels": row} for row in tokens(24)]
    names = run("accelerate", model=gpt(), arguments=arguments, rows=rows)
    assert names["callback"].monitor.stopped == ""
    assert "sigma2/transformer.wte.weight" in Path("balance.csv").read_text(encoding="utf-8")


def test_the_recipe_with_weights_and_biases_logs_numbers_and_words(tmp_path: Path, monkeypatch) -> None:
    import wandb

    wandb.teardown()  # it keeps the folder that it was first set up in, as by a test before this one
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    names = watched("wandb")
    (log,) = names["monitor"]._logs
    log({"verdict": "faulty", "sigma2/weight": 0.25}, 7)
    assert names["run"].step == 7
    names["run"].finish()
    (path,) = tmp_path.rglob("run-*.wandb")
    end = time.monotonic() + DEADLINE
    while b"0.25" not in path.read_bytes() and time.monotonic() < end:  # another process writes it
        time.sleep(0.01)
    verdict = f'"{names["monitor"].history[0]["verdict"]}"'.encode()
    assert all(entry in path.read_bytes() for entry in (b"sigma2/weight", verdict, b'"faulty"', b"0.25"))
