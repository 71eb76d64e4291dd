"""The command line. Nothing here imports torch before a command needs it."""

from typing import Annotated

import typer

from hessdiag.cli import reproduce as figures
from hessdiag.cli.check_init import check_init
from hessdiag.cli.compare import compare
from hessdiag.cli.describe import describe
from hessdiag.cli.diagnose import diagnose
from hessdiag.cli.explain import explain
from hessdiag.cli.lr import lr
from hessdiag.cli.predict import predict
from hessdiag.cli.prescribe import prescribe
from hessdiag.cli.sharpness import sharpness

HELP = "Checks a PyTorch model before you train it, and names the layer to repair."

app = typer.Typer(
    name="hessdiag", context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)  # fmt: skip


Version = Annotated[bool, typer.Option("--version", help="print it")]


@app.callback(help=HELP, invoke_without_command=True)
def hessdiag(context: typer.Context, version: Version = False) -> None:
    """Print the version, or the help where no command is given."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"hessdiag {installed('hessdiag')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in (describe, diagnose, explain, compare, lr, sharpness, predict, prescribe, check_init):
    app.command()(command)
app.command(help=figures.HELP, short_help="Measure and draw a figure of the paper.")(figures.reproduce)
