"""Draw figures/gallery.json: how every case trains before and after its repair, each at its own best learning rate.

python scripts/gallery_figure.py    # writes figures/gallery.{png,svg}, and three of the cases as figures/bugs.{png,svg}
"""

from __future__ import annotations

import json
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
from strangers.gallery import CASES  # noqa: E402

from hessdiag.view import plots  # noqa: E402

STEM = ROOT / "figures" / "gallery"
COLUMNS = 3
SMOOTH = 4  # points of a curve that are averaged
NAMES = {
    "gpt2-cproj": "GPT-2, branches not scaled down",
    "trunc-normal": "GPT-2, bounds of 100 std",
    "t5-head": "T5, head drawn from N(0, 1)",
    "depthwise-fan-out": "Depthwise layers by fan-out",
    "conv-xavier": "Chess network, kernel's fans",
    "siren-first": "SIREN, first layer too small",
    "lora-zero": "LoRA, both factors zero",
    "selu-gain": "SELU with gain 3/4",
    "linear-default": "MLP as nn.Linear draws it",
    "zero-module": "Branches not started at zero",
}
SHOWN = {  # in README, with what is found before the repair
    "linear-default": "HD103: the gradient decays\nby 3e-9 over 12 layers",
    "siren-first": "HD107: the first sines\nsee half a period",
    "t5-head": "HD101: the initial loss is\n10 times that of a guess",
}


def draw(runs: Sequence[Mapping[str, Any]], window: int, cases: Sequence[str], *, title: str, note: str) -> Figure:
    """One panel a case: loss against step, three seeds and their mean."""
    rows = -(-len(cases) // COLUMNS)
    with plots.context("ticks"):
        figure = Figure(figsize=(8.3, 2.6 * rows + 0.4))
        panels = figure.subplots(rows, COLUMNS, squeeze=False)
        for axes, name in zip(panels.flat, cases, strict=False):
            own = {run["variant"]: run for run in runs if run["case"] == name and run["optimizer"] == "adam"}
            _draw_case(axes, NAMES[name], own, window)
            axes.set_xlabel("step of training")
        for axes in panels.flat[len(cases) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel("training loss")
        plots.frame(figure, title=title, note=note)
    return figure


def _draw_case(axes: Axes, name: str, own: Mapping[str, Mapping[str, Any]], window: int) -> None:
    blue, orange = plots.COLOURS[:2]
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
        axes.plot(steps, mean, color=colour, linewidth=1.5, label=f"{variant} repair, rate {run['rate']:.2g}")
        seen.append(mean)
    axes.set_yscale("log")
    low, high = min(map(np.min, seen)), max(curve[: len(curve) // 8 + 1].max() for curve in seen)
    axes.set_ylim(low / 1.15, high * 1.4)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(name, loc="left", fontsize=plots.TEXT, fontweight="bold")
    axes.legend(frameon=False, loc="upper right", fontsize=plots.TEXT, handlelength=1.2, borderaxespad=0.1)
    axes.set_xlim(0, None)
    axes.tick_params(labelsize=plots.TEXT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _smoothed(curve: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.convolve(curve, np.ones(SMOOTH) / SMOOTH, mode="valid")


def main() -> None:
    record = json.loads(STEM.with_suffix(".json").read_text(encoding="utf-8"))
    runs, window = record["runs"], record["window"]
    note = "Adam, each at its best learning rate; means of three seeds, smoothed (thin: the seeds)."
    title = "Ten public bugs: five repairs decide the training, two help a little, three change nothing"
    figures = {STEM: draw(runs, window, [case.name for case in CASES], title=title, note=note)}
    title = "Three public bugs that one finding names, and their training"
    few = draw(runs, window, list(SHOWN), title=title, note=note)
    for axes, found in zip(few.axes, SHOWN.values(), strict=True):
        axes.set_xlabel(f"step of training\n\n{found}")
    for stem, figure in (figures | {STEM.with_name("bugs"): few}).items():
        for path in plots.save(figure, stem):
            print(path)


if __name__ == "__main__":
    main()
