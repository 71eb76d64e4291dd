"""The sentence on a report: right about the numbers, and never surer than the noise allows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hessdiag.results.balance import weigh
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.judgement import Balance
from hessdiag.results.rate_balance import balance_sentence
from hessdiag.results.report import Report
from tests.synthetic import build_block, build_report


def report_of(*sizes: float, error: float = 0.0, names: str = "abcdefgh", **settings: object) -> Report:
    """Weight blocks with these σ², each with the same relative standard error."""
    ended = "rtol" if error else "exact"
    blocks = [
        build_block(f"{name}.weight", avg_sq_singular_value=size, stderr=error * size, ended=ended)
        for name, size in zip(names, sizes, strict=False)
    ]
    return build_report(blocks, **settings)


def of(*sizes: float, error: float = 0.0) -> Balance:
    return weigh(report_of(*sizes, error=error))


@pytest.mark.parametrize(
    ("factor", "level"),
    [
        (1.0, "balanced"),
        (1.3, "balanced"),
        (1.999, "balanced"),
        (2.0, "uneven"),
        (10.0, "uneven"),
        (10.01, "unbalanced"),
        (473, "unbalanced"),
    ],
)
def test_the_level_follows_the_factor(factor: float, level: str) -> None:
    verdict = of(1.0, factor)
    assert verdict.level == level
    assert verdict.sentence.lower().startswith(level)
    assert verdict.factor == verdict.low == verdict.high == pytest.approx(factor)
    assert verdict.notes == ()


def test_balanced_names_the_factor() -> None:
    assert of(1.0, 1.3, 1.1).sentence == (
        "Balanced within 1.30×: no weight block has more than 1.30 times the average squared singular value of another."
    )


def test_equal_blocks_without_noise_do_not_mention_it() -> None:
    verdict = of(1.0, 1.0)
    assert verdict.factor == 1.0
    assert "noise" not in verdict.sentence


def test_unbalanced_names_the_largest_and_the_smallest_block() -> None:
    assert of(2.0, 1.0, 40.0).sentence == (
        "Unbalanced: c.weight has 40.0× the average squared singular value of b.weight, about 6.32× the curvature; one"
        " learning rate will not suit both."
    )


def test_uneven_says_how_far_a_learning_rate_is_off() -> None:
    assert of(3.2, 1.0).sentence == (
        "Uneven: a.weight has 3.20× the average squared singular value of b.weight; curvatures, and the learning rates"
        " that suit them, differ by about 1.79×."
    )


def test_the_factor_does_not_depend_on_units() -> None:
    tiny, huge = of(1e-30, 3e-30), of(1e30, 3e30)
    assert tiny.sentence == huge.sentence
    assert tiny.factor == pytest.approx(huge.factor)


def test_biases_and_scalars_do_not_count() -> None:
    weights = report_of(1.0, 1.1)
    others = [build_block("a.bias", avg_sq_singular_value=1e6), build_block("b.scale", avg_sq_singular_value=0.0)]
    assert weigh(replace(weights, blocks=(*weights.blocks, *others))) == weigh(weights)


@pytest.mark.parametrize("blocks", [[], [build_block("a.bias"), build_block("b.scale")]])
def test_without_weights_there_is_nothing_to_compare(blocks: list) -> None:
    verdict = weigh(build_report(blocks))
    assert verdict.level == "undecided"
    assert verdict.sentence == "Nothing to compare: no weight block was measured."
    assert math.isnan(verdict.factor)


def test_a_single_block_has_nothing_to_compare_with() -> None:
    assert of(5.0).level == "undecided"
    assert of(5.0, error=math.inf).sentence == "Nothing to compare: a.weight is the only weight block."
    assert of(0.0).sentence == (
        "Nothing to compare: a.weight is the only weight block, and a.weight has no curvature at all on this batch"
        " (σ² is 0)."
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_undefined_block_leaves_it_undecided(value: float) -> None:
    verdict = of(1.0, value, 40.0)
    assert verdict.level == "undecided"
    assert verdict.sentence == (
        "Undecided: the curvature of b.weight is undefined or infinite; among the other 2 weight blocks the largest is"
        " 40.0× the smallest."
    )
    assert of(1.0, value).sentence == "Undecided: the curvature of b.weight is undefined or infinite."
    assert of(value).level == "undecided"


def test_a_block_without_curvature_is_unbalanced() -> None:
    verdict = of(1.0, 0.0, 1.2)
    assert verdict.level == "unbalanced"
    assert verdict.factor == math.inf
    assert verdict.sentence == (
        "Unbalanced: b.weight has no curvature at all on this batch (σ² is 0), as if it does not reach the loss; among"
        " the other 2 weight blocks the largest is 1.20× the smallest."
    )
    assert "have no curvature" in of(1.0, 0.0, 0.0).sentence


def test_undefined_and_zero_blocks_are_both_named() -> None:
    sentence = of(math.nan, 0.0, 1.0).sentence
    assert sentence.startswith("Undecided")
    assert "a.weight is undefined" in sentence
    assert "b.weight has no curvature" in sentence


def test_curvature_nowhere_is_undecided() -> None:
    verdict = of(0.0, 0.0)
    assert verdict.level == "undecided"
    assert "no weight block has any curvature" in verdict.sentence
    assert math.isnan(verdict.factor)


@pytest.mark.parametrize("sizes", [(1.0, 1.3), (1.0, 0.0), (1.0, math.nan), (0.0, 0.0), ()])
def test_the_factor_is_the_spread_of_the_report(sizes: tuple[float, ...]) -> None:
    report = report_of(*sizes)
    assert weigh(report).factor == pytest.approx(report.spread["avg_sq_singular_value"], nan_ok=True)


def test_noise_below_the_threshold_is_balanced_and_said() -> None:
    verdict = of(1.0, 1.1, error=0.05)
    assert verdict.level == "balanced"
    assert verdict.sentence == "Balanced within 1.10×: what differs is no larger than the sampling noise."


def test_noise_that_hides_everything_is_undecided() -> None:
    for factor in (1.1, 3.0, 15.0):
        verdict = of(1.0, factor, error=1.0)
        assert verdict.level == "undecided"
        assert "sampling noise alone" in verdict.sentence
        assert verdict.low == 1.0


def test_noise_that_leaves_two_levels_open_is_said() -> None:
    verdict = of(1.0, 2.2, error=0.1)
    assert verdict.level == "uneven"
    assert "(1.67 to 2.90 with sampling noise)" in verdict.sentence
    assert "with sampling noise" in of(1.0, 1.8, error=0.1).sentence
    assert of(1.0, 1.8, error=0.1).level == "balanced"


def test_noise_that_changes_nothing_is_not_in_the_sentence() -> None:
    noisy, exact = of(1.0, 40.0, error=0.05), of(1.0, 40.0)
    assert noisy.sentence == exact.sentence
    assert noisy.low < exact.factor < noisy.high


def test_interval_of_two_blocks_in_closed_form() -> None:
    verdict = of(1.0, 5.0, error=0.1)
    room = 1.959964 * math.hypot(0.1, 0.1)
    assert math.log(verdict.factor / verdict.low) == pytest.approx(room, rel=1e-6)
    assert math.log(verdict.high / verdict.factor) == pytest.approx(room, rel=1e-6)


def test_unknown_noise_is_no_evidence() -> None:
    assert of(1.0, 30.0, error=math.nan).level == "undecided"
    assert of(1.0, 30.0, error=math.inf).high == math.inf


@pytest.mark.parametrize("count", [2, 5, 60])
def test_equal_blocks_rarely_look_different(count: int) -> None:
    """The interval holds for all pairs at once: of many equal blocks the extremes differ by chance."""
    rng = np.random.default_rng(3)
    error, trials = 0.1, 400
    names = [f"{i}" for i in range(count)]
    false_alarms = sum(
        weigh(report_of(*np.exp(error * rng.standard_normal(count)), error=error, names=names)).low > 1.0
        for _ in range(trials)
    )
    assert false_alarms <= 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)


def test_exact_blocks_stay_apart_beside_noisy_ones() -> None:
    report = report_of(1.0, 40.0, 2.0)
    noisy = replace(report.blocks[2], stderr=20.0, ended="budget")
    verdict = weigh(replace(report, blocks=(*report.blocks[:2], noisy)))
    assert verdict.level == "unbalanced"
    assert verdict.low == pytest.approx(40.0)


def test_notes_say_what_was_cut_short_and_what_was_left_out() -> None:
    report = report_of(*range(1, 8), skipped=(("norm.weight", "normalisation"), ("norm.bias", "normalisation")))
    blocks = tuple(replace(block, ended="budget", stderr=0.4) for block in report.blocks)
    cut, left_out = weigh(replace(report, blocks=blocks, method="probe")).notes
    assert cut == (
        "Sampling left the standard error above 5 % for a.weight, b.weight, c.weight and 4 more; a larger max_products"
        " or a smaller rtol narrows it."
    )
    assert left_out == "The verdict does not cover what was not measured: norm.weight and norm.bias."


@pytest.mark.parametrize("value", [-0.5, -1e-9, 0.0])
def test_a_sampled_value_below_zero_is_no_missing_curvature(value: float) -> None:
    report = report_of(1.0, 2.0, 3.0, error=0.02)
    lost = replace(report.blocks[1], avg_sq_singular_value=value, stderr=1.0, ended="budget")
    verdict = weigh(replace(report, blocks=(report.blocks[0], lost, report.blocks[2])))
    assert verdict.level == "undecided"
    assert verdict.sentence.startswith(
        "Undecided: the curvature of b.weight is lost in sampling noise; among the other"
    )
    assert "no curvature" not in verdict.sentence


def test_blocks_apart_enough_stay_unbalanced_beside_one_that_is_lost() -> None:
    report = report_of(1.0, 2.0, 300.0, error=0.02)
    lost = replace(report.blocks[1], avg_sq_singular_value=-1.0, stderr=1.0, ended="budget")
    verdict = weigh(replace(report, blocks=(report.blocks[0], lost, report.blocks[2])))
    assert verdict.level == "unbalanced"
    assert "b.weight is lost in sampling noise" in verdict.sentence


def test_a_large_block_that_may_be_zero_proves_nothing() -> None:
    """1000 ± 900: as a logarithm it would be 170 at least."""
    report = report_of(1.0, 1000.0)
    loud = replace(report.blocks[1], stderr=900.0, ended="budget")
    assert weigh(replace(report, blocks=(report.blocks[0], loud))).level == "undecided"


def test_only_blocks_that_missed_rtol_are_named() -> None:
    report = report_of(1.0, 1.1, 1.2, error=0.2)
    known = replace(report.blocks[0], ended="budget", stderr=0.0084)
    blocks = (known, *(replace(block, ended="budget") for block in report.blocks[1:]))
    (note,) = weigh(replace(report, blocks=blocks)).notes
    assert "above 5 % for b.weight and c.weight;" in note


@pytest.mark.parametrize(
    ("severities", "start", "end"),
    [
        ((), "Learning rates: unbalanced, c.weight has 40.0×", "So are many networks that train well."),
        (("note",), "Learning rates: unbalanced, ", "So are many networks that train well."),
        (("warning",), "Learning rates: unbalanced, ", "one learning rate will not suit both."),
    ],
)
def test_unbalanced_blocks_are_told_as_a_fact_about_learning_rates(
    severities: tuple[Severity, ...], start: str, end: str
) -> None:
    words = {"blocks": (), "message": "", "advice": "", "value": 0.0, "threshold": 0.0}
    findings = tuple(Finding(rule="HD202", severity=severity, **words) for severity in severities)
    report = replace(report_of(2.0, 1.0, 40.0), findings=findings, loss="mse")
    sentence = balance_sentence(report, weigh(report))
    assert sentence.startswith(start)
    assert sentence.endswith(end)
    assert weigh(report).sentence.startswith("Unbalanced: c.weight")  # in the file as it was


def test_uneven_blocks_are_told_as_they_are() -> None:
    report = report_of(2.0, 1.0, 4.0)
    assert balance_sentence(report, weigh(report)) == weigh(report).sentence
