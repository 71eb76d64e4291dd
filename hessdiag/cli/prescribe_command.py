"""`hessdiag prescribe`: what to change before training."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.progress_bar import progress_bar
from hessdiag.cli.saving import save, show

Optimizer = Annotated[str, typer.Option(metavar="sgd|adam", help="which one will train it")]
Balance = Annotated[
    str,
    typer.Option(
        metavar="sigma|gamma|rate", help="what to make equal: measured σ², the theory's γ, or the best learning rates"
    ),
]
Target = Annotated[float, typer.Option(metavar="X", help="spread, largest over smallest, at which it is done")]
Rounds = Annotated[int, typer.Option(help="corrections at most, each measured")]
Json = Annotated[str, typer.Option(metavar="FILE", help="also save the page; - prints it in place of the text")]


def prescribe(
    model: options.Model,
    optimizer: Optimizer = "sgd",
    balance: Balance = "sigma",
    target: Target = 1.5,
    rounds: Rounds = 3,
    arg: options.Arg = None,
    evaluate: options.Eval = False,
    init: options.Init = "",
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    in_channels: options.InChannels = None,
    input_size: options.InputSize = "",
    data: options.Data = "",
    batches: options.Batches = "1",
    batch_size: options.BatchSize = 64,
    loss: options.Loss = "random-quadratic",
    class_dim: options.ClassDim = None,
    output: options.Output = "",
    method: options.Method = "auto",
    rtol: options.Rtol = 0.05,
    max_products: options.MaxProducts = 400,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    json: Json = "",
    quiet: options.Quiet = False,
) -> None:
    """Say what to change in MODEL before training, each change with the measured number before and after it."""
    detail = options.choose_detail(quiet=quiet, verbose=False)
    options.check_file(json if json != "-" else "")
    source = options.model_source(
        model, in_channels=in_channels, input_size=input_size, arg=arg, output=output, evaluate=evaluate
    )
    prepared = options.prepare(
        source,
        init=init,
        weights=weights,
        weights_key=weights_key,
        data=data,
        batches=options.parse_batches(batches, data=data),
        batch_size=batch_size,
        loss=loss,
        class_dim=class_dim,
        seed=seed,
        device=options.resolve_device(device),
        dtype=options.resolve_dtype(dtype),
    )
    from hessdiag.diagnosis.prescribe import prescribe as find

    with progress_bar(f"measuring {model}", None) as step, redirect_stdout(sys.stderr):
        recipe = find(
            prepared.module,
            prepared.batches(),
            loss=loss,
            optimizer=optimizer,
            balance=balance,
            target=target,
            rounds=rounds,
            seed=seed,
            class_dim=prepared.class_dim,
            output=source.output,
            method=method,
            rtol=rtol,
            max_products=max_products,
            progress=step,
        )
    recipe = replace(recipe, model=source.name, init=prepared.init, data=prepared.data)
    save(recipe, json=json)
    show(recipe, json=json, detail=detail)
