"""`hessdiag data`: the data sets that the experiments read."""

from __future__ import annotations

from typing import Annotated

import typer

from hessdiag.cli.progress_bar import byte_bar

HELP = "List and download the data sets that the experiments read."
CIFAR10 = "cifar10-binary"  # cifar10 is LIBSVM's text of it
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="as hessdiag data list names them, or cifar10-binary")
]
Folder = Annotated[
    str, typer.Option("--cache", metavar="DIR", help="keep files there  [default: HESSDIAG_CACHE, or the user's cache]")
]
Mirror = Annotated[str, typer.Option(metavar="URL", help="download LIBSVM's files from that folder")]

data = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None, pretty_exceptions_enable=False
)


@data.callback(help=HELP, invoke_without_command=True)
def data_sets(context: typer.Context) -> None:
    """Print the help where no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@data.command("list")
def list_data(cache: Folder = "") -> None:
    """List the data sets by name, with the size of their training parts and whether they were downloaded."""
    from hessdiag.datasets.download import cache_folder
    from hessdiag.datasets.libsvm_catalogue import CATALOGUE
    from hessdiag.results.text_table import make_table, plain_text

    folder = cache_folder(cache) / "libsvm"
    rows = [
        [name, f"{e.rows:,}", f"{e.features:,}", str(e.classes), "yes" if (folder / e.file).is_file() else "no"]
        for name, e in CATALOGUE.items()
    ]
    print(plain_text([make_table(("data set", "rows", "features", "classes", "downloaded"), rows)]))


@data.command("fetch")
def fetch_data(names: Names, cache: Folder = "", mirror: Mirror = "") -> None:
    """Download data sets to the cache, check them against what was downloaded first, and print where they are."""
    from hessdiag.datasets.cifar10 import fetch_cifar10
    from hessdiag.datasets.download import cache_folder
    from hessdiag.datasets.libsvm import fetch_libsvm
    from hessdiag.datasets.libsvm_catalogue import SITE, find_entry

    for name in names:
        if name != CIFAR10:
            find_entry(name)  # all names are checked before the first download
    folder = cache_folder(cache)
    for name in names:
        with byte_bar(f"downloading {name}") as bar:
            if name == CIFAR10:
                path = fetch_cifar10(folder / "cifar10", bar=bar)
            else:
                path = fetch_libsvm(name, folder / "libsvm", mirror=mirror or SITE, bar=bar)
        print(path)
