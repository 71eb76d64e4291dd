"""Public bugs are named and their repairs are not, through `hessdiag.diagnose` with its cheapest settings.

Networks are as small as still shows the bug; `scripts/gallery.py` scores all of them, at real sizes.
"""

from functools import cache

import pytest

import hessdiag
from hessdiag.results.comparison import compare_reports
from hessdiag.results.report import Report
from tests.gallery import CASES, HEALTHY, Case, Healthy, match
from tests.gallery.case import MODE

BY_NAME = {case.name: case for case in CASES}
WIDTHS = {
    "trunc-normal": 64, "t5-head": 64, "depthwise-fan-out": 16, "conv-xavier": 16, "siren-first": 64, "lora-zero": 64,
    "selu-gain": 64, "linear-default": 64, "zero-module": 16,
}  # fmt: skip
RULES = {
    "trunc-normal": "HD201", "t5-head": "HD101", "depthwise-fan-out": "HD204", "conv-xavier": "HD204",
    "siren-first": "HD107", "lora-zero": "HD401", "selu-gain": "HD103", "linear-default": "HD103",
    "zero-module": "HD104",
}  # fmt: skip
REPAIRED = ["depthwise-fan-out", "conv-xavier", "siren-first", "lora-zero", "selu-gain", "linear-default"]
CALM = ("lenet-he", "mlp-default", "mlp-tanh", "ppo-policy", "detector", "mlp-trained")


def measure(case: Case, variant: str) -> Report:
    model = case.build(variant, width=WIDTHS[case.name])  # type: ignore[arg-type]
    inputs, targets = case.batch()
    if targets.dim() == 1 and inputs.dim() == 4:  # images
        inputs, targets = inputs[:4], targets[:4]
    return hessdiag.diagnose(model, inputs, targets, loss=case.loss, mode=MODE, rtol=0.5, max_products=2)


@cache
def before(name: str) -> Report:
    return measure(BY_NAME[name], "before")


@pytest.mark.parametrize("name", WIDTHS)
def test_the_guilty_block_comes_first(name: str) -> None:
    report = before(name)
    first = report.findings[0]
    assert first.rule == RULES[name]
    assert match(first.blocks[0], BY_NAME[name].guilty)
    assert report.verdict.level == ("faulty" if first.severity == "fault" else "suspicious")


@pytest.mark.parametrize("name", REPAIRED)
def test_the_repaired_twin_is_healthy(name: str) -> None:
    report = measure(BY_NAME[name], "after")
    assert report.verdict.level == "healthy", report.findings
    comparison = compare_reports(before(name), report)
    first = before(name).findings[0]
    assert first.rule in {finding.rule for finding in comparison.resolved}
    changed = [
        found for found in comparison.findings if found.rule == "HD601" and set(found.blocks) & set(first.blocks)
    ]
    assert {found.severity for found in changed} == {"note"}  # it was advised


@pytest.mark.parametrize("healthy", [h for h in HEALTHY if h.name in CALM], ids=lambda healthy: healthy.name)
def test_healthy_networks_are_left_in_peace(healthy: Healthy) -> None:
    inputs, targets = healthy.batch()
    report = hessdiag.diagnose(healthy.build(), inputs, targets, loss=healthy.loss, mode=MODE, rtol=0.5, max_products=2)
    assert report.verdict.level == "healthy", report.findings
