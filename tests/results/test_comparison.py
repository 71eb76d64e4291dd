"""Two reports side by side: ratios, intervals, ranking, causes and findings, from numbers made by hand."""

import json
import math
from dataclasses import replace

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.results.comparison import Comparison, compare_reports, resampled_factor
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.numbers import Z95
from hessdiag.results.report import Report
from tests.reports import build_block, build_report
from tests.signals import network

MANY = {"numel": 10_000, "shape": (100, 100)}


def five(**changed: dict) -> Report:
    """Five large blocks a to e; keyword arguments change those of these names."""
    return build_report(*(build_block(name=name, **MANY, **changed.get(name, {})) for name in "abcde"))


def test_ratios_are_after_over_before_and_relative_to_the_median_block() -> None:
    after = five(a={"nu": 36.0}, b={"nu": 24.0}, c={"nu": 24.0}, d={"nu": 24.0}, e={"nu": 240.0})
    comparison = compare_reports(five(), after)
    assert comparison.medians["nu"] == pytest.approx(2.0)
    nu = comparison["e"].ratios["nu"]
    assert (nu.before, nu.after, nu.value, nu.relative) == (12.0, 240.0, 20.0, pytest.approx(10.0))
    assert nu.low == nu.high == 20.0
    assert comparison["a"].ratios["nu"].relative == pytest.approx(1.5)
    assert comparison.blocks[:2] == ("e", "a")
    assert ([change.name for change in comparison], len(comparison)) == (list(comparison.blocks), 5)
    with pytest.raises(KeyError, match="nothing"):
        comparison["nothing"]


def test_weights_come_before_gradients_whose_changes_are_their_consequences() -> None:
    comparison = compare_reports(five(), five(b={"weight_sq": 1.0}, d={"nu": 1e6}))
    assert comparison.blocks[:2] == ("b", "d")
    assert [comparison[name].cause for name in "bda"] == ["weights", "gradients", "nothing"]
    assert comparison["b"].score == pytest.approx(math.log(2))
    comparison = compare_reports(five(), five(b={"weight_sq": 1.0}, d={"nu": 1e3}))
    told = [(f.rule, f.severity, f.blocks) for f in comparison.findings]
    assert told == [("HD601", "warning", ("b",)), ("HD602", "note", ("d",))]
    alone = compare_reports(five(), five(d={"nu": 1e3}))
    assert [(f.rule, f.severity) for f in alone.findings] == [("HD602", "warning")]


def test_a_new_draw_of_the_weights_is_no_change_of_weights() -> None:
    """χ² of P entries has the relative variance 2/P; 5 standard errors of the difference are allowed."""
    assert resampled_factor(10_000) == pytest.approx(math.exp(5 * math.sqrt(4 / 10_000)), rel=1e-3)
    blocks = [build_block(name=name, numel=20, shape=(4, 5)) for name in "abc"]
    drawn = [replace(blocks[0], weight_sq=0.5 * 2.5), *blocks[1:]]
    comparison = compare_reports(build_report(*blocks), build_report(*drawn))
    assert (comparison["a"].cause, comparison.findings) == ("nothing", ())
    large = [replace(block, **MANY) for block in drawn]
    few = [build_block(name=name, numel=4, shape=(2, 2)) for name in "abc"]
    anew = [replace(few[0], weight_sq=0.5 / 8, nu=12.0 * 8), *few[1:]]  # ν = E[ΔW²] / E[W²] changes with E[W²] alone
    assert compare_reports(build_report(*few), build_report(*anew))["a"].cause == "nothing"
    of_many = compare_reports(build_report(*(replace(block, **MANY) for block in blocks)), build_report(*large))
    assert of_many["a"].cause == "weights"


def test_sampled_values_have_log_normal_intervals_and_noise_is_no_finding() -> None:
    before = five(a={"avg_sq_singular_value": 2.0, "stderr": 0.2, "ended": "rtol"})
    after = five(a={"avg_sq_singular_value": 6.0, "stderr": 0.6, "ended": "rtol"})
    sigma = compare_reports(before, after)["a"].ratios["avg_sq_singular_value"]
    room = math.exp(Z95 * math.hypot(0.1, 0.1))
    assert (sigma.value, sigma.low, sigma.high) == pytest.approx((3.0, 3.0 / room, 3.0 * room))
    scaling = compare_reports(before, after)["a"].ratios["curvature_scaling"]
    assert scaling.high / scaling.value == pytest.approx(room)
    noisy = {"avg_sq_singular_value": 60.0, "stderr": 59.0, "ended": "budget"}
    assert compare_reports(five(), five(a=noisy))["a"].cause == "nothing"
    unbounded = compare_reports(five(), five(a=noisy))["a"].ratios["avg_sq_singular_value"]
    assert (unbounded.value, unbounded.low, unbounded.high) == (30.0, 0.0, math.inf)
    fair = {"avg_sq_singular_value": 60.0, "stderr": 12.0, "ended": "rtol"}  # 30, but perhaps 20
    assert compare_reports(five(), five(a=fair))["a"].cause == "nothing"
    precise = {"avg_sq_singular_value": 60.0, "stderr": 0.6, "ended": "rtol"}
    (finding,) = compare_reports(five(), five(a=precise)).findings
    assert (finding.rule, finding.severity, finding.blocks) == ("HD603", "warning", ("a",))
    assert finding.value == pytest.approx(30.0)
    for sigma in (-1.0, 0.5):
        lost = build_block(name="a", **MANY, avg_sq_singular_value=sigma, stderr=1.0, ended="budget")
        comparison = compare_reports(five(), replace(five(), blocks=(lost, *five().blocks[1:])))
        assert math.isnan(comparison["a"].ratios["avg_sq_singular_value"].value)
        assert comparison.findings == ()
    equal = compare_reports(five(), five())
    assert (equal.findings, {change.score for change in equal}) == ((), {0.0})
    assert "None of 5 parameters differs by more than two seeds of one initialisation do." in repr(equal)


def test_zeros_and_undefined_numbers() -> None:
    zero = {"weight_sq": 0.0, "nu": math.nan, "avg_sq_singular_value": 0.0}
    comparison = compare_reports(five(a=zero, b=zero, c={"weight_sq": 0.0, "nu": math.nan}), five(b=zero))
    assert comparison.blocks[:2] == ("c", "a") or comparison.blocks[:2] == ("a", "c")
    assert (comparison["a"].ratios["weight_sq"].value, comparison["a"].score) == (math.inf, math.inf)
    assert math.isnan(comparison["a"].ratios["nu"].value)
    assert (comparison["b"].ratios["weight_sq"].value, comparison["b"].cause) == (1.0, "nothing")
    assert "no longer zero" in comparison.findings[0].message
    denormal = compare_reports(five(a={"weight_sq": 1e-80}), five(a={"weight_sq": 0.0}))
    assert denormal["a"].ratios["weight_sq"].value == 1.0


def test_a_finding_names_all_blocks_that_it_is_of() -> None:
    names = [f"h.{layer}.{part}.weight" for layer in range(4) for part in ("c_attn", "c_proj")]
    before = build_report(*(build_block(name=name, **MANY) for name in names))
    grown = [replace(b, weight_sq=12.0, nu=0.5) if "proj" in b.name else b for b in before.blocks]
    (finding,) = compare_reports(before, build_report(*grown)).findings
    assert (finding.rule, finding.severity) == ("HD601", "warning")
    assert finding.blocks == tuple(name for name in names if "proj" in name)
    assert finding.message == "h.#.c_proj ×4: weights 4.90× as large."
    assert finding.value == pytest.approx(24.0)
    names = [f"{letter}.weight" for letter in "abcdefghij"]
    before = build_report(*(build_block(name=name, **MANY) for name in names))
    after = build_report(*(replace(b, weight_sq=0.5 * 2 ** (i + 1)) for i, b in enumerate(before.blocks)))
    comparison = compare_reports(before, after)
    assert comparison.blocks == tuple(reversed(names))
    (finding,) = comparison.findings
    assert finding.blocks == comparison.blocks
    assert finding.message.startswith("j, i, h, g, f and 5 more: weights 1.41 to 32.0× as large")
    after = five(**{name: {"nu": 12.0 * 100, "avg_sq_singular_value": 2.0 * 1e4} for name in "abcde"})
    comparison = compare_reports(five(), after)
    told = [(f.rule, f.severity, f.blocks) for f in comparison.findings]
    assert told == [("HD602", "warning", ()), ("HD603", "warning", ())]
    assert "100× as large" in comparison.findings[0].message


def test_what_is_in_one_alone_or_set_otherwise_is_listed_or_refused() -> None:
    shared = build_block(name="a")
    reshaped = build_block(name="head", shape=(5, 4), numel=20)
    before = build_report(shared, build_block(name="old"), build_block(name="head"))
    comparison = compare_reports(before, build_report(shared, build_block(name="new"), reshaped))
    assert (comparison.blocks, comparison.only_before) == (("a",), ("old", "head"))
    assert comparison.only_after == ("new", "head")
    (finding,) = comparison.findings
    assert (finding.rule, finding.severity) == ("HD604", "note")
    assert finding.message.startswith("4 parameters have no counterpart of their name and shape: old, head, new, head.")
    for key, other in (("loss", "cross-entropy"), ("matrix", "hessian"), ("per", "batch")):
        with pytest.raises(HessdiagError, match=rf"differ in {key}, .* before and '{other}' after: measure both"):
            compare_reports(five(), replace(five(), **{key: other}))
    with pytest.raises(HessdiagError, match=r"no parameter of the same name and shape in common: compare two versions"):
        compare_reports(build_report(build_block(name="a")), build_report(build_block(name="b")))
    comparison = compare_reports(five(), replace(five(), batch_size=32, seed=4))
    assert comparison.differences == ("batch size: 16 before, 32 after", "seed: 3 before, 4 after")
    assert "measured otherwise: batch size: 16 before, 32 after" in repr(comparison)


def test_earlier_files_compare_and_biases_do_not_count_in_the_median() -> None:
    """Files of earlier versions have no moments around the layer: those ratios are undefined, the others stand."""
    record = json.loads(five().to_json())
    for block in record["blocks"]:
        for key in ("x_sq", "out_sq", "x_gradient_sq", "out_gradient_sq"):
            block.pop(key, None)
    comparison = compare_reports(Report.from_json(json.dumps(record)), five(a={"nu": 24.0}, b={"weight_sq": 0.0}))
    written = json.loads(comparison.to_json())
    assert (written["schema"], written["blocks"][0]) == ("hessdiag.comparison/2", "b")
    assert Comparison.from_json(comparison.to_json()).to_json() == comparison.to_json()
    assert comparison["a"].ratios["nu"].value == 2.0
    assert math.isnan(comparison["a"].ratios["x_sq"].value)
    bias = {"kind": "bias", "shape": (100,), "numel": 100, "weight_sq": 0.0, "nu": math.nan}
    blocks = [build_block(name="a", **MANY), *(build_block(name=f"bias{i}", **bias) for i in range(3))]
    after = [replace(blocks[0], nu=24.0), *(replace(b, avg_sq_singular_value=200.0) for b in blocks[1:])]
    comparison = compare_reports(build_report(*blocks), build_report(*after))
    assert comparison.medians["nu"] == pytest.approx(2.0)
    assert comparison.medians["avg_sq_singular_value"] == 1.0
    assert comparison["bias0"].score == pytest.approx(math.log(100) / 2)
    assert comparison["bias0"].cause == "curvature"


def test_every_rule_is_explained() -> None:
    shared = five(**{name: {"nu": 1e4} for name in "abcde"})
    others = (five(a={"weight_sq": 1.0}, b={"nu": 1e4}), five(a={"avg_sq_singular_value": 1e3}), shared)
    added = replace(five(), blocks=(*five().blocks, build_block(name="f")))
    findings = [f for other in (*others, added) for f in compare_reports(five(), other).findings]
    assert {finding.rule for finding in findings} == {f"HD60{number}" for number in range(1, 5)}


def found(rule: str, *blocks: str, severity: Severity = "warning") -> Finding:
    words = {"message": f"{rule} said.", "advice": "Do this.", "value": 5.0, "threshold": 4.0}
    return Finding(rule=rule, severity=severity, blocks=blocks, **words)


def with_findings(report: Report, *findings: Finding) -> Report:
    return replace(report, findings=findings, signals=network())


def test_what_is_gone_is_said_first_and_only_where_signals_are_known() -> None:
    before = with_findings(five(), found("HD206", "a", "c"), found("HD110", "e", severity="note"))
    after = with_findings(five(a={"weight_sq": 0.02}, b={"weight_sq": 0.02}), found("HD206", "c"), found("HD208", "d"))
    comparison = compare_reports(before, after)
    assert [(f.rule, f.blocks) for f in comparison.resolved] == [("HD206", ("a",)), ("HD110", ("e",))]
    assert [(f.rule, f.blocks) for f in comparison.new] == [("HD208", ("d",))]
    told = [(f.rule, f.severity, f.blocks) for f in comparison.findings]
    assert told == [("HD601", "warning", ("b",)), ("HD601", "note", ("a",))]
    assert comparison.findings[1].advice == "HD206 resolved here: nothing is to be done."
    assert repr(comparison).splitlines()[:3] == [
        "resolved: HD206 a (warning)", "resolved: HD110 e (note)", "new: HD208 warning: HD208 said. Do this.",
    ]  # fmt: skip
    assert Comparison.from_json(comparison.to_json()).to_json() == comparison.to_json()
    known, unknown = with_findings(five(), found("HD206", "a")), five()
    assert compare_reports(known, unknown).resolved == compare_reports(unknown, known).new == ()
    comparison = compare_reports(with_findings(five(), found("HD101")), with_findings(five()))
    assert repr(comparison).splitlines()[0] == "resolved: HD101 (warning)"


@pytest.mark.parametrize(("rule", "was", "changed", "has", "expected"), [
    ("HD202", "fault", {"weight_sq": 0.02}, "note", ("HD601", "note")),  # A repair that brings a warning is one,
    ("HD202", "note", {"weight_sq": 0.02}, "note", ("HD601", "warning")),
    ("HD202", "note", {"weight_sq": 0.02}, "warning", ("HD601", "warning")),
    # and so are weights of which only a note was known,
    ("HD206", "note", {"weight_sq": 0.02}, None, ("HD601", "warning")),
    ("HD206", "note", {"weight_sq": 0.0}, None, ("HD601", "warning")),
    ("HD206", "warning", {"weight_sq": 0.0}, None, ("HD601", "note")),
    ("HD105", "warning", {"nu": 1e4}, None, ("HD602", "note")),  # but not gradients after the repair of inputs.
    ("HD105", "note", {"nu": 1e4}, None, ("HD602", "warning")),
])  # fmt: skip
def test_changes_beside_a_repair(rule: str, was: Severity, changed, has: Severity | None, expected) -> None:
    before = with_findings(five(), found(rule, "a", severity=was))
    new = [found("HD107", "a", severity=has)] if has else []
    for names in "a", "abcde" if "nu" in changed else "a":
        comparison = compare_reports(before, with_findings(five(**dict.fromkeys(names, changed)), *new))
        assert [(f.rule, f.severity) for f in comparison.findings] == [expected]
