"""Results in colour, where they go to a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

STYLES: Mapping[str, str] = {  # of the groups below
    "good": "bold green",
    "doubtful": "bold yellow",
    "bad": "bold red",
    "fact": "bold",
    "titles": "bold",
    "aside": "dim",
}
GOOD = r"(?:Healthy|Balanced|balanced(?=,))"
DOUBTFUL = r"(?:Suspicious|Undecided|uneven(?=,)|undecided(?=,))"
BAD = r"(?:Faulty|unbalanced(?=,))"
LEAD = r"^(?:[^\s:]+(?::\w+)?: )?"  # of a verdict: nothing, or the initialisation
PATTERNS = (
    rf"(?m){LEAD}(?P<good>{GOOD})\b",
    rf"(?m){LEAD}(?P<doubtful>{DOUBTFUL})\b",
    rf"(?m){LEAD}(?P<bad>{BAD})\b",
    # The balance of a report is a fact about learning rates; networks that train well are unbalanced, too.
    r"(?m)^(?P<fact>Uneven|Unbalanced)\b",
    r"(?m)^(?P<good>resolved): HD",
    r"(?m)^(?: *|new: )(?P<bad>HD\d+ fault):",
    r"(?m)^(?: *|new: )(?P<doubtful>HD\d+ warning):",
    r"(?m)^(?: *|new: )(?P<good>HD\d+ note):",
    r"(?m)^(?P<doubtful>!) ",
    r"(?m)^(?P<titles>(?:block|parameter|weight|layer|optimizer|initialisation|data set) {2,}\S.*)$",
    r"(?m)^(?P<aside>not shown in \d+ columns: .*)$",
)


def print_coloured(text: str) -> None:
    """Print a text to stdout, in colour where that is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console

    Console(soft_wrap=True).print(coloured(text), highlight=False)


def coloured(text: str) -> object:
    """The text with styles, as rich prints it."""
    from rich.text import Text

    styled = Text(text)
    for pattern in PATTERNS:
        for found in re.finditer(pattern, text):
            for name, style in STYLES.items():
                if name in found.groupdict():
                    styled.stylize(style, *found.span(name))
    return styled
