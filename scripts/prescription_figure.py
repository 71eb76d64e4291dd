"""Sum up and draw what `prescription_training.py` found; see there."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag import plots
from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number

ARMS = ("as built", "σ² balanced", "rates balanced")
TITLE = "Balanced before training: better with batch norm, worse on RescaleNet, else the same"
TITLES = {"sgd": "SGD", "adam": "Adam"}
SCHEMA = "hessdiag.prescription-training/1"
BIN = 10  # steps
SEEDS = 5


def draw_runs(journal: Path, folder: Path) -> None:
    """Write the summary of a journal beside its figure, which is drawn from the file; without a journal, only draw."""
    stored = folder / "prescription.json"
    if journal.exists():
        cells = summarise([json.loads(line) for line in journal.read_text().splitlines()])
        rows = ",\n  ".join(json.dumps(cell, ensure_ascii=False) for cell in cells)
        stored.write_text(f'{{\n "schema": "{SCHEMA}",\n "cells": [\n  {rows}\n ]\n}}\n')
    cells = json.loads(stored.read_text())["cells"]
    for path in plots.save(draw(cells), folder / "prescription"):
        print(path)
    for cell in cells:
        print(line_of(cell))


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each network, optimiser and arm the rate with the lowest mean loss among those that all seeds were run at."""
    cells: dict[tuple[str, ...], dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        cells[run["optimizer"], run["network"], run["arm"]][run["log2_rate"]].append(run)
    found = []
    for (optimizer, network, arm), by_rate in cells.items():
        means = {rate: fmean(row["loss"] for row in rows) for rate, rows in by_rate.items() if len(rows) == SEEDS}
        if not means:
            continue  # the runs are not finished
        best = min(means, key=lambda rate: means[rate])
        rows = sorted(by_rate[best], key=lambda row: row["seed"])
        sweep = {str(rate): round(mean, 4) for rate, mean in sorted(means.items()) if math.isfinite(mean)}
        found.append(
            {"network": network, "optimizer": optimizer, "arm": arm, "log2_rate": best, "sweep": sweep}
            | {key: [round(row[key], 4) for row in rows] for key in ("spread", "loss", "test_loss", "test_accuracy")}
            | {"predicted_rate": [row.get("predicted_rate") for row in rows]}
            | {"losses": [row["losses"] for row in rows]}
        )
    places = {pair: place for place, pair in enumerate(dict.fromkeys((c["optimizer"], c["network"]) for c in found))}
    return sorted(found, key=lambda c: (places[c["optimizer"], c["network"]], ARMS.index(c["arm"])))


def line_of(cell: dict[str, Any]) -> str:
    """One cell in a line of text."""
    spread = math.exp(fmean(map(math.log, cell["spread"])))
    return (
        f"{TITLES[cell['optimizer']]:5} {cell['network']:22} {cell['arm']:12} σ² spread {spread:9.4g}"
        f"  rate 2^{cell['log2_rate']:<4} loss {fmean(cell['loss']):.3f}  test {fmean(cell['test_loss']):.3f}"
        f" {fmean(cell['test_accuracy']):.3f}"
    )


def draw(cells: list[dict[str, Any]]) -> Figure:
    """Training curves at the best rate of each arm: a panel for each network and optimiser."""
    known = {(cell["network"], cell["optimizer"], cell["arm"]): cell for cell in cells}
    pairs = list(dict.fromkeys((cell["network"], cell["optimizer"]) for cell in cells))
    colours = dict(zip(ARMS, style.theme().lines, strict=False))
    rows = math.ceil(len(pairs) / 2)
    with style.context("ticks"):
        figure = Figure(figsize=(8.8, 1.95 * rows))
        panels = figure.subplots(rows, 2, squeeze=False, sharex=True)
        for axes, (network, optimizer) in zip(panels.flat, pairs, strict=False):
            arms = [known[key] for arm in ARMS if (key := (network, optimizer, arm)) in known]
            _draw_panel(axes, f"{network}, {TITLES[optimizer]}", arms, colours)
        for axes in panels[-1]:
            axes.set_xlabel("steps of 32 images")
        for axes in panels[:, 0]:
            axes.set_ylabel("training loss")
        legend = [Line2D([], [], color=colours[arm], label=arm) for arm in ARMS]
        note = (
            "mean and range over 5 seeds · each at its own best learning rate, of powers of 2 · CIFAR-10 at 16 × 16,"
            " 4,096 images · above each panel: loss of the last 50 steps as built,"
            " and how that of the balanced networks differs, ± standard error over seeds"
        )
        frame(figure, title=TITLE, note=note, legend=legend)
    return figure


def _draw_panel(axes: Axes, title: str, arms: list[Any], colours: dict[str, str]) -> None:
    for cell in arms:
        curves = cell["losses"]
        steps = [BIN * (number + 0.5) for number in range(len(curves[0]))]
        columns = list(zip(*curves, strict=True))
        low, high = list(map(min, columns)), list(map(max, columns))
        axes.fill_between(steps, low, high, color=colours[cell["arm"]], alpha=0.15, linewidth=0)
        axes.plot(steps, list(map(fmean, columns)), color=colours[cell["arm"]], linewidth=1.3)
    changes = [f"{cell['arm']} {_difference(arms[0], cell)}" for cell in arms[1:]]
    head(axes, title, " · ".join([f"as built {number(fmean(arms[0]['loss']))}", *changes]))
    axes.grid(axis="y", alpha=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, float]:
    """Mean difference of the final loss over seeds, and its standard error."""
    apart = [b - a for a, b in zip(before["loss"], after["loss"], strict=True)]
    return fmean(apart), stdev(apart) / math.sqrt(len(apart))


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    mean, error = difference(before, after)
    return f"{mean:+.3f} ± {error:.3f}".replace("-", "−")
