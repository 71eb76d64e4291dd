"""`hessdiag compare`: what changed between two reports, or between two models on the same inputs."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.cli import options
from hessdiag.cli.gates import FailOn, check_fail_on, gate
from hessdiag.cli.progress_bar import progress_bar
from hessdiag.cli.saving import save, show
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.loading.prepare import Prepared
    from hessdiag.results.comparison import Comparison

Before = Annotated[str, typer.Argument(metavar="BEFORE", help="JSON file of a report, or a MODEL as in diagnose")]
After = Annotated[str, typer.Argument(metavar="AFTER", help="another one of the same kind")]
Json = Annotated[str, typer.Option(metavar="FILE", help="also save the comparison; - prints it in place of the table")]
OF_REPORTS = ("before", "after", "json", "fail_on")  # what makes sense with reports too


def compare(
    context: typer.Context,
    before: Before,
    after: After,
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
    fail_on: FailOn = "",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Name the blocks that changed between two reports, or between two models on the same inputs."""
    detail = options.choose_detail(quiet=quiet, verbose=verbose)
    options.check_file(json if json != "-" else "")
    check_fail_on(fail_on)
    reports = [is_report(side) for side in (before, after)]
    if any(reports) and not all(reports):
        raise HessdiagError(
            f"{before} and {after} are a report and a model: pass two of a kind; hessdiag diagnose MODEL --json FILE"
            " writes a report"
        )
    if all(reports):
        refuse_options(context)
        from hessdiag.results.comparison import compare_reports
        from hessdiag.results.report import Report

        comparison = compare_reports(Report.from_json(before), Report.from_json(after))
    else:
        given = {"in_channels": in_channels, "input_size": input_size, "arg": arg, "output": output}
        where = options.resolve_device(device)
        preparation = {
            "init": init,
            "weights": weights,
            "weights_key": weights_key,
            "data": data,
            "batches": options.parse_batches(batches, data=data),
            "batch_size": batch_size,
            "loss": loss,
            "class_dim": class_dim,
            "seed": seed,
            "device": where,
            "dtype": options.resolve_dtype(dtype),
        }
        measurement = {
            "loss": loss,
            "matrix": matrix,
            "per": per,
            "method": method,
            "rtol": rtol,
            "seed": seed,
            "max_products": max_products,
            "max_memory": options.parse_memory(max_memory),
        }
        comparison = compare_models(before, after, given | {"evaluate": evaluate}, preparation, measurement)
    save(comparison, json=json)
    show(comparison, json=json, detail=detail)
    gate((*comparison.new, *comparison.findings), fail_on)


def is_report(side: str) -> bool:
    """Whether an argument names a report, not a model.

    >>> is_report("runs/before.json"), is_report("hf:config.json"), is_report("lenet")
    (True, False, False)
    """
    return side.endswith(".json") and not side.startswith("hf:")


def refuse_options(context: typer.Context) -> None:
    """Refuse options that say how to measure, where the reports hold what was measured."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in OF_REPORTS and source is not None and source.name == "COMMANDLINE":
            option = {"evaluate": "eval"}.get(name, name).replace("_", "-")
            raise HessdiagError(f"--{option} says how to measure, but reports are measured: leave it out")


def compare_models(
    before: str, after: str, given: dict[str, Any], preparation: dict[str, Any], measurement: dict[str, Any]
) -> Comparison:
    """Measure two models on the inputs that the first one is given."""
    from hessdiag.diagnosis.diagnose import diagnose_prepared
    from hessdiag.results.comparison import compare_reports

    sources = [options.model_source(name, **given) for name in (before, after)]
    prepared = [options.prepare(source, **preparation) for source in sources]
    shared = on_the_same_inputs(prepared)
    reports = []
    for name, source, ready in zip((before, after), sources, shared, strict=True):
        with progress_bar(f"measuring {name}", None) as step, redirect_stdout(sys.stderr):
            reports.append(diagnose_prepared(ready, source, progress=step, **measurement))
    return compare_reports(*reports)


def on_the_same_inputs(prepared: list[Prepared]) -> list[Prepared]:
    """Give all of them the batches of the first: a function of random data returns others when it is called again."""
    from dataclasses import replace

    batch, more = prepared[0].batch, list(prepared[0].more)
    return [replace(ready, batch=batch, more=iter(more), data=prepared[0].data) for ready in prepared]
