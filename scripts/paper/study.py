"""What the scripts of the paper's figures share: options, runs kept in a file, random streams, tables, pictures."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#56b4e9", "#949494")
SCHEMES = ("fan-in", "fan-out", "arithmetic", "geometric")  # a colour each, in all figures
GREY, BAND = "#595959", "#dddddd"
LOOKS = {"font.size": 8, "axes.titlesize": 8, "axes.titlelocation": "left", "axes.grid": True, "grid.color": "#e3e3e3",
         "axes.axisbelow": True, "svg.hashsalt": "hessdiag", "legend.frameon": False}  # fmt: skip


def colours(names: Sequence[str]) -> list[str]:
    """A scheme's own colour; for other names those of their places."""
    return [COLOURS[SCHEMES.index(name) if name in SCHEMES else place] for place, name in enumerate(names)]


def options(doc: str | None, **more: dict[str, Any]) -> argparse.Namespace:
    """Read the command line: what every script has, and `more` options of one."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few networks and small ones: a look, not the figure")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder of numbers and pictures")
    parser.add_argument("--show", type=Path, metavar="JSON", help="print the table of this file; measure nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, how in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    return parser.parse_args()


def main(name: str, asked: argparse.Namespace, measure: Callable[[], Any], summary: Callable[[Any], str],
         draw: Callable[[Any], Figure]) -> None:  # fmt: skip
    """Measure, write `OUT/NAME.json`, draw from it and print the table; or print that of a file."""
    if asked.show:
        print(summary(read(asked.show)))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / f"{name}.json"
    path.write_text(json.dumps(plain(measure())) + "\n", encoding="utf-8")
    found = read(path)
    save(draw(found), asked.out / name)
    print(summary(found))


class Runs:
    """Results of finished runs, one JSON line each; a run that is in the file is not started again."""

    def __init__(self, path: Path) -> None:
        self.path, self.found = path, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # without the last line of a run that was killed
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        for line in whole.splitlines():
            self.found |= json.loads(line)

    def __call__(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return what `measure` returned for this key, now or in an earlier run."""
        if key not in self.found:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{key}", end="", file=sys.stderr, flush=True)
            self.found[key] = plain(measure())
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({key: self.found[key]}) + "\n")
        return self.found[key]


def plain(value: Any) -> Any:
    """Turn arrays into lists; NaN into null and infinities into words, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def read(path: Path | str) -> Any:
    """Read what `main` wrote, or a file of figures/."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def array(value: Any) -> np.ndarray:
    """Turn lists with nulls and words back into an array of numbers."""
    return np.array(value, dtype=object).astype(float)


def stream(seed: int, purpose: str) -> torch.Generator:
    """Return a generator for one purpose; two purposes never share random numbers."""
    number = int.from_bytes(hashlib.blake2s(f"{seed}/{purpose}".encode(), digest_size=4).digest(), "little")
    return torch.Generator().manual_seed(number)


@contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Draw from the stream of a purpose with torch's global functions, such as a module's own initialisation."""
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, purpose).initial_seed())
        yield


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in (head, *rows)]
    return "\n".join("  ".join(line).rstrip() for line in lines)


@contextmanager
def picture(title: str, note: str, rows: int = 1, columns: int = 2, **how: Any) -> Iterator[tuple[Figure, Any]]:
    """Make a figure with a title above and a note below; draw on its axes inside this context."""
    with plt.rc_context(LOOKS):
        figure = Figure(layout="constrained", figsize=how.pop("figsize", (7.6, 3.4)))
        yield figure, figure.subplots(rows, columns, **how)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        figure.supxlabel(note, x=0.01, ha="left", fontsize=6.5, color=GREY)


def head(axes: Axes, title: str, detail: str = "") -> None:
    """Title a panel, with what its numbers come to below."""
    axes.set_title(f"{title}\n{detail}" if detail else title)


def save(figure: Figure, path: Path) -> None:
    """Write `path`.png and .svg, the same bytes for the same figure."""
    with plt.rc_context(LOOKS):
        figure.savefig(path.with_name(f"{path.name}.png"), dpi=200, facecolor="white")
        figure.savefig(path.with_name(f"{path.name}.svg"), facecolor="white", metadata={"Date": None})
