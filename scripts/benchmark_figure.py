"""Figures of the benchmarks, from what their files hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number
from hessdiag.plots.ticks import label_decades

ROW = 0.2  # inches
OWN = "hessdiag"


def draw_peers(items: Mapping[str, Any]) -> Figure:
    """Times in gradients, a row a method under the title of its item; a line is the floor."""
    lines = [(key, name) for key, item in items.items() for name in ("", *_measured(item))]
    with style.context("ticks"):
        figure = Figure(figsize=(7.2, 0.6 + ROW * len(lines)))
        axes = figure.subplots()
        for place, (key, name) in enumerate(lines):
            if name:
                _draw_method(axes, place, items[key], name)
            else:
                _draw_head(axes, place, items[key])
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.5, high * 6)  # room for what stands beside the dots
        axes.set_ylim(len(lines) - 0.4, -0.7)
        label_decades(axes.xaxis)
        axes.set_yticks([n for n, (_, name) in enumerate(lines) if name], [name for _, name in lines if name])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("gradients of the same model and batch")
        axes.grid(axis="x", alpha=0.5)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        frame(figure, title=title_of(items), note=note_of(items), legend=_legend())
    return figure


def title_of(items: Mapping[str, Any]) -> str:
    """Say what the peers' times come to."""
    ratios = [spread["median"] for item in items.values() for spread in fastest(item)]
    if not ratios:
        return "What a diagnosis takes, in gradients"
    least, most = (number(ratio) for ratio in (min(ratios), max(ratios)))
    span = least if least == most else f"{least} to {most}"
    return f"The fastest peer takes {span} times as long as hessdiag for the same numbers"


def fastest(item: Mapping[str, Any]) -> list[Mapping[str, float]]:
    """Return how many times as long as hessdiag the fastest peer takes; nothing where none took part."""
    ratios = list(item["times hessdiag's"].values())
    return [min(ratios, key=lambda spread: spread["median"])] if ratios else []


def note_of(items: Mapping[str, Any]) -> str:
    """Say on what machine, and what dots and numbers are."""
    machines = [item["machine"] for item in items.values()]
    on = sorted({f"{m['device']}, {m['threads']} of {m['cores']} threads, torch {m['torch']}" for m in machines})
    peaks = [m["peak operations"] / 1e9 for m in machines]
    return (
        f"{'; '.join(on)} · {machines[0]['clock']} time · medians and ranges of turns that alternate with gradients"
        f" · peak {min(peaks):.0f}-{max(peaks):.0f} GFLOP/s, measured"
        " · % are errors of the norms: median, and RMS of the worst"
        " · GiB is the most that the process held, in multiples of one that takes gradients alone"
    )


def _measured(item: Mapping[str, Any]) -> list[str]:
    return [name for name, method in item["methods"].items() if "gradients" in method and name != "gradient"]


def _draw_head(axes: Axes, place: int, item: Mapping[str, Any]) -> None:
    """The item's title, and its floor across the rows of its methods."""
    text = axes.annotate(item["title"], (0, place), xycoords=("axes fraction", "data"), va="center")
    text.set(fontsize=style.SMALL, fontweight="bold", annotation_clip=False)
    floor = item["floor"]["seconds"] / item["methods"]["gradient"]["seconds"]["median"]
    ends = [place + 0.6, place + len(_measured(item)) + 0.4]
    axes.plot([floor] * 2, ends, color=style.theme().ink, linewidth=1.6, solid_capstyle="butt")


def _draw_method(axes: Axes, place: int, item: Mapping[str, Any], name: str) -> None:
    method = item["methods"][name]
    spread = method["gradients"]
    colour, marker = (style.theme().lines[0], "o") if name == OWN else (style.theme().lines[1], "D")
    axes.plot([spread["least"], spread["most"]], [place] * 2, color=colour, linewidth=1.4)
    axes.plot(spread["median"], place, color=colour, marker=marker, markersize=5, linestyle="")
    axes.annotate(beside(item, name), (spread["most"], place), (7, 0), textcoords="offset points", va="center").set(
        fontsize=style.SMALL, color=style.theme().muted
    )


def beside(item: Mapping[str, Any], name: str) -> str:
    """What stands beside a dot: gradients, how many floors or hessdiags that is, error and memory."""
    method = item["methods"][name]
    parts = [f"{method['gradients']['median']:.3g}"]
    if name == OWN:
        parts.append(f"{method['seconds']['median'] / item['floor']['seconds']:.2g} floors")
    else:
        ratio = item["times hessdiag's"][name]["median"]
        parts.append(f"{ratio:.3g}× hessdiag's")
    if "error" in method and "products" in method:
        parts.append(f"{100 * method['error']['median']:.1f} %, worst {100 * method['error']['worst']:.0f} %")
    if name == OWN and "memory" in item:
        memory = item["memory"]
        parts.append(f"{memory[OWN] / 2**30:.2g} GiB, {memory[OWN] / memory['gradient']:.2g}×")
    return " · ".join(parts)


def _legend() -> list[Line2D]:
    blue, orange = style.theme().lines[:2]
    return [
        Line2D([], [], color=blue, marker="o", markersize=5, label="hessdiag"),
        Line2D([], [], color=orange, marker="D", markersize=5, label="peers"),
        Line2D(
            [],
            [],
            color=style.theme().ink,
            linewidth=1.6,
            label="floor: the arithmetic at the machine's peak",
        ),
    ]


def draw_growth(items: Mapping[str, Any], line: str) -> Figure:
    """Gradients against size, a panel a family; slopes and their standard errors stand above it."""
    columns = min(4, len(items))
    rows = -(-len(items) // columns)
    with style.context("whitegrid"):
        figure = Figure(figsize=(2.3 * columns, 2.1 * rows))
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, item in zip(panels, items.values(), strict=False):
            _draw_family(axes, item)
        for axes in panels[len(items) :]:
            axes.set_visible(False)
        handles = [
            Line2D([], [], color=style.theme().lines[n], marker=marker, markersize=4, label=label)
            for n, (marker, label) in enumerate((("o", "map of all blocks"), ("s", "whole diagnosis")))
        ]
        machine = next(iter(items.values()))["machine"]
        note = (
            f"{machine['device']}, {machine['threads']} of {machine['cores']} threads · {machine['clock']} time"
            " · medians of turns over all sizes · slope of log cost in gradients on log size, ± standard error"
        )
        frame(figure, title=line, note=note, legend=handles)
    return figure


def _draw_family(axes: Axes, item: Mapping[str, Any]) -> None:
    slopes = []
    for n, (name, marker) in enumerate((("map", "o"), ("whole", "s"))):
        values = item["gradients"]["medians"][name]
        fitted = item["gradients"]["exponents"][name]
        axes.plot(item["sizes"], values, color=style.theme().lines[n], marker=marker, markersize=4, linewidth=1.2)
        slopes.append(f"{fitted['value']:+.2f}±{fitted['stderr']:.2f}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, high / 12), high * 1.2)
    label_decades(axes.yaxis)
    axes.set_xticks(item["sizes"], [str(size) for size in item["sizes"]])
    axes.minorticks_off()
    head(axes, item["title"], f"slopes {slopes[0]}, {slopes[1]}")
    axes.set_ylabel("gradients")
