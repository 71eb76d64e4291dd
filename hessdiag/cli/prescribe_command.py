"""`hessdiag prescribe`: what to change before training."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.colour import print_coloured
from hessdiag.cli.progress_bar import progress_bar
from hessdiag.cli.saving import save

Json = Annotated[str, typer.Option(metavar="FILE", help="also save the page; - prints it in place of the text")]


def prescribe(
    model: options.Model,
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
    """Find the scales that make all weights of MODEL equally curved, each with its σ² before and after."""
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
        found = find(
            prepared.module,
            prepared.batches(),
            loss=loss,
            seed=seed,
            class_dim=prepared.class_dim,
            output=source.output,
            method=method,
            rtol=rtol,
            max_products=max_products,
            progress=step,
        )
    found = replace(found, model=source.name, init=prepared.init, data=prepared.data)
    save(found, json=json)
    print_coloured((found.to_json() if json == "-" else found.code if quiet else repr(found)).rstrip("\n"))
