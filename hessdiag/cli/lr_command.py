"""`hessdiag lr`: learning rates before training."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.cli import options
from hessdiag.cli.progress_bar import progress_bar
from hessdiag.cli.saving import draw, save, show
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.loading.models import ModelSource
    from hessdiag.loading.prepare import Prepared

Loss = Annotated[str, typer.Option(help="cross-entropy or mse  [default: cross-entropy where there are classes]")]
BatchSize = Annotated[int, typer.Option(help="examples in a batch of the training")]
Optimizer = Annotated[
    list[str] | None,
    typer.Option("--optimizer", metavar="NAME", help="sgd, momentum or adam; repeatable  [default: all]"),
]
Steps = Annotated[int, typer.Option(help="virtual steps on a copy of the weights")]
Json = Annotated[str, typer.Option(metavar="FILE", help="also save the rates; - prints it in place of the table")]
Plots = Annotated[str, typer.Option(metavar="DIR", help="also draw the rates along the steps, as png and svg")]


def lr(
    model: options.Model,
    arg: options.Arg = None,
    evaluate: options.Eval = False,
    init: options.Init = "",
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    in_channels: options.InChannels = None,
    input_size: options.InputSize = "",
    data: options.Data = "",
    batch_size: BatchSize = 128,
    loss: Loss = "",
    class_dim: options.ClassDim = None,
    output: options.Output = "",
    optimizer: Optimizer = None,
    steps: Steps = 12,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    json: Json = "",
    plots: Plots = "",
    quiet: options.Quiet = False,
) -> None:
    """Estimate the learning rates that MODEL is best trained with, before training it."""
    detail = options.choose_detail(quiet=quiet, verbose=False)
    options.check_file(json if json != "-" else "")
    options.check_plots(plots)
    if loss == "random-quadratic":
        raise HessdiagError("--loss random-quadratic: no network is trained with it; use cross-entropy or mse")
    source = options.model_source(
        model, in_channels=in_channels, input_size=input_size, arg=arg, output=output, evaluate=evaluate
    )
    prepared, chosen = prepare_for_training(
        source,
        loss=loss,
        init=init,
        weights=weights,
        weights_key=weights_key,
        data=data,
        batches=2 * steps,
        batch_size=batch_size if data else 2 * batch_size,  # random examples are all alike: no more are drawn
        class_dim=class_dim,
        seed=seed,
        device=options.resolve_device(device),
        dtype=options.resolve_dtype(dtype),
    )
    import hessdiag

    with progress_bar(f"stepping {model}", steps) as step, redirect_stdout(sys.stderr):
        measured = hessdiag.learning_rates(
            prepared.module,
            list(prepared.batches()),
            loss=chosen,
            class_dim=prepared.class_dim,
            output=source.output,
            optimizers=optimizer or ["sgd", "momentum", "adam"],
            steps=steps,
            batch_size=batch_size,
            seed=seed,
            progress=step,
        )
    rates = replace(measured, model=model, init=prepared.init, data=prepared.data)
    save(rates, json=json)
    if plots:
        from hessdiag.plots import draw_learning_rates

        draw({"learning-rates": draw_learning_rates(rates)}, plots)
    show(rates, json=json, detail=detail)


def prepare_for_training(source: ModelSource, *, loss: str, data: str, **settings: Any) -> tuple[Prepared, str]:
    """Network, data and a loss that networks are trained with: the one asked for, else what fits the targets."""
    if loss:
        return options.prepare(source, loss=loss, data=data, **settings), loss
    if data:
        prepared = options.prepare(source, loss="cross-entropy", data=data, **settings)
        targets = prepared.batch.targets
        return prepared, "mse" if targets is not None and targets.is_floating_point() else "cross-entropy"
    with suppress(HessdiagError):  # no telling which dimension the classes are
        prepared = options.prepare(source, loss="cross-entropy", data=data, **settings)
        labels = prepared.batch.targets
        if labels is not None and bool(labels.any()):  # more than one class
            return prepared, "cross-entropy"
    return options.prepare(source, loss="mse", data=data, **settings), "mse"
