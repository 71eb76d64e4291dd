"""`hessdiag predict`, the scaling calculus offline; `check-init`, an initialisation against others on one network."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hessdiag.cli import options
from hessdiag.cli.options import Blocks, Html, Method, Model, Network, Plots, grouped
from hessdiag.cli.printing import Printing, gate_spread

if TYPE_CHECKING:
    from hessdiag.models.sources import ModelSource
    from hessdiag.models.sources import Network as BuiltNetwork

MAX_BUILT = 200_000_000  # parameters of a network that is built with numbers, to read their second moments
INITS = "fan-in, fan-out, arithmetic, geometric, each also -orthogonal  [default: as built]"

Init = Annotated[str, typer.Option(metavar="NAME", help=INITS)]
BatchSize = Annotated[int, typer.Option(min=1, max=10**9, help="examples of each trial")]
Loss = Annotated[str, typer.Option(help="random-quadratic, cross-entropy or mse")]
MOMENTS = "paper: its rules alone; kernel: also correlations and borders"
Moments = Annotated[Literal["paper", "kernel"], typer.Option(help=MOMENTS)]
Compare = Annotated[bool, typer.Option("--compare", help="measure random trials too, and show both")]
SETUPS = "random trials to compare with; --compare alone measures 20"
Trials = Annotated[int, typer.Option("--setups", min=0, help=SETUPS)]
TRIALS = 20
SCHEMES = "a name such as fan-in or geometric-orthogonal, package.module:function or ./file.py:function"
Checked = Annotated[str, typer.Argument(metavar="INIT", help=SCHEMES)]
CheckedOn = Annotated[str, typer.Option("--model", metavar="MODEL", help=options.MODELS)]
Against = Annotated[str, typer.Option(metavar="LIST", help="initialisations to compare with, separated by commas")]
Networks = Annotated[int, typer.Option("--setups", help="random networks under each initialisation")]


@grouped
def predict(
    model: Model, network: Network, printing: Printing, init: Init = "", batch_size: BatchSize = 64,
    loss: Loss = "random-quadratic", moments: Moments = "kernel", compare: Compare = False, setups: Trials = 0,
    blocks: Blocks = None,
) -> None:  # fmt: skip
    """Predict the scaling of MODEL from its architecture alone."""
    setups = setups or TRIALS * compare
    source = network.source(model)
    from hessdiag.calculus import predict as predict_model
    from hessdiag.loading.prepare import random_inputs
    from hessdiag.network.preserve import set_mode

    with redirect_stdout(sys.stderr):
        built = _build(source, init=init, seed=network.seed)
    set_mode(built.module, network.mode)
    inputs: Any = built.input_size or random_inputs(built, source, batch_size=2, seed=network.seed).inputs
    prediction = predict_model(built.module, inputs, init=init or None, loss=loss, moments=moments, blocks=blocks)
    result: Any = replace(prediction, model=model, init=init or "as built")
    if setups:
        trials: dict[str, Any] = {"init": init or "as built", "setups": setups, "batch_size": batch_size, "loss": loss}
        trials |= {"seed": network.seed, "device": network.torch_device, "dtype": network.dtype}
        trials |= {"mode": network.mode, "blocks": blocks}
        result = _compare(result, source, trials, printing.progress)
    if result is not None:
        printing.show(result)


def _build(source: ModelSource, *, init: str, seed: int) -> BuiltNetwork:
    """On the meta device where numbers are not needed or too many, else with the weights that the seed gives."""
    import torch

    from hessdiag.loading.initialisation import AS_BUILT
    from hessdiag.loading.prepare import random_network

    with suppress(Exception):  # constructors that look at their numbers; what else fails, fails again below
        with torch.device("meta"):
            built = source.build()
        if init or sum(p.numel() for p in built.module.parameters()) > MAX_BUILT:
            return built
    return random_network(source, init=AS_BUILT, seed=seed)


def _compare(prediction: Any, source: ModelSource, trials: dict[str, Any], progress: bool | None) -> Any:
    """Put a prediction beside what random trials measure; None in all processes but the first."""
    from hessdiag.diagnosis.random_setups import RandomTrials
    from hessdiag.parallel.processes import launched
    from hessdiag.parallel.progress import showing
    from hessdiag.results.prediction import PredictedVsMeasured

    planned = RandomTrials.of(source, **trials)
    shown = showing(progress, title=f"measuring {source.name}", total=planned.setups)
    with launched(planned.device) as processes, shown, redirect_stdout(sys.stderr):
        reports = planned.reports(processes=processes)
        return PredictedVsMeasured.of(prediction, reports) if processes.rank == 0 else None


@grouped
def check_init(
    init: Checked, model: CheckedOn, measured: options.Measured, printing: Printing,
    against: Against = "fan-in,fan-out,arithmetic,geometric", setups: Networks = 20, method: Method = "auto",
    data: Annotated[str, typer.Option(metavar="MOD:FN", help=options.DATA)] = "",
    html: Html = "", plots: Plots = "", resume: options.Resume = "", max_spread: options.MaxSpread = None,
) -> None:  # fmt: skip
    """Rank an initialisation among others on one network."""
    others = [name.strip() for name in against.split(",") if name.strip()]
    output, class_dim = options.parse_output(measured.output)
    import hessdiag
    from hessdiag.parallel.processes import launched

    chosen = {"loss": measured.objective} if measured.objective else {}
    with launched(measured.torch_device) as processes, redirect_stdout(sys.stderr):
        check = hessdiag.check_init(
            init, model=model, against=others, setups=setups, mode=measured.mode, method=method, seed=measured.seed,
            arguments=measured.arguments, input_size=measured.shape, batch_size=measured.batch_size, output=output,
            class_dim=class_dim, device=measured.torch_device, data=data or None,
            dtype=measured.dtype, resume=resume or None, distributed=processes.size > 1, progress=printing.progress,
            **chosen,
        )  # fmt: skip
    if processes.rank > 0:
        return
    printing.draw(lambda: {"init-check": hessdiag.plots.draw_init_check(check)}, plots)
    printing.show(check, html=html)
    gate_spread(check.spread["avg_sq_singular_value"], max_spread, of=f" under {init}")
