"""A prescription of the calculus whose weights are equally curved by measurement, not by the theory's γ.

γ gives a weight all of the gradient behind it. On a residual branch of weight β only a share β² is the branch's own, so
that σ² is β² γ there, and no rule of the calculus knows it. Here σ² is measured over random set-ups of the prescribed
network; each weight is then multiplied by s = (σ²/σ²*)^¼ and its output by 1/s, which leaves all signals as they are
and multiplies this σ² and this γ by s⁻⁴.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from hessdiag.calculus.prescription import Prescription, apply_prescription
from hessdiag.diagnosis.random_setups import RandomSetups, as_text
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.loading.prepare import Prepared
from hessdiag.results.numbers import geometric_mean
from hessdiag.results.report import Report

Curvatures = Mapping[str, float]


def balance_curvature(prescription: Prescription, planned: RandomSetups, *, work: Work = ALL_HERE) -> Prescription:
    """Scale what is prescribed until the measured σ² of its weights are equal.

    Args:
        prescription: of the network that the set-ups are of.
        planned: set-ups, without an initialisation of their own; σ² is typical of them.
        work: carries out the measurements; three for each set-up.

    Returns:
        The prescription with other E[W²], multipliers and γ, and σ² before and after. What is prescribed is measured
        on as many set-ups with later seeds, which it was not found on.
    """
    before = _curvatures(planned, None, "as it is", work)
    plain = _curvatures(planned, prescription, "prescribed for γ", work)
    known = {layer.name: plain.get(layer.name, 0.0) for layer in prescription.layers}
    level = geometric_mean(list(known.values()))
    factors = {name: (value / level) ** 0.25 if value > 0 else 1.0 for name, value in known.items()}
    layers = tuple(
        replace(
            layer,
            weight_sq=layer.weight_sq * factors[layer.name] ** 2,
            multiplier=layer.multiplier / factors[layer.name],
            gamma=layer.gamma * factors[layer.name] ** -4,
        )
        for layer in prescription.layers
    )
    balanced = replace(prescription, layers=layers, balance="sigma", setups=planned.setups)
    later = replace(planned, seed=planned.seed + planned.setups)
    after = _curvatures(later, balanced, "prescribed for σ²", work)
    measured = tuple(
        replace(layer, curvature_before=before.get(layer.name, math.nan), curvature=after.get(layer.name, math.nan))
        for layer in layers
    )
    return replace(balanced, layers=measured)


def _curvatures(planned: RandomSetups, prescription: Prescription | None, which: str, work: Work) -> Curvatures:
    """Typical σ² of every weight: of a set-up relative to its other weights, then the median over set-ups.

    A draw of weights, inputs and loss multiplies all σ² by much the same number, which balance does not depend on.
    """

    def measure(prepared: Prepared, seed: int) -> Result:
        if prescription is not None:  # drawn on the CPU: the same numbers on every device
            apply_prescription(prepared.module.cpu(), prescription, generator=stream(seed, "prescription"))
            prepared.module.to(planned.device)
        return {"report": as_text(planned.report(prepared, seed))}

    found = [Report.from_json(str(result["report"])) for result in planned.each(work.within(which), measure)]
    each = [{block.name: block.avg_sq_singular_value for block in report.weights} for report in found]
    levels = [geometric_mean(list(values.values())) for values in each]
    usual = geometric_mean(levels)
    relative = [(values, level) for values, level in zip(each, levels, strict=True) if level > 0]
    return {name: usual * median(values[name] / level for values, level in relative) for name in each[0] if relative}
