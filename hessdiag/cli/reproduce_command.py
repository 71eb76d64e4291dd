"""`hessdiag reproduce`: the paper's figures, measured anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.processes import in_processes, is_launched, usable_cores
from hessdiag.cli.progress_bar import progress_bar, say
from hessdiag.experiments.figure_catalogue import (
    CATALOGUE,
    Entry,
    check_options,
    find_entry,
    find_figure,
    titled_entries,
)
from hessdiag.results.files import make_folder


def _line(title: str, entry: Entry) -> str:
    name, _, part = title.partition(" ")
    return f"  {f'  {part}' if part else name:17} {entry.cost:15} {entry.shows}"


# \b keeps the lines of the list apart in the help.
HELP = "Measure and draw a figure of the paper; numbers and figure go to --out.\n\n"
HELP += "\b\nFigures, and their cost on 2 cores:\n"
HELP += "\n".join(_line(title, entry) for title, entry in titled_entries())

Name = Annotated[str, typer.Argument(metavar="FIGURE", help=", ".join(CATALOGUE))]
Out = Annotated[Path, typer.Option(metavar="DIR", help="folder for the numbers (JSON) and figures (png, svg)")]
Part = Annotated[
    str, typer.Option(metavar="PART", help="of resnet: conditioning, cifar or training  [default: conditioning]")
]
Quick = Annotated[bool, typer.Option("--quick", help="few set-ups and small batches: a look, not the figure")]

DataDir = Annotated[
    str, typer.Option(metavar="DIR", help="folder of the data; downloaded if not given, but for ImageNet")
]
DATASETS = "of libsvm: names, as in iris,mnist:20000 for 20,000 of its rows, or all  [default: the smaller ones]"
Datasets = Annotated[str, typer.Option(metavar="LIST", help=DATASETS)]
Schemes = Annotated[str, typer.Option(metavar="LIST", help="of libsvm: initialisations  [default: all eight]")]
Optimizer = Annotated[str | None, typer.Option(help="of libsvm: sgd, momentum or adam  [default: momentum]")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="examples of a step  [default: 32, 128 or 256]")]
Epochs = Annotated[int | None, typer.Option(min=1, help="passes over the data  [default: 5, 50 or 90]")]
Seeds = Annotated[int | None, typer.Option(min=1, help="networks of each kind  [default: 40 of alexnet, 5 of resnet]")]
MIXED = "of alexnet and resnet: compute in bfloat16 where that is safe"
Mixed = Annotated[bool, typer.Option("--mixed-precision", help=MIXED)]
NETWORKS = "of its training: preconditioned, rescalenet, batch-norm, preconditioned-sigma  [default: the first three]"
Networks = Annotated[str, typer.Option(metavar="LIST", help=NETWORKS)]
Workers = Annotated[
    int | None, typer.Option(min=0, help="of its training: processes that read images  [default: the cores]")
]
Budget = Annotated[float | None, typer.Option(metavar="MIN", help="of libsvm: begin no data set after so many minutes")]
PROCESSES = "processes that share the set-ups  [default: the cores for ratios, else 1]"
Processes = Annotated[int | None, typer.Option(min=1, help=PROCESSES)]


def reproduce(
    context: typer.Context,
    name: Name,
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    resume: options.Resume = "",
    part: Part = "",
    data_dir: DataDir = "",
    datasets: Datasets = "",
    schemes: Schemes = "",
    optimizer: Optimizer = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    budget: Budget = None,
    seeds: Seeds = None,
    mixed_precision: Mixed = False,
    networks: Networks = "",
    workers: Workers = None,
    processes: Processes = None,
) -> None:
    """Measure, save and draw one figure; an unusable folder is refused before the measuring."""
    entry = find_entry(name, part=part)
    asked: dict[str, object] = {"data_dir": data_dir, "datasets": datasets, "schemes": schemes, "optimizer": optimizer}
    asked |= {"batch_size": batch_size, "epochs": epochs, "budget": budget, "seeds": seeds}
    asked |= {"mixed_precision": mixed_precision or None, "networks": networks, "workers": workers}
    own = {option: value for option, value in asked.items() if value not in (None, "")}
    check_options(name, own, part=part)
    own |= {"out": out} if "out" in entry.options else {}
    options.check_file(resume)
    if processes is None:
        processes = usable_cores() if entry.small and not quick and _on_cpu(device) else 1
    with in_processes(1 if is_launched() else processes, context.obj):
        from hessdiag.execution.journal import journal
        from hessdiag.execution.ranks import launched
        from hessdiag.execution.work import Work

        figure, where = find_figure(name, part=part), options.resolve_device(device)
        settings = {"figure": figure.name, "quick": str(quick), "seed": str(seed), "device": where}
        with (
            launched(where) as ranks,
            journal(resume, settings) as kept,
            progress_bar("set-ups", figure.steps(quick=quick, **own)) as step,
        ):
            make_folder(out, f"--out {str(out)!r}: cannot make that folder")
            measured = figure.measure(quick=quick, seed=seed, device=where, work=Work(ranks, kept, step), **own)
        if ranks.rank > 0:
            return
        for path in figure.save(measured, out):
            say(f"wrote {path}")
        for line in figure.summary(measured):
            print(line)


def _on_cpu(device: str) -> bool:
    """Whether the figure will be measured on the processor, as far as can be told without torch."""
    return device == "cpu" or (device == "auto" and not Path("/dev/nvidiactl").exists())
