"""Draw figures/gallery.json: how every case trains before and after its repair, each at its own best learning rate.

python scripts/gallery_figure.py    # writes figures/gallery.{png,svg}
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numpy as np  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: E402

from hessdiag.view import plots  # noqa: E402
from hessdiag.view.plots import style  # noqa: E402
from hessdiag.view.plots.style import frame  # noqa: E402
from tests.gallery import CASES  # noqa: E402

STEM = ROOT / "figures" / "gallery"
COLUMNS = 5
SMOOTH = 4  # points of a curve that are averaged


def draw(runs: Sequence[Mapping[str, Any]], window: int) -> Figure:
    """One panel a case: loss against step, three seeds and their mean."""
    rows = -(-len(CASES) // COLUMNS)
    with style.context("ticks"):
        figure = Figure(figsize=(11, 2.2 * rows))
        panels = figure.subplots(rows, COLUMNS)
        for axes, case in zip(panels.flat, CASES, strict=True):
            own = {run["variant"]: run for run in runs if run["case"] == case.name and run["optimizer"] == "adam"}
            _draw_case(axes, case.name, own, window)
        for axes in panels[-1]:
            axes.set_xlabel("step of training")
        for axes in panels[:, 0]:
            axes.set_ylabel("training loss")
        note = (
            "Adam at the rate with the lowest loss in the last fifth, of powers of 2 and 4; means of three"
            " seeds, smoothed; thin: the seeds. Sizes and data: docs/gallery.md"
        )
        frame(figure, title="Ten public bugs, before and after their repair, each at its best learning rate", note=note)
    return figure


def _draw_case(axes: Axes, name: str, own: Mapping[str, Mapping[str, Any]], window: int) -> None:
    blue, orange = style.COLOURS[:2]
    seen = []
    for variant, colour in (("before", orange), ("after", blue)):
        run = own[variant]
        curves = [np.array(curve) for curve in run["curves"]]
        length = min(map(len, curves))
        smooth = [_smoothed(curve[:length]) for curve in curves]
        steps = window * (np.arange(len(smooth[0])) + SMOOTH / 2)
        for curve in smooth:
            axes.plot(steps, curve, color=colour, linewidth=0.5, alpha=0.5)
        mean = np.mean(smooth, axis=0)
        rate = f"2^{round(math.log2(run['rate']))}"
        axes.plot(steps, mean, color=colour, linewidth=1.5, label=f"{variant}, rate {rate}")
        seen.append(mean)
    axes.set_yscale("log")
    low, high = min(map(np.min, seen)), max(curve[: len(curve) // 8 + 1].max() for curve in seen)
    axes.set_ylim(low / 1.15, high * 1.4)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(name, loc="left", fontsize=style.TEXT, fontweight="bold")
    axes.legend(frameon=False, loc="upper right", fontsize=style.SMALL, handlelength=1.2, borderaxespad=0.1)
    axes.set_xlim(0, None)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _smoothed(curve: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.convolve(curve, np.ones(SMOOTH) / SMOOTH, mode="valid")


def main() -> None:
    record = json.loads(STEM.with_suffix(".json").read_text(encoding="utf-8"))
    for path in plots.save(draw(record["runs"], record["window"]), STEM):
        print(path)


if __name__ == "__main__":
    main()
