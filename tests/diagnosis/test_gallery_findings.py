"""Public bugs are named and their repairs are not, through `hessdiag.diagnose` with its cheapest settings.

Networks are as small as still shows the bug; `scripts/gallery.py` scores all of them, at real sizes.
"""

from functools import cache

import pytest

import hessdiag
from hessdiag.results.comparison import compare_reports
from hessdiag.results.report import Report
from hessdiag.surgery import apply_finding
from tests.gallery import CASES, HEALTHY, Case, Healthy, match
from tests.gallery.variants import VARIANTS

BY_NAME = {case.name: case for case in CASES}
WIDTHS = {
    "trunc-normal": 64, "t5-head": 64, "depthwise-fan-out": 16, "conv-xavier": 16, "siren-first": 64, "lora-zero": 64,
    "selu-gain": 64, "linear-default": 64, "zero-module": 16, "gpt2-cproj": 256,
}  # fmt: skip
RULES = {
    "trunc-normal": "HD201", "t5-head": "HD101", "depthwise-fan-out": "HD204", "conv-xavier": "HD204",
    "siren-first": "HD107", "lora-zero": "HD401", "selu-gain": "HD103", "linear-default": "HD103",
    "zero-module": "HD104", "gpt2-cproj": "HD108",
}  # fmt: skip
NAMED = [name for name in WIDTHS if name != "gpt2-cproj"]  # its branches are too large at real widths alone
REPAIRED = ["depthwise-fan-out", "conv-xavier", "siren-first", "lora-zero", "selu-gain", "linear-default"]
CALM = ("lenet-he", "mlp-default", "mlp-tanh", "ppo-policy", "detector", "mlp-trained")


def measure(case: Case, variant: str) -> Report:
    model = case.build(variant, width=WIDTHS[case.name])  # type: ignore[arg-type]
    return diagnose(model, case)


def diagnose(model: object, case: Case) -> Report:
    inputs, targets = case.batch(width=WIDTHS[case.name])
    if targets.dim() == 1 and inputs.dim() == 4:  # images
        inputs, targets = inputs[:4], targets[:4]
    return hessdiag.diagnose(
        model,
        inputs,
        targets,
        loss=case.loss,
        rtol=0.5,
        max_products=2,
        noise_scale=False,  # type: ignore[arg-type]
    )


@cache
def before(name: str) -> Report:
    return measure(BY_NAME[name], "before")


@pytest.mark.parametrize("name", NAMED)
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


@pytest.mark.parametrize("name", REPAIRED)
def test_the_repair_of_the_finding_takes_it_away(name: str) -> None:
    case, first = BY_NAME[name], before(name).findings[0]
    model = case.build("before", width=WIDTHS[name])
    changed = apply_finding(model, first)
    assert set(changed) <= set(first.blocks)
    again = diagnose(model, case)
    assert first.rule not in {finding.rule for finding in again.findings}
    assert again.verdict.level == "healthy", again.findings
    comparison = compare_reports(before(name), again)
    assert first.rule in {finding.rule for finding in comparison.gone}
    assert "HD601" in {finding.rule for finding in comparison.findings}
    assert {finding.severity for finding in comparison.findings} == {"note"}  # it was advised


def test_a_repair_that_draws_leaves_no_note_on_the_scheme() -> None:
    """Kaiming's draw of lora_A is 85 times above the scheme that GPT-2's weights follow (HD206)."""
    case = next(case for case in VARIANTS if case.name == "peft-zero")
    model = case.build("before", width=64)
    inputs, targets = case.batch(width=64)
    options = {"loss": case.loss, "rtol": 0.5, "max_products": 2, "noise_scale": False}
    (first,) = hessdiag.diagnose(model, inputs[:2], targets[:2], **options).findings  # type: ignore[arg-type]
    assert first.rule == "HD401"
    apply_finding(model, first)
    assert hessdiag.diagnose(model, inputs[:2], targets[:2], **options).findings == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("healthy", [h for h in HEALTHY if h.name in CALM], ids=lambda healthy: healthy.name)
def test_healthy_networks_are_left_in_peace(healthy: Healthy) -> None:
    inputs, targets = healthy.batch()
    report = hessdiag.diagnose(
        healthy.build(), inputs, targets, loss=healthy.loss, rtol=0.5, max_products=2, noise_scale=False
    )
    assert report.verdict.level == "healthy", report.findings
