"""The command line. Nothing here imports torch before a command needs it."""

import typer

from hessdiag.cli.check_init_command import check_init
from hessdiag.cli.compare_command import compare
from hessdiag.cli.describe_command import describe
from hessdiag.cli.diagnose_command import diagnose
from hessdiag.cli.explain_command import explain
from hessdiag.cli.lr_command import lr
from hessdiag.cli.predict_command import predict
from hessdiag.cli.reproduce_command import HELP, reproduce

app = typer.Typer(
    name="hessdiag",
    help="Are the layers of a network balanced? Curvature blocks, weight-gradient ratios and the scaling calculus.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(describe)
app.command()(diagnose)
app.command()(explain)
app.command()(compare)
app.command()(lr)
app.command()(predict)
app.command()(check_init)
app.command(help=HELP)(reproduce)
