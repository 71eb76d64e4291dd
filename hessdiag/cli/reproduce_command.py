"""`hessdiag reproduce`: the paper's figures, measured anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hessdiag.cli import options
from hessdiag.cli.progress_bar import progress_bar, say
from hessdiag.errors import HessdiagError

reproduce = typer.Typer(
    help="Measure and draw the paper's figures; numbers and figures go to --out.",
    rich_markup_mode=None,
)

Out = Annotated[Path, typer.Option(metavar="DIR", help="folder for the numbers (JSON) and figures (png, svg)")]
Part = Annotated[str, typer.Option(metavar="PART", help="conditioning: γ, ν and σ² of every layer")]
Quick = Annotated[bool, typer.Option("--quick", help="few set-ups and small batches: a look, not the figure")]


@reproduce.command()
def ratios(
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    resume: options.Resume = "",
) -> None:
    """Figure 1: histograms of γ/σ² of every block of the strided LeNet over 100 set-ups (under a minute)."""
    from hessdiag.experiments import ratio_figure as experiment

    _run(experiment, out, quick, seed, device, resume)


@reproduce.command()
def heatmaps(
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    resume: options.Resume = "",
) -> None:
    """Figure 2: Hessian and Gauss-Newton block maps of the strided LeNet, four initialisations."""
    from hessdiag.experiments import heatmap_figure as experiment

    _run(experiment, out, quick, seed, device, resume)


@reproduce.command()
def layers(
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    resume: options.Resume = "",
) -> None:
    """Table 1: what each operation does to ς, measured on 200 random networks a setting (half a minute)."""
    from hessdiag.experiments import operation_figure as experiment

    _run(experiment, out, quick, seed, device, resume)


@reproduce.command()
def resnet(
    part: Part = "conditioning",
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    resume: options.Resume = "",
) -> None:
    """Section 11: conditioning of three kinds of ResNet-50 at initialisation (half an hour; --quick: ResNet-14)."""
    from hessdiag.experiments import resnet_figure as experiment

    if part not in experiment.PARTS:
        raise HessdiagError(f"--part {part!r}: use {' or '.join(experiment.PARTS)}")
    _run(experiment, out, quick, seed, device, resume)


def _run(experiment: Any, out: Path, quick: bool, seed: int, device: str, resume: str) -> None:
    """Measure, save, draw; an unusable folder is refused before the measuring."""
    options.check_file(resume)
    from hessdiag.execution.journal import journal
    from hessdiag.execution.ranks import launched
    from hessdiag.execution.work import Work

    where = options.resolve_device(device)
    settings = {"figure": experiment.__name__, "quick": str(quick), "seed": str(seed), "device": where}
    with (
        launched(where) as ranks,
        journal(resume, settings) as kept,
        progress_bar("set-ups", experiment.steps(quick=quick)) as step,
    ):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HessdiagError(f"--out {str(out)!r}: cannot make that folder ({error.strerror})") from error
        measured = experiment.measure(quick=quick, seed=seed, device=where, work=Work(ranks, kept, step))
    if ranks.rank > 0:
        return
    for path in experiment.draw(measured, out):
        say(f"wrote {path}")
    for line in experiment.summary(measured):
        print(line)
