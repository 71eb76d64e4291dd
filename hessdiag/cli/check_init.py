"""`hessdiag check-init`: an initialisation against others on one network."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from hessdiag.cli.options import DATA, MODELS, Html, MaxSpread, Measured, Method, Plots, Resume, grouped, parse_output
from hessdiag.cli.printing import Printing, gate_spread

INITS = "a name such as fan-in or geometric-orthogonal, package.module:function or ./file.py:function"
Init = Annotated[str, typer.Argument(metavar="INIT", help=INITS)]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help=MODELS)]
Against = Annotated[str, typer.Option(metavar="LIST", help="initialisations to compare with, separated by commas")]
Trials = Annotated[int, typer.Option("--setups", help="random networks under each initialisation")]


@grouped
def check_init(
    init: Init, model: Model, measured: Measured, printing: Printing,
    against: Against = "fan-in,fan-out,arithmetic,geometric", setups: Trials = 20, method: Method = "auto",
    data: Annotated[str, typer.Option(metavar="MOD:FN", help=DATA)] = "",
    html: Html = "", plots: Plots = "", resume: Resume = "", max_spread: MaxSpread = None,
) -> None:  # fmt: skip
    """Rank an initialisation among others on one network."""
    others = [name.strip() for name in against.split(",") if name.strip()]
    output, class_dim = parse_output(measured.output)
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
