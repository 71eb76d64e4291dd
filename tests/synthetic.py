"""Synthetic reports of known numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hessdiag.report import BlockReport, Heatmap, Report


def build_map(blocks: int, *, decades: float = 3.0) -> np.ndarray:
    """A symmetric map whose normalised diagonal falls from 1 by `decades` powers of ten."""
    side = 10.0 ** np.linspace(0, -decades, blocks)
    return np.sqrt(np.outer(side, side))


def build_block(name: str, **values: Any) -> BlockReport:
    kind = "bias" if name.endswith("bias") else "scalar" if name.endswith("scale") else "weight"
    block = BlockReport(
        name=name,
        kind=kind,
        layer="Linear",
        shape=(10, 10),
        numel=100,
        fan_in=10,
        fan_out=10,
        kernel=(),
        groups=1,
        sites_in=1,
        sites_out=1,
        activation_scaling=1.0,
        gamma=0.9,
        gamma_intrinsic=0.9,
        gamma_curvature=0.9,
        nu=3.0,
        weight_sq=0.1,
        avg_sq_singular_value=1.0,
        stderr=0.0,
        ratio=0.9,
        relative_ratio=1.0,
        products=0,
        ended="exact",
    )
    return replace(block, **values)


def build_report(blocks: Sequence[BlockReport], *, normalized: np.ndarray | None = None, **settings: Any) -> Report:
    weights = [block for block in blocks if block.kind == "weight"]
    numel = tuple(block.numel for block in weights)
    root = np.sqrt(np.asarray(numel, dtype=float))
    values = build_map(len(weights)) if normalized is None else normalized
    known = {
        "skipped": (),
        "model": "lenet",
        "init": "geometric",
        "loss": "random-quadratic",
        "matrix": "ggn",
        "per": "example",
        "method": "exact",
        "method_reason": "",
        "seed": 0,
        "batch_size": 64,
        "outputs": 10,
        "rtol": 0.05,
        "device": "cpu",
        "dtype": "float32",
    }
    frobenius_sq = values * np.outer(root, root)
    heatmap = Heatmap(
        names=tuple(b.name for b in weights),
        numel=numel,
        frobenius_sq=frobenius_sq,
        stderr=np.zeros_like(frobenius_sq),
    )
    return Report(blocks=tuple(blocks), heatmap=heatmap, **(known | settings))
