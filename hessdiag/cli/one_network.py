"""Commands that look at one network: `hessdiag describe`, `sharpness`, `prescribe` and `lr`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hessdiag.cli.options import Blocks, Matrix, Method, Model, Per, Plots, Rtol, Subject, grouped
from hessdiag.cli.printing import Printing
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.loading.prepare import Prepared

SPLIT = "take packed parameters apart, where that is certain; auto: queries, keys and values"
Split = Annotated[Literal["auto", "none", "qkv", "heads", "experts"], typer.Option(help=SPLIT)]
Density = Annotated[bool, typer.Option("--density", help="also measure how the eigenvalues are distributed")]
Optimizer = Annotated[list[str] | None, typer.Option(metavar="NAME", help="sgd, momentum or adam  [default: all]")]
LOSSES = "cross-entropy, mse, model or ./file.py:function  [default: cross-entropy where it fits]"
Steps = Annotated[int, typer.Option(min=1, help="virtual steps on a copy of the weights, and more where a rate rises")]


@grouped
def sharpness(
    model: Model, subject: Subject, printing: Printing, matrix: Matrix = "ggn", blocks: Blocks = None,
    split: Split = "auto", density: Density = False, plots: Plots = "",
) -> None:  # fmt: skip
    """Measure traces and extreme eigenvalues, whole and by layer."""
    source, prepared = subject.prepare(model, say=printing.say)
    import hessdiag

    with redirect_stdout(sys.stderr):
        measured = hessdiag.sharpness(
            prepared.module, prepared.batches(), loss=subject.objective, matrix=matrix, mode=subject.mode,
            blocks=blocks, split=None if split == "none" else split, density=density or bool(plots),
            seed=subject.seed, progress=printing.progress, **prepared.how,
        )  # fmt: skip
    found = replace(measured, name=source.name, init=prepared.init, data=prepared.data)
    printing.draw(lambda: {"density": hessdiag.plots.draw_density(found)}, plots)
    printing.show(found)


@grouped
def prescribe(model: Model, subject: Subject, printing: Printing, method: Method = "auto", rtol: Rtol = None) -> None:
    """Find scales that make all layers equally curved."""
    source, prepared = subject.prepare(model, say=printing.say)
    from hessdiag.diagnosis.prescribe import prescribe as find

    with redirect_stdout(sys.stderr):
        found = find(
            prepared.module, prepared.batches(), loss=subject.objective, mode=subject.mode, seed=subject.seed,
            method=method, rtol=rtol, progress=printing.progress, **prepared.how,
        )  # fmt: skip
    printing.show(replace(found, model=source.name, init=prepared.init, data=prepared.data))


@grouped
def describe(
    model: Model, subject: Subject, printing: Printing, matrix: Matrix = "ggn", per: Per = "example",
    method: Method = "auto",
) -> None:  # fmt: skip
    """List the layers of MODEL, and the cost of measuring them."""
    source, prepared = subject.prepare(model, say=printing.say)
    import hessdiag

    how: dict[str, Any] = {"loss": subject.objective, "matrix": matrix, "per": per, "mode": subject.mode}
    printing.show(hessdiag.describe(prepared.module, prepared.batch.inputs, output=source.output, method=method, **how))


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
