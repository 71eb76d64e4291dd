"""Draw where healthy networks, the thresholds and the public bugs stand on the number of every rule.

python scripts/gallery.py measure gallery.jsonl --kinds cases,extra,unseen,variants,healthy,apart
python scripts/findings_figure.py gallery.jsonl ...    # writes figures/findings.{png,svg,json}
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from gallery import load  # noqa: E402
from gallery_numbers import AXES, numbers  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402

from hessdiag.view import plots  # noqa: E402
from hessdiag.view.plots import style  # noqa: E402
from hessdiag.view.plots.style import frame, label_decades  # noqa: E402

Data = dict[str, dict[str, list[float]]]


def gather(files: list[Path]) -> Data:
    """For each rule the numbers of healthy networks, and of those that this rule names first."""
    table: Data = {rule: {"healthy": [], "named": []} for rule in AXES}
    for row in load(files):
        if row.name == "raw-inputs" and row.variant == "after":
            continue  # it has no repaired network: the data is at fault
        own = numbers(row.signals)
        if row.variant != "before":
            for rule, value in own.items():
                table[rule]["healthy"].append(value)
            continue
        found = row.findings()
        if found and found[0].rule in own:
            table[found[0].rule]["named"].append(own[found[0].rule])
    return {rule: {key: sorted(values) for key, values in part.items()} for rule, part in table.items()}


def draw(data: Data) -> Figure:
    """One row a rule, on a logarithmic axis in units of the mildest threshold: the bad side is the right one."""
    rules = [rule for rule in AXES if data[rule]["healthy"] or data[rule]["named"]]
    with style.context("ticks"):
        figure = Figure(figsize=(8.5, 0.3 * len(rules) + 1.0))
        axes = figure.subplots()
        for place, rule in enumerate(reversed(rules)):
            _draw_rule(axes, place, AXES[rule], data[rule])
        axes.axvline(1, color="black", linewidth=1, zorder=0)
        axes.set_xscale("log")
        axes.set_xlim(1e-7, 1e7)
        label_decades(axes.xaxis)
        axes.set_yticks(range(len(rules)), [f"{rule}  {AXES[rule][0]}" for rule in reversed(rules)])
        axes.set_ylim(-0.7, len(rules) - 0.3)
        axes.set_xlabel("number over the mildest threshold, inverted where small is bad")
        axes.grid(axis="x", alpha=0.4)
        axes.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        blue, orange = style.COLOURS[:2]
        legend: list[Any] = [
            Line2D([], [], color=blue, marker="o", markersize=4, linewidth=1, label="healthy networks, repaired bugs"),
            Line2D([], [], color=orange, marker="D", markersize=5, linestyle="", label="bugs named by the rule"),
            Line2D([], [], color="black", linewidth=1, label="thresholds, mildest to gravest"),
        ]
        note = (
            "numbers beyond the ends of the axis are drawn at them"
            " · where healthy networks are beyond the mildest threshold, it is that of a note"
        )
        frame(figure, title="Where healthy networks and public bugs stand", note=note, legend=legend)
    return figure


def _draw_rule(axes: Axes, place: int, axis: tuple[str, tuple[float, ...], bool], part: dict[str, list[float]]) -> None:
    _, thresholds, small_is_bad = axis
    blue, orange = style.COLOURS[:2]

    def along(value: float) -> float:
        ratio = thresholds[0] / value if small_is_bad and value > 0 else value / thresholds[0]
        return min(max(ratio, 2e-7), 5e6)

    healthy = [along(v) for v in part["healthy"]]
    if healthy:
        axes.plot([healthy[0], healthy[-1]], [place] * 2, color=blue, linewidth=1, alpha=0.5)
        axes.scatter(healthy, [place] * len(healthy), s=10, color=blue, alpha=0.25, linewidths=0)
    named = [along(v) for v in part["named"]]
    axes.scatter(named, [place] * len(named), s=24, color=orange, marker="D", linewidths=0, zorder=3)
    for threshold in thresholds[1:]:
        axes.plot([along(threshold)] * 2, [place - 0.3, place + 0.3], color="black", linewidth=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="none draws figures/findings.json anew")
    options = parser.parse_args()
    folder = ROOT / "figures"
    stored = folder / "findings.json"
    if options.files:
        data = gather(options.files)
        record: dict[str, Any] = {"schema": "hessdiag.findings/1"}
        for rule, part in data.items():
            title, thresholds, small = AXES[rule]
            record[rule] = {"number": title, "thresholds": thresholds, "small_is_bad": small} | {
                key: [float(f"{v:.4g}") for v in values] for key, values in part.items()
            }
        rows = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items()]
        stored.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    read = json.loads(stored.read_text())
    data = {rule: {key: read[rule][key] for key in ("healthy", "named")} for rule in AXES}
    for path in plots.save(draw(data), folder / "findings"):
        print(path)


if __name__ == "__main__":
    main()
