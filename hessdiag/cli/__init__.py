"""The command line. Nothing here imports torch before a command needs it."""

import typer

from hessdiag.cli.check_init import check_init
from hessdiag.cli.describe import describe
from hessdiag.cli.diagnose import diagnose
from hessdiag.cli.predict import predict
from hessdiag.cli.reproduce import reproduce

app = typer.Typer(
    name="hessdiag",
    help="Are the layers of a network balanced? Curvature blocks, weight-gradient ratios and the scaling calculus.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(describe)
app.command()(diagnose)
app.command()(predict)
app.command()(check_init)
app.add_typer(reproduce, name="reproduce")
