"""`hessdiag diagnose`: measure one network on one batch."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.gates import FailOn, check_fail_on, check_max_spread, gate, gate_spread
from hessdiag.cli.progress_bar import complain, progress_bar, say
from hessdiag.cli.saving import draw, save, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hessdiag.results.report import Report

Json = Annotated[str, typer.Option(metavar="FILE", help="also save the report; - prints it in place of the table")]
Csv = Annotated[str, typer.Option(metavar="FILE", help="also save the table as CSV")]
Html = Annotated[str, typer.Option(metavar="FILE", help="also save verdict, table and figures as one web page")]
Plots = Annotated[str, typer.Option(metavar="DIR", help="also draw heatmap and layers, as png and svg")]
MaxSpread = Annotated[
    float | None,
    typer.Option(metavar="X", help="exit with 1 if the largest σ² of a weight is more than X times the least"),
]


def diagnose(
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
    matrix: options.Matrix = "ggn",
    per: options.Per = "example",
    method: options.Method = "auto",
    rtol: options.Rtol = 0.05,
    max_products: options.MaxProducts = 400,
    max_memory: options.MaxMemory = "",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    json: Json = "",
    csv: Csv = "",
    html: Html = "",
    plots: Plots = "",
    relative: options.Relative = False,
    max_spread: MaxSpread = None,
    fail_on: FailOn = "",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure γ, ν and σ² of every layer of MODEL on random or given inputs, and print the table."""
    detail = options.choose_detail(quiet=quiet, verbose=verbose)
    for path in (json if json != "-" else "", csv, html):
        options.check_file(path)
    options.check_plots(plots, relative=relative)
    check_max_spread(max_spread)
    check_fail_on(fail_on)
    memory = options.parse_memory(max_memory)
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
        device=(where := options.resolve_device(device)),
        dtype=options.resolve_dtype(dtype),
    )
    from hessdiag.diagnosis.diagnose import diagnose_prepared
    from hessdiag.execution.ranks import launched

    with (
        launched(where) as ranks,
        progress_bar(f"measuring {model}", None) as step,
        redirect_stdout(sys.stderr),
    ):
        report = diagnose_prepared(
            prepared,
            source,
            loss=loss,
            matrix=matrix,
            per=per,
            method=method,
            rtol=rtol,
            seed=seed,
            max_products=max_products,
            max_memory=memory,
            distributed=ranks.size > 1,
            progress=step,
        )
    if ranks.rank > 0:
        return
    save(report, json=json, csv=csv, html=html)
    if plots:
        draw(_figures(report, relative=relative), plots)
    show(report, json=json, detail=detail)
    if data and loss == "random-quadratic" and prepared.batch.targets is not None:
        say("the targets of --data were not used: pass --loss cross-entropy or --loss mse to measure with them")
    if max_memory or verbose or sys.stderr.isatty():
        say(f"memory: {report.peak_memory / 2**20:.0f} MiB more than before at the peak")
    _gate(report, max_spread=max_spread, fail_on=fail_on)


def _gate(report: Report, *, max_spread: float | None, fail_on: str) -> None:
    """Exit with 1 where `--max-spread` or `--fail-on` asks for it."""
    gate_spread(report.spread["avg_sq_singular_value"], max_spread)
    if fail_on and report.signals is None:
        complain(f"hessdiag: {report.verdict.sentence.rstrip('.')}, for --fail-on {fail_on}")
        raise typer.Exit(1)
    gate(report.findings, fail_on)


def _figures(report: Report, *, relative: bool) -> dict[str, Figure]:
    from hessdiag import plots

    maps = {"heatmap": plots.draw_heatmap(report, relative=relative)} if report.weights else {}
    return maps | {"layers": plots.draw_layers(report)}
