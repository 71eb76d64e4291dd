"""The monitor as a callback of Lightning and of transformers, which are imported when a callback is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.derivatives.losses import LossFunction
from hessdiag.errors import HessdiagError
from hessdiag.training.monitor import Monitor, Record, unwrapped

LEFT_OUT = -100  # of the loss, by torch's and transformers' convention
NOT_READ = ("labels", "num_items_in_batch", "return_loss")  # what the Trainer passes for the loss
Pair = tuple[Any, Any]
ReadBatch = Callable[[nn.Module, Mapping[str, Any]], Pair]


def lightning_callback(
    loss: str | LossFunction, *, module: str = "", read_batch: Callable[[Any], Pair] | None = None, **options: Any
) -> Any:
    """Return a callback for `lightning.Trainer(callbacks=[...])` that measures at the start of training batches.

    The numbers go to the trainer's loggers; the callback's `monitor` has them as well, once training has begun.

    Args:
        loss: that is trained with, see `Monitor`.
        module: attribute of the LightningModule that holds the network; by default its own `forward` is measured.
        read_batch: makes `(inputs, targets)` of a batch; by default a batch is that pair.
        options: of `Monitor`, such as `every=100` and `log="balance.csv"`.

    Raises:
        HessdiagError: Lightning is not installed.
    """
    library = _import_library("lightning.pytorch", extra="lightning", purpose="lightning_callback")

    class LightningMonitor(_LightningHooks, library.Callback):  # type: ignore[misc,name-defined]
        """Lightning's callback with the monitor's hooks."""

    return LightningMonitor(loss, module, read_batch, options)


class _LightningHooks:
    """What the callback does at the events of a Trainer."""

    def __init__(
        self,
        loss: str | LossFunction,
        module: str,
        read_batch: Callable[[Any], Pair] | None,
        options: dict[str, Any],
    ) -> None:
        self.loss = loss
        self.module = module
        self.read_batch = read_batch
        self.options = options
        self.monitor: Monitor | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the monitor of the network."""
        given = self.options.get("log", ())
        logs = list(given) if isinstance(given, (list, tuple)) else [given]

        def to_loggers(record: Record, step: int) -> None:
            numbers = {key: value for key, value in record.items() if not isinstance(value, str)}
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step)

        options = self.options | {"log": [*logs, to_loggers]}
        self.monitor = Monitor(pl_module.get_submodule(self.module), self.loss, **options)

    def on_train_batch_start(self, trainer: Any, _module: Any, batch: Any, *_: Any) -> None:
        """Count the step, and measure where one is due."""
        assert self.monitor is not None
        inputs, targets = batch if self.read_batch is None else self.read_batch(batch)
        self.monitor.step(inputs, targets, step=trainer.global_step)

    def on_validation_start(self, *_: Any) -> None:
        """Leave validation out of the training time."""
        if self.monitor is not None:
            self.monitor.pause()


def transformers_callback(
    loss: str | LossFunction = "cross-entropy", *, read_batch: ReadBatch | None = None, **options: Any
) -> Any:
    """Return a callback for `transformers.Trainer(callbacks=[...])` that measures before the updates of the weights.

    A Trainer does not show its batches to callbacks: the model is watched by a forward hook, from the beginning of
    training to its end. The callback's `monitor` has the history, once training has begun.

    Args:
        loss: of logits and labels, see `Monitor`; those of a causal language model are shifted here.
        read_batch: makes `(inputs, targets)` of the model and the keyword arguments that it is called with.
        options: of `Monitor`, such as `every=100` and `log="balance.csv"`.

    Raises:
        HessdiagError: transformers is not installed.
    """
    library = _import_library("transformers", extra="trainer", purpose="transformers_callback")

    class TransformersMonitor(_TransformersHooks, library.TrainerCallback):  # type: ignore[misc,name-defined]
        """The library's callback with the monitor's hooks."""

    return TransformersMonitor(loss, read_batch or read_labels, options)


def read_labels(model: nn.Module, batch: Mapping[str, Any]) -> Pair:
    """Take the labels out of a batch, those of the next token in a causal language model."""
    labels = batch.get("labels")
    inputs = {key: value for key, value in batch.items() if key not in NOT_READ}
    if labels is not None and _predicts_the_next_token(model):
        labels = next_tokens(labels)
    return inputs, labels


def _predicts_the_next_token(model: nn.Module) -> bool:
    """By its name: the loss type of a model with an older one, such as `GPT2LMHeadModel`, is unknown."""
    return any(name in type(model).__name__ for name in ("ForCausalLM", "LMHeadModel"))


def next_tokens(labels: Tensor) -> Tensor:
    """Shift labels (B, T) to the left; the last position has none.

    >>> next_tokens(torch.tensor([[5, 6, 7]]))
    tensor([[   6,    7, -100]])
    """
    return torch.nn.functional.pad(labels[:, 1:], (0, 1), value=LEFT_OUT)


class _TransformersHooks:
    """What the callback does at the events of a Trainer."""

    def __init__(self, loss: str | LossFunction, read_batch: ReadBatch, options: dict[str, Any]) -> None:
        self.loss = loss
        self.read_batch = read_batch
        self.options = options
        self.monitor: Monitor | None = None
        self._step: int | None = None  # number of the update whose first batch has not been seen
        self._watching: Any = None

    def on_train_begin(self, *_: Any, model: nn.Module, **__: Any) -> None:
        """Make the monitor of the model, and watch its batches."""
        model = unwrapped(model)
        monitor = self.monitor = Monitor(model, self.loss, **self.options)

        def see(module: nn.Module, positional: tuple[Any, ...], batch: dict[str, Any]) -> None:
            if self._step is not None and module.training and not positional:
                step, self._step = self._step, None
                inputs, targets = self.read_batch(model, batch)
                monitor.step(inputs, targets, step=step)

        self._watching = model.register_forward_pre_hook(torch.compiler.disable(see), with_kwargs=True)  # type: ignore[no-untyped-call]

    def on_step_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Wait for the first batch of an update."""
        self._step = state.global_step

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Leave the evaluation out of the training time."""
        if self.monitor is not None:
            self.monitor.pause()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.remove()
            self._watching = None


def _import_library(name: str, *, extra: str, purpose: str) -> Any:
    """Import an optional library, or say what installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        library = name.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise
        raise HessdiagError(
            f"{purpose} needs {library}, which is not installed: pip install 'hessdiag[{extra}]'"
        ) from error
