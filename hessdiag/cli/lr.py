"""`hessdiag lr`: learning rates before training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.cli.options import Blocks, Model, Subject, grouped
from hessdiag.cli.printing import Printing
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.loading.prepare import Prepared

Optimizer = Annotated[list[str] | None, typer.Option(metavar="NAME", help="sgd, momentum or adam  [default: all]")]
LOSSES = "cross-entropy, mse, model or ./file.py:function  [default: cross-entropy where it fits]"
Steps = Annotated[int, typer.Option(min=1, help="virtual steps on a copy of the weights, and more where a rate rises")]


@dataclass(frozen=True, kw_only=True)
class TrainingSubject(Subject):
    """A network as it will be trained."""

    batch_size: Annotated[int, typer.Option(min=1, max=10**9, help="examples in a batch of the training")] = 128
    loss: Annotated[str, typer.Option(help=LOSSES)] = ""

    def prepare_training(self, model: str, steps: int, say: Callable[[str], None]) -> tuple[Prepared, Any]:
        """Network, data and a loss that networks are trained with: the one asked for, else what fits the targets."""
        if self.loss == "random-quadratic":
            raise HessdiagError("--loss random-quadratic: no network is trained with it; use cross-entropy or mse")
        size = self.batch_size if self.data else 2 * self.batch_size  # random examples are all alike: few are drawn
        drawn: dict[str, Any] = {"say": say, "batches": 2 * steps, "batch_size": size}
        if self.loss or self.data:
            return self.prepare(model, **drawn)[1], self.objective
        with suppress(HessdiagError):  # no telling which dimension the classes are
            _, prepared = self.prepare(model, loss="cross-entropy", **drawn)
            if (labels := prepared.batch.targets) is not None and bool(labels.any()):  # more than one class
                return prepared, "cross-entropy"
        return self.prepare(model, loss="mse", **drawn)[1], "mse"


@grouped
def lr(
    model: Model, subject: TrainingSubject, printing: Printing, optimizer: Optimizer = None, steps: Steps = 12,
    blocks: Blocks = None,
) -> None:  # fmt: skip
    """Estimate learning rates before training."""
    prepared, loss = subject.prepare_training(model, steps, printing.say)
    import hessdiag

    with redirect_stdout(sys.stderr):
        measured = hessdiag.learning_rates(
            prepared.module, list(prepared.batches()), loss=loss, mode=subject.mode,
            optimizers=optimizer or ["sgd", "momentum", "adam"], steps=steps, batch_size=subject.batch_size,
            blocks=blocks, seed=subject.seed, progress=printing.progress, **prepared.how,
        )  # fmt: skip
    printing.show(replace(measured, model=model, init=prepared.init, data=prepared.data))
