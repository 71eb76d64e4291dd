"""`hessdiag check-init`: an initialisation against others on one network."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.cli.options import (
    MODELS,
    Html,
    MaxSpread,
    Measured,
    Method,
    Plots,
    Resume,
    check_files,
    check_folder,
    check_max_spread,
    grouped,
    parse_arguments,
    parse_output,
)
from hessdiag.cli.printing import Printing, gate_spread
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hessdiag.results.init_check import InitCheck

INITS = "a name such as fan-in or geometric-orthogonal, package.module:function or ./file.py:function"
Init = Annotated[str, typer.Argument(metavar="INIT", help=INITS)]
Model = Annotated[str, typer.Option(metavar="MODEL", help=MODELS)]
Against = Annotated[str, typer.Option(metavar="LIST", help="initialisations to compare with, separated by commas")]
Trials = Annotated[int, typer.Option("--setups", help="random networks under each initialisation")]
WIDTHS = "also measure INIT at these factors of the width, as in 0.5,1,2,4"
Widths = Annotated[str, typer.Option(metavar="LIST", help=WIDTHS)]


@grouped
def check_init(
    init: Init,
    model: Model,
    measured: Measured,
    printing: Printing,
    against: Against = "fan-in,fan-out,arithmetic,geometric",
    setups: Trials = 20,
    widths: Widths = "",
    method: Method = "auto",
    html: Html = "",
    plots: Plots = "",
    resume: Resume = "",
    max_spread: MaxSpread = None,
) -> None:
    """Rank an initialisation by how equally curved it makes the layers of MODEL, and say what to change."""
    check_files(html, resume)
    check_folder(plots)
    check_max_spread(max_spread)
    factors = parse_widths(widths)
    from hessdiag.diagnosis.check_init import check_init as measure
    from hessdiag.parallel.processes import launched

    with launched(measured.torch_device) as processes, redirect_stdout(sys.stderr):
        check = measure(
            init,
            model=model,
            against=[name.strip() for name in against.split(",") if name.strip()],
            setups=setups,
            widths=factors,
            evaluate=measured.evaluate,
            arguments=parse_arguments(measured.arg or []),
            input_size=measured.shape,
            batch_size=measured.batch_size,
            output=parse_output(measured.output),
            loss=measured.loss,
            class_dim=measured.class_dim,
            method=method,
            device=measured.torch_device,
            dtype=measured.torch_dtype,
            seed=measured.seed,
            resume=resume or None,
            distributed=processes.size > 1,
            progress=printing.progress,
        )
    if processes.rank > 0:
        return
    printing.draw(lambda: _figures(check), plots)
    printing.show(check, html=html)
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


def _figures(check: InitCheck) -> dict[str, Figure]:
    from hessdiag import plots

    sweep = {} if check.widths is None else {"widths": plots.draw_widths(check.widths)}
    return {"init-check": plots.draw_init_check(check)} | sweep
