"""Reports built by hand, of numbers that need no measurement."""

from dataclasses import replace
from typing import Any

import numpy as np

from hessdiag.results.report import BlockReport, Heatmap, Report

FC1 = BlockReport(
    name="fc1.weight", kind="weight", layer="Linear", shape=(3, 4), numel=12, fan_in=4, fan_out=3, kernel=(), groups=1,
    sites_in=1, sites_out=1, gamma=2.5, gamma_intrinsic=1 / 3, gamma_curvature=1.25, nu=12.0, weight_sq=0.5, ratio=1.25,
    activation_scaling=0.1 + 0.2,  # 0.30000000000000004: seventeen digits
    avg_sq_singular_value=2.0, stderr=0.0, relative_ratio=1.0, products=0, ended="exact",
)  # fmt: skip


def build_block(**values: Any) -> BlockReport:
    return replace(FC1, **values)


def build_report(*blocks: BlockReport, **values: Any) -> Report:
    """A report of some blocks whose map is ‖H_ij‖² = sqrt(‖H_ii‖² ‖H_jj‖²), except for `values`."""
    blocks = blocks or (() if "heatmap" in values else (FC1,))
    weights = [block for block in blocks if block.kind == "weight"]
    settings: dict[str, Any] = {"skipped": (), "model": "hand-made", "init": "fan-in", "loss": "mse", "matrix": "ggn"}
    settings |= {"per": "example", "method": "exact", "method_reason": "asked for", "seed": 3, "batch_size": 16}
    settings |= {"outputs": 10, "rtol": 0.05, "device": "cpu", "dtype": "float64", "versions": {"hessdiag": "0.1.0"}}
    if "heatmap" not in values:
        side = np.sqrt([block.avg_sq_singular_value * block.numel for block in weights])
        errors = [block.stderr * block.numel for block in weights]
        settings["heatmap"] = Heatmap(
            names=tuple(block.name for block in weights), numel=tuple(block.numel for block in weights),
            frobenius_sq=np.outer(side, side), stderr=np.diag(errors) if errors else np.zeros((0, 0)),
        )  # fmt: skip
    return Report(blocks=tuple(blocks), **(settings | values))
