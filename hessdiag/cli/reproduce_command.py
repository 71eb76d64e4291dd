"""`hessdiag reproduce`: the paper's figures, measured anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessdiag.cli import options
from hessdiag.cli.progress_bar import progress_bar, say
from hessdiag.errors import HessdiagError
from hessdiag.experiments.figure_catalogue import CATALOGUE, find_figure

# \b keeps the lines of the list apart in the help.
HELP = "Measure and draw a figure of the paper; numbers and figure go to --out.\n\n"
HELP += "\b\nFigures, and their cost on 2 cores:\n"
HELP += "\n".join(f"  {name:9} {entry.cost:15} {entry.shows}" for name, entry in CATALOGUE.items())

Name = Annotated[str, typer.Argument(metavar="FIGURE", help=", ".join(CATALOGUE))]
Out = Annotated[Path, typer.Option(metavar="DIR", help="folder for the numbers (JSON) and figures (png, svg)")]
Part = Annotated[str, typer.Option(metavar="PART", hidden=True)]  # of resnet, which has one
Quick = Annotated[bool, typer.Option("--quick", help="few set-ups and small batches: a look, not the figure")]


def reproduce(
    name: Name,
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    resume: options.Resume = "",
    part: Part = "",
) -> None:
    """Measure, save and draw one figure; an unusable folder is refused before the measuring."""
    figure = find_figure(name, part=part)
    options.check_file(resume)
    from hessdiag.execution.journal import journal
    from hessdiag.execution.ranks import launched
    from hessdiag.execution.work import Work

    where = options.resolve_device(device)
    settings = {"figure": name, "quick": str(quick), "seed": str(seed), "device": where}
    with (
        launched(where) as ranks,
        journal(resume, settings) as kept,
        progress_bar("set-ups", figure.steps(quick=quick)) as step,
    ):
        _make(out)
        measured = figure.measure(quick=quick, seed=seed, device=where, work=Work(ranks, kept, step))
    if ranks.rank > 0:
        return
    for path in figure.save(measured, out):
        say(f"wrote {path}")
    for line in figure.summary(measured):
        print(line)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HessdiagError(f"--out {str(folder)!r}: cannot make that folder ({error.strerror})") from error
