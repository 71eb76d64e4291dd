"""What hessdiag says to a case: the verdict and the findings that `hessdiag.diagnose` prints first.

They follow from the signals alone, so the curvature, which takes seconds, is left out.
"""

from functools import cache

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Reading, resolve_loss
from hessdiag.diagnosis import rules as causes
from hessdiag.diagnosis.signals import network_signals
from hessdiag.network.preserve import preserve_state
from hessdiag.results.findings import Finding, judge, told
from hessdiag.results.text_table import arranged
from tests.gallery.case import Case, Variant


@cache
def findings_of(case: Case, variant: Variant) -> tuple[Finding, ...]:
    """Findings on a case at its smallest width, seed 0."""
    model = case.build(variant)
    inputs, targets = case.batch()
    batch = Batch.of(inputs, targets)
    with preserve_state(model, seed=0):
        first = batch.narrow(0, 2).outputs(model)
        reading = Reading(None, first.class_dim, first.scalar)
        loss = resolve_loss(case.loss, y=first.y.detach(), targets=targets, seed=0, reading=reading)
        return causes.find(network_signals(model, batch, loss))


def said(case: Case, variant: Variant) -> list[str]:
    """The same as printed."""
    findings = findings_of(case, variant)
    return arranged([[judge(findings)[1]], *map(told, findings)]).splitlines()
