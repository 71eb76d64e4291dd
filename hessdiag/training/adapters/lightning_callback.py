"""The monitor as a callback of Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hessdiag.derivatives.losses import LossFunction
from hessdiag.training.adapters.training_library import import_training_library
from hessdiag.training.monitor import Monitor
from hessdiag.training.monitor_record import Record

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
    library = import_training_library("lightning.pytorch", extra="lightning", purpose="lightning_callback")

    class LightningMonitor(LightningHooks, library.Callback):  # type: ignore[misc,name-defined]
        """Lightning's callback with the monitor's hooks."""

    return LightningMonitor(loss, module, read_batch, options)


class LightningHooks:
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
