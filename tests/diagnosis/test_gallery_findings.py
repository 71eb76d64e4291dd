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


@pytest.mark.parametrize(("name", "rule", "seed"), [
    ("siren-first", "HD107", 0), ("lora-zero", "HD401", 0), ("conv-xavier", "HD204", 0), ("linear-default", "HD103", 1),
])  # fmt: skip
def test_the_guilty_block_comes_first_and_the_repaired_twin_is_healthy(name: str, rule: str, seed: int) -> None:
    """Also in comparisons, of which the one way round is a repair and the other breaks."""
    case, (inputs, targets) = BY_NAME[name], BY_NAME[name].batch()
    image = name == "conv-xavier"
    inputs, targets = (inputs[:4], targets[:4]) if image else (inputs[:16], targets[:16])
    before, after = (
        hessdiag.diagnose(model, inputs, targets, loss=case.loss, **OPTIONS)
        for model in (
            case.build(variant, width=16 if image else 64, seed=each)
            for variant, each in (("before", 0), ("after", seed))
        )
    )
    first = before.findings[0]
    assert first.rule == rule
    assert match(first.blocks[0], case.guilty)
    assert before.verdict.level == ("faulty" if first.severity == "fault" else "suspicious")
    assert after.verdict.level == "no-problem", after.findings
    comparison = compare_reports(before, after)
    assert rule in {finding.rule for finding in comparison.resolved}
    assert match(comparison.blocks[0], case.guilty)
    found, mended = comparison.findings[0], {block for finding in comparison.resolved for block in finding.blocks}
    assert match(found.blocks[0], case.guilty)
    assert (found.rule, found.severity) == ("HD601", "note" if set(found.blocks) <= mended else "warning")
    broken = compare_reports(after, before).findings[0]
    assert (broken.rule, broken.severity) == ("HD601", "warning")


@pytest.mark.parametrize("healthy", [h for h in HEALTHY if h.name in CALM], ids=lambda healthy: healthy.name)
def test_healthy_networks_are_left_in_peace(healthy: Healthy) -> None:
    inputs, targets = healthy.batch()
    report = hessdiag.diagnose(healthy.build(), inputs, targets, loss=healthy.loss, **OPTIONS)
    assert report.verdict.level == "no-problem", report.findings
