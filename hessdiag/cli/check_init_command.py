"""`hessdiag check-init`: an initialisation against others on one network."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.progress_bar import progress_bar, say
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
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
    resume: options.Resume = "",
    max_spread: MaxSpread = None,
) -> None:
    """Rank an initialisation by how equally curved it makes the layers of MODEL, and say what to change."""
    for path in (json if json != "-" else "", html, resume):
        options.check_file(path)
    options.check_plots(plots)
    if max_spread is not None and not max_spread >= 1:
        raise HessdiagError(f"--max-spread {max_spread:g}: pass a number of at least 1, such as 10")
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
    _save(check, json=json, html=html, plots=plots)
    print(check.to_json() if json == "-" else repr(check), end="" if json == "-" else "\n")
    found = check.spread["avg_sq_singular_value"]
    if max_spread is not None and not found <= max_spread:
        say(f"hessdiag: spread of σ² under {init} is {found:.3g}, over --max-spread {max_spread:g}")
        raise typer.Exit(1)


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


def _save(check: InitCheck, *, json: str, html: str, plots: str) -> None:
    """Before anything is printed, so that a failure leaves nothing on stdout."""
    if json not in ("", "-"):
        check.to_json(json)
        say(f"wrote {json}")
    if html:
        check.to_html(html)
        say(f"wrote {html}")
    if plots:
        _draw(check, Path(plots))


def _draw(check: InitCheck, folder: Path) -> None:
    from hessdiag import plots

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HessdiagError(f"cannot make the folder {str(folder)!r} ({error.strerror})") from error
    figures = {"init-check": plots.draw_init_check(check)}
    if check.widths is not None:
        figures["widths"] = plots.draw_widths(check.widths)
    for name, figure in figures.items():
        for path in plots.save(figure, folder / name):
            say(f"drew {path}")
