"""The figure of balance in training can be drawn again from the file that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import monitor_figure

FIGURES = Path(__file__).parents[2] / "figures"


def test_the_kept_file_is_drawn() -> None:
    measured = json.loads((FIGURES / "monitor.json").read_text(encoding="utf-8"))
    figure = monitor_figure.draw(measured)
    assert [len(axes.get_lines()) for axes in figure.axes] == [4, 4]
    assert "3× (geometric) to 1,200× (fan-out)" in monitor_figure.title_of(measured)
