"""Verdict and balance of a report: right about the numbers, and never surer than the noise allows."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import hessdiag
from hessdiag.results.findings import CHECKS, Balance, Finding, Severity, weigh
from tests import reports
from tests.signals import network
from tests.view.figures import build_block


def weights(*sizes: float, error: float = 0.0, names: str = "abcdefgh") -> list[hessdiag.BlockReport]:
    """Weights with these σ², each with the same relative standard error."""
    ended = "rtol" if error else "exact"
    values = [{"avg_sq_singular_value": size, "stderr": error * size, "ended": ended} for size in sizes]
    return [build_block(f"{name}.weight", **held) for name, held in zip(names, values, strict=False)]


def of(*sizes: float, error: float = 0.0) -> Balance:
    return weigh(weights(*sizes, error=error))


@pytest.mark.parametrize(("factor", "level"), [
    (1.0, "balanced"), (1.999, "balanced"), (2.0, "uneven"), (10.0, "uneven"), (10.01, "unbalanced"),
])  # fmt: skip
def test_the_level_follows_the_factor(factor: float, level: str) -> None:
    for scale in (1.0, 1e-30, 1e30):
        balance = of(scale, factor * scale)
        assert balance.level == level
        assert balance.factor == balance.low == balance.high == pytest.approx(factor)
        assert "noise" not in balance.sentence
        assert level not in balance.sentence.lower()  # it is no verdict
        assert balance.notes == ()


@pytest.mark.parametrize(("sizes", "level", "sentence"), [
    ((2.0, 1.0, 40.0), "unbalanced", "Curvature differs by 6.3× between layers: most in c, least in b."),
    ((), "undecided", "Too few layers count to judge differences in curvature."),
    ((5.0,), "undecided", "Too few layers count to judge differences in curvature."),
    ((0.0, 0.0), "undecided", "The curvature of a, b is zero, as of a linear loss."),
    ((1.0, 0.0, 1.21), "unbalanced", "The curvature of b is zero, as of a linear loss."
        " Curvature differs by 1.1× between the other 2 layers: most in c, least in a."),
    ((1.0, math.nan, 64.0), "undecided", "The curvature of b is undefined or infinite."
        " Curvature differs by 8.0× between the other 2 layers: most in c, least in a."),
    ((1.0, math.inf), "undecided", "The curvature of b is undefined or infinite."),
])  # fmt: skip
def test_sentences_on_exact_numbers(sizes: tuple[float, ...], level: str, sentence: str) -> None:
    balance = of(*sizes)
    assert (balance.level, balance.sentence) == (level, sentence)
    spread = reports.build_report(*weights(*sizes), heatmap=reports.build_report().heatmap).spread
    assert balance.factor == pytest.approx(spread["avg_sq_singular_value"], nan_ok=True)


def test_noise_is_said_in_closed_form_and_exact_weights_stay_apart_beside_it() -> None:
    for factor, error in ((15.0, 1.0), (2.2, 0.6)):
        hidden = of(1.0, factor, error=error)
        assert (hidden.level, hidden.low) == ("undecided", 1.0)
        assert "(not resolved: pass a smaller rtol, --rtol)" in hidden.sentence
    between = of(1.0, 2.2, error=0.1)
    assert between.level == "uneven"
    assert "differs by 1.5× (1.3 to 1.7 with sampling noise)" in between.sentence
    assert of(1.0, 1.1, error=0.05).level == "balanced"
    noisy, exact = of(1.0, 40.0, error=0.05), of(1.0, 40.0)
    assert noisy.low < exact.factor < noisy.high
    balance = of(1.0, 5.0, error=0.1)
    room = 1.959964 * math.hypot(0.1, 0.1)
    assert math.log(balance.factor / balance.low) == pytest.approx(room, rel=1e-6)
    assert math.log(balance.high / balance.factor) == pytest.approx(room, rel=1e-6)
    *exact, last = weights(1.0, 40.0, 2.0)
    balance = weigh([*exact, replace(last, stderr=20.0, ended="budget")])
    assert (balance.level, balance.low) == ("unbalanced", pytest.approx(40.0))
    for error in (math.nan, math.inf, 0.9):  # unknown noise is no evidence
        assert (of(1.0, 30.0, error=error).level, of(1.0, 30.0, error=error).high) == ("undecided", math.inf)


@pytest.mark.parametrize("count", [2, 30])
def test_equal_weights_rarely_look_different(count: int) -> None:
    """The interval holds for all pairs at once: of many equal weights the extremes differ by chance."""
    rng = np.random.default_rng(3)
    error, trials = 0.1, 300
    names = [f"{i}" for i in range(count)]
    draws = np.exp(error * rng.standard_normal((trials, count)))
    false_alarms = sum(weigh(weights(*draw, error=error, names=names)).low > 1.0 for draw in draws)
    assert false_alarms <= 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)


@pytest.mark.parametrize(("value", "last"), [(-0.5, 3.0), (0.0, 3.0), (-1.0, 300.0)])
def test_a_sampled_value_below_zero_is_no_missing_curvature(value: float, last: float) -> None:
    first, lost, other = weights(1.0, 2.0, last, error=0.02)
    balance = weigh([first, replace(lost, avg_sq_singular_value=value, stderr=1.0, ended="budget"), other])
    assert balance.level == ("unbalanced" if last > 100 else "undecided")
    assert balance.sentence.startswith("The curvature of b is lost in sampling noise. Curvature differs by")
    assert "between the other 2 layers" in balance.sentence


def finding(severity: Severity) -> Finding:
    return Finding(
        rule="HD202", severity=severity, blocks=("fc1.weight", "fc2.weight"), message=f"A {severity} <b>here</b>.",
        advice="Do this.", value=5.0, threshold=4.0,
    )  # fmt: skip


def report_with(*severities: Severity) -> hessdiag.Report:
    return reports.build_report(findings=tuple(map(finding, severities)), signals=network())


@pytest.mark.parametrize(("level", "severities", "sentence"), [
    ("no-problem", (), f"No problem found in {CHECKS} checks."),
    ("no-problem", ("note",), f"No problem found in {CHECKS} checks (1 note)."),
    ("suspicious", ("warning", "note"), "1 warning, 1 note: look first at fc1 (HD202)."),
    ("faulty", ("fault", "fault", "note"), "2 faults, 1 note: look first at fc1 (HD202)."),
])  # fmt: skip
def test_the_gravest_finding_decides(level: str, severities: tuple[Severity, ...], sentence: str) -> None:
    verdict = report_with(*severities).verdict
    assert (verdict.level, verdict.sentence) == (level, sentence)


def test_without_signals_it_is_undecided_and_what_is_invariant_is_left_out() -> None:
    assert reports.build_report().verdict.level == "undecided"
    assert "(ValueError: no)" in reports.build_report(signals_missing="ValueError: no").verdict.sentence
    balance = weigh(weights(1.0, 1e-9, 1.5), invariant=["b.weight"])
    assert balance.factor == 1.5
    assert balance.sentence.endswith("1 layer before a normalisation does not count: scale does not matter there.")
    assert balance.notes == ("Before a normalisation: b.",)


def test_table_page_and_json_begin_with_the_verdict_and_many_findings_are_summed_up() -> None:
    report = report_with("fault", "note")
    lines = repr(report).splitlines()
    assert lines[0] == report.verdict.sentence
    found = [
        "", "HD202 fault: fc1 and 1 more", "  found: A fault <b>here</b>.", "  do: Do this.",
        "  why: hessdiag explain HD202",
    ]  # fmt: skip
    assert lines[1:6] == found
    page = hessdiag.to_html(report)
    assert 0 < page.index("1 fault") < page.index("A fault &lt;b&gt;here&lt;/b&gt;.") < page.index("<table")
    assert list(json.loads(report.to_json()))[:4] == ["schema", "verdict", "spread", "findings"]
    assert hessdiag.Report.from_json(report.to_json()) == report
    report = report_with(*["fault"] * 3, *["warning"] * 3, *["note"] * 2)
    text = " ".join(repr(report).split())
    assert text.count("Do this.") == 2
    assert "and 6 more: HD202 fault, HD202 warning, HD202 warning, HD202 warning, HD202 note, HD202 note (-v" in text
    assert report.text("whole").count("Do this.") == 8
    assert repr(report).splitlines()[0] == report.text("brief").splitlines()[0]
