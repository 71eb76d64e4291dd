"""The monitor as a callback of Lightning and of transformers, which are imported when a callback is made."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from hessdiag.data.batch import labels_of
from hessdiag.derivatives.losses import LossFunction
from hessdiag.loading.user_code import import_library
from hessdiag.training.monitor import Monitor, Record, unwrapped

NOT_READ = ("labels", "num_items_in_batch", "return_loss")  # what the Trainer passes for the loss
Pair = tuple[Any, Any]


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
    library = import_library("lightning.pytorch", label="lightning_callback", install="'hessdiag[lightning]'")

    class LightningMonitor(library.Callback):  # type: ignore[misc,name-defined]
        monitor: Any = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            log = options.get("log", ())

            def to_loggers(record: Record, step: int) -> None:
                numbers = {key: value for key, value in record.items() if not isinstance(value, str)}
                for logger in trainer.loggers:
                    logger.log_metrics(numbers, step)

            logs = [*(log if isinstance(log, (list, tuple)) else [log]), to_loggers]
            self.monitor = Monitor(pl_module.get_submodule(module), loss, **(options | {"log": logs}))

        def on_train_batch_start(self, trainer: Any, _module: Any, batch: Any, *_: Any) -> None:
            inputs, targets = batch if read_batch is None else read_batch(batch)
            self.monitor.step(inputs, targets, step=trainer.global_step)

        def on_validation_start(self, *_: Any) -> None:
            """Leave validation out of the training time."""
            if self.monitor is not None:
                self.monitor.pause()

    return LightningMonitor()


def transformers_callback(
    loss: str | LossFunction = "cross-entropy", *,
    read_batch: Callable[[nn.Module, Mapping[str, Any]], Pair] | None = None, **options: Any,
) -> Any:  # fmt: skip
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
    library = import_library("transformers", label="transformers_callback", install="'hessdiag[trainer]'")

    class TransformersMonitor(library.TrainerCallback):  # type: ignore[misc,name-defined]
        monitor: Monitor | None = None
        step: int | None = None  # number of the update whose first batch has not been seen
        watching: Any = None

        def on_train_begin(self, *_: Any, model: nn.Module, **__: Any) -> None:
            model = unwrapped(model)
            monitor = self.monitor = Monitor(model, loss, **options)

            def see(module: nn.Module, positional: tuple[Any, ...], batch: dict[str, Any]) -> None:
                if self.step is not None and module.training and not positional:
                    step, self.step = self.step, None
                    inputs, targets = (read_batch or read_labels)(model, batch)
                    monitor.step(inputs, targets, step=step)

            self.watching = model.register_forward_pre_hook(torch.compiler.disable(see), with_kwargs=True)  # type: ignore[no-untyped-call]

        def on_step_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            """Wait for the first batch of an update."""
            self.step = state.global_step

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            """Leave the evaluation out of the training time."""
            if self.monitor is not None:
                self.monitor.pause()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.watching.remove()

    return TransformersMonitor()


def read_labels(model: nn.Module, batch: Mapping[str, Any]) -> Pair:
    """Take the labels out of a batch, those of the next token in a causal language model."""
    labels = batch.get("labels")
    inputs = {key: value for key, value in batch.items() if key not in NOT_READ}
    causal = any(name in type(model).__name__ for name in ("ForCausalLM", "LMHeadModel"))  # older ones say no loss type
    return inputs, None if labels is None else labels_of(labels, shifted=causal)
