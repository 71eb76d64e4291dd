"""Compare the inventories of docs/inventories/ with those that the projects publish, and mend addresses that moved.

python scripts/docs_inventories.py [--from FOLDER]

Each is a list of the names that the documentation links to, as lines of a Sphinx inventory, so that the site is built
without network. Needs the network, or a FOLDER with `python.inv`, `torch.inv` and so on. A name that a project no
longer has ends in an error.
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.request
import zlib
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LINE = re.compile(r"(?P<name>.+?)\s+(?P<role>\S+:\S+)\s+(?P<rest>-?\d+\s+\S*\s+.*)")


def addresses() -> dict[str, str]:
    """Where each project's documentation is, as docs/conf.py says."""
    text = (DOCS / "conf.py").read_text(encoding="utf-8")
    listed = re.search(r"INVENTORIES = \{(.*?)\}", text, re.DOTALL)
    assert listed
    return dict(re.findall(r'"(\w+)": "(https://\S+)"', listed[1]))


def parse(inventory: bytes) -> dict[tuple[str, str], str]:
    """Entries of a packed inventory by name and role: priority, address and title."""
    head, body = inventory.split(b"zlib.\n", 1)
    if not head.startswith(b"# Sphinx inventory version 2"):
        raise ValueError("not a Sphinx inventory of version 2")
    matches = (LINE.fullmatch(line) for line in zlib.decompress(body).decode().splitlines())
    return {(match["name"], match["role"]): match["rest"] for match in matches if match}


def renewed(lines: str, published: Mapping[tuple[str, str], str]) -> str:
    """The lines with the entries that are published now.

    Raises:
        KeyError: a name is not among them.
    """
    found = []
    for line in lines.splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        key = (match["name"], match["role"])
        found.append(f"{key[0]} {key[1]} {published[key]}")
    return "\n".join(found) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path)
    options = parser.parse_args()
    for project, address in addresses().items():
        path = DOCS / "inventories" / f"{project}.txt"
        if options.folder:
            packed = (options.folder / f"{project}.inv").read_bytes()
        else:
            with urllib.request.urlopen(f"{address}objects.inv", timeout=60) as answer:
                packed = answer.read()
        before = path.read_text(encoding="utf-8")
        try:
            after = renewed(before, parse(packed))
        except KeyError as error:
            sys.exit(f"{project} has no {error.args[0][0]} any more: mend {path}")
        path.write_text(after, encoding="utf-8")
        print(f"{project}: {'unchanged' if after == before else 'mended'}")


if __name__ == "__main__":
    main()
