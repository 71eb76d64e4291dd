"""Compare two networks block by block: two reports, or two models measured on the same examples."""

import os
from collections.abc import Iterable
from typing import Any

from torch import nn

from hessdiag.data.batch import Inputs
from hessdiag.data.stream import batches_for
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.errors import HessdiagError
from hessdiag.results.comparison import Comparison, compare_reports
from hessdiag.results.report import Report

Side = Report | str | os.PathLike[str] | nn.Module


def compare(
    before: Side, after: Side, inputs: Inputs | Iterable[Any] | None = None, targets: Inputs | None = None,
    **options: Any,
) -> Comparison:  # fmt: skip
    """Find which block changed between two networks, in what, and by how much.

    Args:
        before, after: each a `Report`, the JSON file of one, or a model to measure.
        inputs, targets: as `hessdiag.diagnose` takes them, for models; both models see the same examples.
        options: of `hessdiag.diagnose`, such as `loss="cross-entropy"`, for models.

    Returns:
        A `Comparison`; printing it shows the table.

    Raises:
        HessdiagError: the two cannot be compared; one sentence says why.

    >>> import torch
    >>> model, larger = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    >>> _ = larger.load_state_dict({"weight": 10 * model.weight})
    >>> comparison = compare(model, larger, torch.ones(1, 2))
    >>> round(comparison["weight"].ratios["weight_sq"].value, 3)
    100.0
    """
    if (models := [side for side in (before, after) if isinstance(side, nn.Module)]) and inputs is None:
        raise HessdiagError("a model is to be measured: pass inputs too, compare(before, after, inputs, targets)")
    if not models and (inputs is not None or targets is not None or options):
        raise HessdiagError("reports hold what was measured: pass inputs, targets and options with models alone")
    how = {key: options[key] for key in {"batch_dim", "examples"} & {*options}}
    batches = [] if inputs is None else [*batches_for(models[0], inputs, targets, **how)]  # for both

    def report(side: Side) -> Report:
        if isinstance(side, nn.Module):
            return diagnose(side, (batch.given for batch in batches), **options)
        return side if isinstance(side, Report) else Report.from_json(side)

    return compare_reports(report(before), report(after))
