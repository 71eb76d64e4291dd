"""The monitor in transformers' Trainer: its events one by one, and whole trainings."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback

from hessdiag import HessdiagError
from hessdiag.training.callbacks import read_labels, transformers_callback
from tests.unchanged import bits, unchanged


def gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def tokens(count: int = 4) -> Tensor:
    return torch.randint(11, (count, 6), generator=torch.Generator().manual_seed(0))


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
    model.eval()(input_ids=t, labels=t)  # of an evaluation
    callback.on_train_end(None, None, None)
    assert not model._forward_pre_hooks


def test_a_measurement_inside_a_forward_pass_leaves_nothing_behind() -> None:
    model, t = gpt().train(), tokens()
    callback = transformers_callback()
    callback.on_train_begin(None, None, None, model=model)
    callback.on_step_begin(None, SimpleNamespace(global_step=0), None)
    (hook,) = model._forward_pre_hooks.values()
    with unchanged(model, t):
        hook(model, (), {"input_ids": t, "labels": t})
    assert len(callback.monitor.history) == 1


def test_labels_are_shifted_where_the_model_does_so() -> None:
    t = tokens(2)
    inputs, targets = read_labels(gpt(), {"input_ids": t, "labels": t, "num_items_in_batch": 3})
    assert list(inputs) == ["input_ids"]
    assert torch.equal(targets[:, :-1], t[:, 1:])
    assert (targets[:, -1] == -100).all()
    assert torch.equal(read_labels(nn.Linear(1, 1), {"labels": t})[1], t)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(HessdiagError, match=r"needs transformers, .*: pip install 'hessdiag\[trainer\]'"):
        transformers_callback()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"bf16": True}, {"gradient_accumulation_steps": 2}], ids=str)
def test_with_the_trainer_itself_training_is_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    from transformers import Trainer, TrainingArguments

    def train(callbacks: list[Any]) -> tuple[Any, Any]:
        model, rows = gpt(), [{"input_ids": row, "labels": row} for row in tokens(24)]
        quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
        args = TrainingArguments(str(tmp_path), max_steps=4, per_device_train_batch_size=4, **quiet, **options)
        trainer = Trainer(model, args, train_dataset=rows, callbacks=callbacks)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, {name: bits(value) for name, value in model.state_dict().items()}

    callback = transformers_callback(every=2, overhead=1e9)
    assert train([callback]) == train([])
    assert [record["step"] for record in callback.monitor.history] == [0, 2]
