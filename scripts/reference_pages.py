"""Write docs/rules.md, which `hessdiag explain` reads, docs/commands.md, the tutorial as a notebook, and JSON Schemas.

`python scripts/reference_pages.py` writes them anew; tests/test_documentation.py fails where they are not the code's.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

import json_schemas
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
        (", ".join(f"`{opt}`" for opt in each.opts + each.secondary_opts), each.default, " ".join(each.help.split()))
        for each in options
    ]
    if rows:
        yield "| option | default | meaning |\n|---|---|---|"
        for names, default, text in rows:
            shown = "" if any(default is each for each in (None, False, ())) or default in ("", []) else f"`{default}`"
            yield f"| {names} | {shown} | {text.replace('|', chr(92) + '|')} |"
        yield ""


def notebook() -> str:
    """The tutorial, its Python as cells with what they print."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    page = page.replace("The same as a notebook: [tutorial.ipynb](../examples/tutorial.ipynb).\n\n", "")
    page = re.sub(r"\]\((?!http)([^)]+)\)", r"](../docs/\1)", re.sub(r"<!--.*?-->\n", "", page))
    cells: list[dict[str, Any]] = []
    for text, code, printed in re.findall(CELLS, page, re.MULTILINE | re.DOTALL):
        if text.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": lines(text.strip())})
        if code:
            stream = {"name": "stdout", "output_type": "stream", "text": lines(printed)}
            outputs = [stream] if printed else []
            source = {"source": lines(code.strip()), "outputs": outputs, "execution_count": None}
            cells.append({"cell_type": "code", "metadata": {}, **source})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


CELLS = r"(.*?)(?:^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?|\Z)"
PAGES = {
    "docs/rules.md": rules_page,
    "docs/commands.md": commands_page,
    "examples/tutorial.ipynb": notebook,
    **json_schemas.pages(),
}

if __name__ == "__main__":
    for page, text in PAGES.items():
        (ROOT / page).write_text(text(), encoding="utf-8")
