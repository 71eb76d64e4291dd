"""The command line. Nothing here imports torch before a command needs it."""

from typing import Annotated

import typer

from hessdiag.arguments import did_you_mean
from hessdiag.cli import reproduce as figures
from hessdiag.cli.diagnose import compare, diagnose
from hessdiag.cli.one_network import describe, lr, prescribe, sharpness
from hessdiag.cli.predict import check_init, predict
from hessdiag.errors import HessdiagError

HELP = "Checks a PyTorch model before you train it, and names the layer to repair."

app = typer.Typer(
    name="hessdiag", context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)  # fmt: skip

Version = Annotated[bool, typer.Option("--version", help="print it")]
Rule = Annotated[str, typer.Argument(metavar="[RULE]", help="such as HD104; all rules in a line each without one")]


@app.callback(help=HELP, invoke_without_command=True)
def hessdiag(context: typer.Context, version: Version = False) -> None:
    """Print the version, or the help where no command is given."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"hessdiag {installed('hessdiag')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def explain(rule: Rule = "") -> None:
    """Explain a rule that a finding names."""
    from hessdiag.diagnosis import rules as catalogue
    from hessdiag.results.text_table import plain_text, text_width

    if not rule:
        print(plain_text([catalogue.overview()]))
        return
    if (name := f"HD{rule}" if rule.isdigit() else rule.upper()) not in catalogue.CATALOGUE:
        hint = did_you_mean(name, list(catalogue.CATALOGUE))
        raise HessdiagError(f"there is no rule {rule!r}: {hint or 'hessdiag explain lists all'}")
    print(catalogue.explain(name, width=min(catalogue.WIDTH, text_width())))


for command in (describe, diagnose, explain, compare, lr, sharpness, predict, prescribe, check_init):
    app.command()(command)
app.command(help=figures.HELP, short_help="Measure and draw a figure of the paper.")(figures.reproduce)
