"""`hessdiag predict`: the scaling calculus offline."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.cli import options
from hessdiag.cli.progress_bar import progress_bar
from hessdiag.cli.saving import save, show
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.diagnosis.random_setups import RandomSetups
    from hessdiag.loading.models import ModelSource, Network

MAX_BUILT = 200_000_000  # parameters of a network that is built with numbers, to read their second moments

Init = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="fan-in, fan-out, arithmetic, geometric, each also -orthogonal  [default: as built]"
    ),
]
Moments = Annotated[str, typer.Option(help="paper: its rules alone; kernel: also correlations, borders and medians")]
Compare = Annotated[bool, typer.Option("--compare", help="measure random set-ups too, and show both")]
Setups = Annotated[int, typer.Option(min=1, help="random set-ups that --compare measures")]
Json = Annotated[str, typer.Option(metavar="FILE", help="also save the prediction; - prints it in place of the table")]


def predict(
    model: options.Model,
    arg: options.Arg = None,
    evaluate: options.Eval = False,
    init: Init = "",
    in_channels: options.InChannels = None,
    input_size: options.InputSize = "",
    batch_size: options.BatchSize = 64,
    loss: options.Loss = "random-quadratic",
    moments: Moments = "kernel",
    compare: Compare = False,
    setups: Setups = 20,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    json: Json = "",
    resume: options.Resume = "",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Predict ς, γ and ν of every layer of MODEL from shapes and E[W²] alone: no data, no weights, no training."""
    detail = options.choose_detail(quiet=quiet, verbose=verbose)
    if json not in ("", "-") and not Path(json).parent.is_dir():
        raise HessdiagError(f"cannot write {json!r}: there is no folder {str(Path(json).parent)!r}")
    if resume and not compare:
        raise HessdiagError("--resume keeps the set-ups of --compare: pass that too")
    options.check_file(resume)
    source = options.model_source(model, in_channels=in_channels, input_size=input_size, arg=arg, evaluate=evaluate)
    from dataclasses import replace

    from hessdiag.calculus import predict as predict_model
    from hessdiag.execution.seeds import stream

    with redirect_stdout(sys.stderr):
        network = _build(source, init=init, seed=seed)
    if network.inputs is None:
        raise HessdiagError(f"model {model!r} does not say what it reads: pass --input-size 3,32,32")
    inputs: Any = network.input_size or network.inputs(2, stream(seed, "inputs"))
    asked: dict[str, Any] = {"init": init or None, "loss": loss, "moments": moments, "batch_size": batch_size}
    with progress_bar(f"predicting {model}", None) as step:
        result: Any = predict_model(network.module, inputs, **asked, progress=step)
    result = replace(result, model=model, init=init or "as built")
    if compare:
        from hessdiag.diagnosis.random_setups import CURVATURE_ALONE, RandomSetups

        planned = RandomSetups(
            source=source,
            init=init or "as built",
            setups=setups,
            batch_size=batch_size,
            seed=seed,
            loss=loss,
            device=options.resolve_device(device),
            dtype=options.resolve_dtype(dtype),
            options=dict(CURVATURE_ALONE),
        )
        result = _compare(result, planned, resume=resume)
        if result is None:
            return
    save(result, json=json)
    show(result, json=json, detail=detail)


def _build(source: ModelSource, *, init: str, seed: int) -> Network:
    """On the meta device where numbers are not needed or too many, else with the weights that the seed gives."""
    import torch

    from hessdiag.calculus.weight_moments import check_scheme
    from hessdiag.loading.initialisation import AS_BUILT
    from hessdiag.loading.prepare import random_network

    if init:
        check_scheme(init)
    network = None
    try:
        with torch.device("meta"):
            network = source.build()
    except Exception:  # a constructor that looks at its numbers; if it is wrong for another reason, this says so
        return random_network(source, init=AS_BUILT, seed=seed)
    if init or sum(p.numel() for p in network.module.parameters()) > MAX_BUILT:
        return network
    return random_network(source, init=AS_BUILT, seed=seed)


def _compare(prediction: Any, planned: RandomSetups, *, resume: str) -> Any:
    """Put a prediction beside what random set-ups measure; None in all processes but the first."""
    from hessdiag.execution.journal import journal
    from hessdiag.execution.ranks import launched
    from hessdiag.execution.work import Work
    from hessdiag.results.prediction import PredictedVsMeasured

    with (
        launched(planned.device) as ranks,
        journal(resume, {"compare": planned.source.name, "seed": str(planned.seed)}) as kept,
        progress_bar("set-ups", planned.setups) as step,
        redirect_stdout(sys.stderr),
    ):
        reports = planned.reports(Work(ranks, kept, step))
        return PredictedVsMeasured.of(prediction, reports) if ranks.rank == 0 else None
