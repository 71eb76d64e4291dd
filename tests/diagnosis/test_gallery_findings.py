"""Public bugs are named and their repairs are not, through `hessdiag.diagnose` with its cheapest settings.

Of two cases, as small as still show the bug: `tests/test_gallery_page.py` has what is said of each at its real size.
"""

import pytest
from strangers.gallery import CASES, HEALTHY, Healthy, match
from strangers.gallery.case import MODE

import hessdiag
from hessdiag.results.comparison import compare_reports

BY_NAME = {case.name: case for case in CASES}
OPTIONS = {"mode": MODE, "rtol": 0.5, "max_products": 2}
CALM = ("lenet-he", "mlp-default", "mlp-tanh", "ppo-policy", "detector", "mlp-trained")


@pytest.mark.parametrize(("name", "rule"), [("siren-first", "HD107"), ("lora-zero", "HD401"), ("conv-xavier", "HD204")])
def test_the_guilty_block_comes_first_and_the_repaired_twin_is_healthy(name: str, rule: str) -> None:
    case, (inputs, targets) = BY_NAME[name], BY_NAME[name].batch()
    if targets.dim() == 1 and inputs.dim() == 4:  # images
        inputs, targets = inputs[:4], targets[:4]
    before, after = (
        hessdiag.diagnose(model, inputs, targets, loss=case.loss, **OPTIONS)
        for model in (case.build(variant, width=16 if inputs.dim() == 4 else 64) for variant in ("before", "after"))
    )
    first = before.findings[0]
    assert first.rule == rule
    assert match(first.blocks[0], case.guilty)
    assert before.verdict.level == ("faulty" if first.severity == "fault" else "suspicious")
    assert after.verdict.level == "no-problem", after.findings
    comparison = compare_reports(before, after)
    assert rule in {finding.rule for finding in comparison.resolved}
    changed = [found for found in comparison.findings if found.rule == "HD601"]
    changed = [found for found in changed if set(found.blocks) & set(first.blocks)]
    assert {found.severity for found in changed} == {"note"}  # it was advised


@pytest.mark.parametrize("healthy", [h for h in HEALTHY if h.name in CALM], ids=lambda healthy: healthy.name)
def test_healthy_networks_are_left_in_peace(healthy: Healthy) -> None:
    inputs, targets = healthy.batch()
    report = hessdiag.diagnose(healthy.build(), inputs, targets, loss=healthy.loss, **OPTIONS)
    assert report.verdict.level == "no-problem", report.findings
