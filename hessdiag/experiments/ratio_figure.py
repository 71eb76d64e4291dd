"""Figure 1 of arXiv 1906.04267: theory over measurement, γ/σ², of the strided LeNet over random set-ups."""

from __future__ import annotations

from typing import Any

import numpy as np

from hessdiag.diagnosis.random_setups import measure_setups
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.loading.model_spec import resolve_model
from hessdiag.results.setups import Setups

SETUPS, BATCH_SIZE = 100, 1024  # the paper's
QUICK_SETUPS, QUICK_BATCH_SIZE = 10, 128


def steps(*, quick: bool) -> int:
    """Count the units of work."""
    return QUICK_SETUPS if quick else SETUPS


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work) -> Setups:
    """Measure set-ups of new weights, inputs and R each: exact Gauss-Newton blocks of each example."""
    return measure_setups(
        resolve_model("lenet"),
        setups=QUICK_SETUPS if quick else SETUPS,
        batch_size=QUICK_BATCH_SIZE if quick else BATCH_SIZE,
        init="geometric",
        seed=seed,
        device=device,
        work=work,
    )


def draw(setups: Setups) -> Any:
    """Draw one histogram a block."""
    from hessdiag.plots import draw_ratios

    return draw_ratios(setups)


def summary(setups: Setups) -> list[str]:
    """Write the median and 5-95 % range of γ/σ² of each block."""
    low, middle, high = np.nanquantile(setups.columns["ratio"], [0.05, 0.5, 0.95], axis=0)
    lines = [f"γ/σ² over {len(setups)} set-ups: median, 5-95 % range"]
    for name, *values in zip(setups.names, middle, low, high, strict=True):
        lines.append("{:14} {:.2f}  {:.2f}-{:.2f}".format(name, *values))
    return lines


FIGURE = Figure(
    name="ratios",
    steps=steps,
    measure=measure,
    write=Setups.to_json,
    read=Setups.from_json,
    draw=draw,
    summary=summary,
)
