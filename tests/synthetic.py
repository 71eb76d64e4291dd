"""Synthetic reports of known numbers, for pages and figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hessdiag.results.report import BlockReport, Heatmap, Report
from tests import reports


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
