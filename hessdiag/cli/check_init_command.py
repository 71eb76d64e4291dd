"""`hessdiag check-init`: an initialisation against others on one network."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.gates import check_max_spread, gate_spread
from hessdiag.cli.progress_bar import progress_bar
from hessdiag.cli.saving import draw, save, show
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hessdiag.results.init_check import InitCheck

INITS = "a name such as fan-in or geometric-orthogonal, package.module:function or ./file.py:function"
Init = Annotated[str, typer.Argument(metavar="INIT", help=INITS)]
Model = Annotated[str, typer.Option(metavar="MODEL", help=options.MODELS)]
Against = Annotated[str, typer.Option(metavar="LIST", help="initialisations to compare with, separated by commas")]
SetupCount = Annotated[int, typer.Option("--setups", help="random networks under each initialisation")]
Widths = Annotated[
    str, typer.Option(metavar="LIST", help="also measure INIT at these factors of the width, as in 0.5,1,2,4")
]
Json = Annotated[str, typer.Option(metavar="FILE", help="also save everything; - prints it in place of the table")]
Html = Annotated[str, typer.Option(metavar="FILE", help="also save verdict, tables and figures as one web page")]
Plots = Annotated[str, typer.Option(metavar="DIR", help="also draw maps, spreads and widths, as png and svg")]
MaxSpread = Annotated[
    float | None,
    typer.Option(metavar="X", help="exit with 1 if σ² spreads over more than a factor X under INIT"),
]


def check_init(
    init: Init,
    model: Model,
    against: Against = "fan-in,fan-out,arithmetic,geometric",
    setups: SetupCount = 20,
    widths: Widths = "",
    arg: options.Arg = None,
    evaluate: options.Eval = False,
    input_size: options.InputSize = "",
    batch_size: options.BatchSize = 64,
    loss: options.Loss = "random-quadratic",
    class_dim: options.ClassDim = None,
    output: options.Output = "",
    method: options.Method = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    json: Json = "",
    html: Html = "",
    plots: Plots = "",
    relative: options.Relative = False,
    resume: options.Resume = "",
    max_spread: MaxSpread = None,
    quiet: options.Quiet = False,
) -> None:
    """Rank an initialisation by how equally curved it makes the layers of MODEL, and say what to change."""
    detail = options.choose_detail(quiet=quiet, verbose=False)
    for path in (json if json != "-" else "", html, resume):
        options.check_file(path)
    options.check_plots(plots, relative=relative)
    check_max_spread(max_spread)
    names = [name.strip() for name in against.split(",") if name.strip()]
    factors = parse_widths(widths)
    from hessdiag.diagnosis.check_init import check_init as measure
    from hessdiag.execution.ranks import launched

    where = options.resolve_device(device)
    steps = setups * (len({init, *names}) + len(factors))
    with (
        launched(where) as ranks,
        progress_bar(f"measuring {model}", steps) as step,
        redirect_stdout(sys.stderr),
    ):
        check = measure(
            init,
            model=model,
            against=names,
            setups=setups,
            widths=factors,
            evaluate=evaluate,
            arguments=options.parse_arguments(arg or []),
            input_size=options.parse_size(input_size) if input_size else None,
            batch_size=batch_size,
            output=options.parse_output(output),
            loss=loss,
            class_dim=class_dim,
            method=method,
            device=where,
            dtype=options.resolve_dtype(dtype),
            seed=seed,
            resume=resume or None,
            distributed=ranks.size > 1,
            progress=step,
        )
    if ranks.rank > 0:
        return
    save(check, json=json, html=html)
    if plots:
        draw(_figures(check, relative=relative), plots)
    show(check, json=json, detail=detail)
    gate_spread(check.spread["avg_sq_singular_value"], max_spread, of=f" under {init}")


def parse_widths(text: str) -> list[float]:
    """`"0.5,1,2"` as numbers.

    >>> parse_widths("0.5,1, 2")
    [0.5, 1.0, 2.0]
    """
    try:
        factors = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        factors = [0.0]
    if not all(0 < factor < float("inf") for factor in factors):
        raise HessdiagError(f"--widths {text!r}: write positive factors, as in 0.5,1,2,4")
    return factors


def _figures(check: InitCheck, *, relative: bool) -> dict[str, Figure]:
    from hessdiag import plots

    sweep = {} if check.widths is None else {"widths": plots.draw_widths(check.widths)}
    return {"init-check": plots.draw_init_check(check, relative=relative)} | sweep
