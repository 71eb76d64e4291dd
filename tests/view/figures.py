"""Synthetic reports and measurements of known numbers, and what a reader would notice on a finished figure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from hessdiag.results.report import BlockReport, Heatmap, Report
from hessdiag.results.setups import COLUMNS, Setups
from tests import reports

LENET = tuple(f"{layer}.weight" for layer in ("conv1", "conv2", "fc1", "fc2", "fc3"))
LENET_NUMEL = (450, 2400, 48000, 10080, 840)
LONG = tuple(f"encoder.stages.{i // 9}.layers.{i % 9}.convolution.weight" for i in range(54))


def build_setups(
    *, names: Sequence[str] = LENET, count: int = 100, ratio: np.ndarray | None = None,
    normalized: np.ndarray | None = None, relative_error: float = 0.0, **settings: Any,
) -> Setups:  # fmt: skip
    rng = np.random.default_rng(7)
    blocks = len(names)
    numel = LENET_NUMEL if tuple(names) == LENET else (100,) * blocks
    columns = {key: rng.lognormal(size=(count, blocks)) for key in COLUMNS}
    medians = np.linspace(0.80, 0.96, blocks)
    columns["ratio"] = medians * rng.lognormal(sigma=0.5, size=(count, blocks)) if ratio is None else ratio
    root = np.sqrt(np.asarray(numel, dtype=float))
    frobenius_sq = (build_map(blocks) if normalized is None else normalized) * np.outer(root, root)
    known = {
        "model": "lenet", "init": "geometric", "loss": "random-quadratic", "matrix": "ggn", "per": "example",
        "method": "exact", "batch_size": 1024, "seed": 0, "device": "cpu", "dtype": "float32",
    }  # fmt: skip
    return Setups(
        names=tuple(names), numel=numel, columns=columns, frobenius_sq=frobenius_sq,
        frobenius_sq_stderr=np.zeros_like(frobenius_sq),
        estimator_stderr=relative_error * np.nan_to_num(frobenius_sq, nan=1.0, posinf=1.0), **(known | settings),
    )  # fmt: skip


@lru_cache(maxsize=2)
def visible_texts(figure: Figure) -> list[Text]:
    """Every text that is on the page, laid out once so that ticks are final."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    beyond = _beyond(figure)
    return [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in beyond]


def readable(figure: Figure) -> None:
    texts = visible_texts(figure)
    boxes = [text.get_window_extent() for text in texts]
    page = figure.bbox
    for text, box in zip(texts, boxes, strict=True):
        inside = box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= page.y0 - 1 and box.y1 <= page.y1 + 1
        assert inside, f"{text.get_text()!r} leaves the figure"
    for i, (one, box) in enumerate(zip(texts, boxes, strict=True)):
        for other, covered in zip(texts[i + 1 :], boxes[i + 1 :], strict=True):
            wide = min(box.x1, covered.x1) - max(box.x0, covered.x0)
            tall = min(box.y1, covered.y1) - max(box.y0, covered.y0)
            assert not (wide > 1 and tall > 1), f"{one.get_text()!r} and {other.get_text()!r} overlap"


def _beyond(figure: Figure) -> set[Text]:
    """Labels of ticks outside the axis, which exist as artists and are never drawn."""
    beyond = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    beyond |= {tick.label1, tick.label2}
    return beyond


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in visible_texts(figure)]


def build_map(blocks: int, *, decades: float = 3.0) -> np.ndarray:
    """A symmetric map whose normalised diagonal falls from 1 by `decades` powers of ten."""
    side = 10.0 ** np.linspace(0, -decades, blocks)
    return np.sqrt(np.outer(side, side))


def build_block(name: str, **values: Any) -> BlockReport:
    """A block of 100 entries whose numbers are round, of the kind that its name ends with."""
    kind = "bias" if name.endswith("bias") else "scalar" if name.endswith("scale") else "weight"
    sizes = {"shape": (10, 10), "numel": 100, "fan_in": 10, "fan_out": 10}
    scales = dict.fromkeys(("gamma", "gamma_intrinsic", "gamma_curvature", "ratio"), 0.9)
    known = {"activation_scaling": 1.0, "nu": 3.0, "weight_sq": 0.1, "avg_sq_singular_value": 1.0}
    return reports.build_block(name=name, **({"kind": kind} | sizes | scales | known | values))


def build_report(blocks: Sequence[BlockReport], *, normalized: np.ndarray | None = None, **settings: Any) -> Report:
    """A report of LeNet's settings, with a map whose normalised entries are given."""
    weights = [block for block in blocks if block.kind == "weight"]
    numel = tuple(block.numel for block in weights)
    root = np.sqrt(np.asarray(numel, dtype=float))
    frobenius_sq = (build_map(len(weights)) if normalized is None else normalized) * np.outer(root, root)
    names = tuple(block.name for block in weights)
    heatmap = Heatmap(names=names, numel=numel, frobenius_sq=frobenius_sq, stderr=np.zeros_like(frobenius_sq))
    named = {"model": "lenet", "init": "geometric", "loss": "random-quadratic", "batch_size": 64, "seed": 0}
    ran = {"method_reason": "", "dtype": "float32", "versions": {}}
    return reports.build_report(*blocks, **({"heatmap": heatmap} | named | ran | settings))
