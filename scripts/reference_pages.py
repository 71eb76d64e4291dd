"""Write docs/rules.md, which `hessdiag explain` reads, and docs/commands.md, which follows from the command line.

`python scripts/reference_pages.py` writes them anew; tests/test_reference_pages.py fails where they are not the code's.
"""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import typer.main

from hessdiag.cli import app

ROOT = Path(__file__).parents[1]
HEAD = """# Commands

<!-- written by scripts/reference_pages.py from the help of the commands -->

`hessdiag COMMAND --help` prints the same. The exit status is 0 if all is well, 1 if a gate failed,
2 for bad input and 130 after an interrupt.
"""


def rules_page() -> str:
    """The page on the rules."""
    return (ROOT / "hessdiag" / "diagnosis" / "rules.md").read_text(encoding="utf-8")


def commands_page() -> str:
    """Every command with its options."""
    return "\n".join([HEAD, *(line for item in typer.main.get_command(app).commands.items() for line in listed(*item))])


def listed(name: str, command: Any) -> Iterator[str]:
    """A section of a command: its help, and a table of its options."""
    arguments = " ".join(each.metavar or each.name.upper() for each in command.params if each.opts[0][0] != "-")
    yield f"## `hessdiag {name}{' ' + arguments if arguments else ''}`\n"
    yield fill(" ".join((command.help or "").split()), 100, break_on_hyphens=False) + "\n"
    options = [each for each in command.params if each.opts[0].startswith("-") and not each.hidden]
    rows = [
        (", ".join(f"`{opt}`" for opt in each.opts), each.default, " ".join((each.help or "").split()))
        for each in options
    ]
    if rows:
        yield "| option | default | meaning |\n|---|---|---|"
        for names, default, text in rows:
            shown = "" if any(default is each for each in (None, False, ())) or default in ("", []) else f"`{default}`"
            yield f"| {names} | {shown} | {text.replace('|', chr(92) + '|')} |"
        yield ""


PAGES = {"rules.md": rules_page, "commands.md": commands_page}

if __name__ == "__main__":
    for page, text in PAGES.items():
        (ROOT / "docs" / page).write_text(text(), encoding="utf-8")
