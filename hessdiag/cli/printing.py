"""What commands do with a result: save it in the asked-for forms, print it, and judge it by gates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hessdiag.cli.options import writable_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

    from hessdiag.results.findings import Finding, Severity

STYLES = {"good": "bold green", "doubtful": "bold yellow", "bad": "bold red", "titles": "bold", "aside": "dim"}
LEAD = r"(?m)^(?:[^\s:]+(?::\w+)?: | *|new: )"  # of a verdict or a finding: nothing, or what it is of
PATTERNS = (
    rf"{LEAD}(?P<good>No problem found|balanced(?=,)|HD\d+ note(?=:)|resolved(?=: HD))",
    rf"{LEAD}(?P<doubtful>\d+ warnings?(?=[:,])|[Uu]ndecided|uneven(?=,)|HD\d+ warning(?=:)|!(?= ))",
    rf"{LEAD}(?P<bad>\d+ faults?(?=[:,])|unbalanced(?=,)|HD\d+ fault(?=:))",
    r"(?m)^(?P<titles>(?:block|parameter|weight|layer|optimizer|initialisation|data set) {2,}\S.*)$",
    r"(?m)^(?P<aside>not shown in \d+ columns: .*)$",
)


Json = Annotated[str, typer.Option(metavar="FILE", callback=writable_file, help="also save all; - prints it as JSON")]
VERBOSE = "leave nothing out / print verdict and findings alone"
Verbose = Annotated[bool | None, typer.Option("--verbose/--quiet", "-v/-q", help=VERBOSE)]


@dataclass(frozen=True, kw_only=True)
class Printing:
    """How much of a result is printed, and whether as JSON. Files are written before anything is printed."""

    json: Json = ""
    verbose: Verbose = None

    @property
    def progress(self) -> bool | None:
        """`progress=` of what measures."""
        return False if self.verbose is False else None

    def say(self, message: str) -> None:
        """Tell something apart from the results."""
        if self.verbose is not False:
            print(message, file=sys.stderr)

    def show(self, result: Any, *, csv: str = "", html: str = "") -> None:
        """Save a result in the asked-for forms, and print it; in colour in a terminal without NO_COLOR."""
        for path, write in ((self.json, "to_json"), (csv, "to_csv")):
            if path not in ("", "-"):
                getattr(result, write)(path)
                self.say(f"wrote {path}")
        if html:
            from hessdiag.view.html import to_html

            to_html(result, html)
            self.say(f"wrote {html}")
        if self.json == "-":
            print(result.to_json(), end="")
        else:
            from rich.console import Console
            from rich.theme import Theme

            shown = result.text({False: "brief", None: "table", True: "whole"}[self.verbose])
            Console(soft_wrap=True, theme=Theme(STYLES)).print(coloured(shown), highlight=False)

    def draw(self, figures: Callable[[], Mapping[str, Figure]], folder: str) -> None:
        """Save figures under their names, as png and svg, where a folder is named."""
        if folder:
            from hessdiag import plots
            from hessdiag.results.records import make_folder

            target = make_folder(folder)
            for name, figure in figures().items():
                for path in plots.save(figure, target / name):
                    self.say(f"drew {path}")


def fail(message: str) -> NoReturn:
    """Exit with 1, and say why with `--quiet` too."""
    print(f"hessdiag: {message}", file=sys.stderr)
    raise typer.Exit(1)


def coloured(text: str) -> Text:
    """The text with the names of styles, as rich prints it."""
    from rich.text import Text

    styled = Text(text)
    for pattern in PATTERNS:
        styled.highlight_regex(pattern)
    return styled


def gate_findings(findings: Iterable[Finding], fail_on: Severity | None) -> None:
    """Exit with 1 where a finding is as severe as `fail_on`; nothing happens where that is None."""
    from hessdiag.results.findings import is_as_grave

    for finding in findings:
        if fail_on is not None and is_as_grave(finding, fail_on):
            where = f" at {finding.blocks[0]}" if finding.blocks else ""
            fail(f"{finding.severity} {finding.rule}{where}, for --fail-on {fail_on}")


def gate_spread(found: float, max_spread: float | None, *, of: str = "") -> None:
    """Exit with 1 where the spread of σ² is over `max_spread`, or undefined."""
    if max_spread is not None and not found <= max_spread:
        from hessdiag.results.numbers import root, short

        fail(f"spread of σ²{of} is {short(found)} ({root(found)}²), over --max-spread {max_spread:g}")
