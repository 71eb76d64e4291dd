"""Many reports as arrays: means and errors as NumPy has them, one experiment at a time, exact in JSON."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hessdiag
from hessdiag.results.report import Heatmap, Report
from hessdiag.results.setups import COLUMNS, Setups, Study
from tests.reports import build_block, build_report

SETTINGS = {
    "model": "other", "init": "fan-out", "loss": "random-quadratic", "matrix": "hessian", "per": "batch",
    "method": "probe", "batch_size": 17, "device": "cuda", "dtype": "float32", "data": "random normal",
    "versions": {"hessdiag": "0.0.0"},
}  # fmt: skip


def random_reports(count: int) -> list[Report]:
    """Reports of two weights and a bias, of random numbers."""
    rng = np.random.default_rng(0)
    reports = []
    for seed in range(5, 5 + count):
        blocks = [
            build_block(name=name, kind=kind, numel=numel, **dict(zip(COLUMNS, rng.lognormal(size=9), strict=True)))
            for name, kind, numel in (("a.weight", "weight", 4), ("a.bias", "bias", 3), ("b.weight", "weight", 9))
        ]
        side, noise = rng.lognormal(size=(2, 2, 2))
        heatmap = Heatmap(names=("a.weight", "b.weight"), numel=(4, 9), frobenius_sq=side @ side.T, stderr=noise)
        reports.append(build_report(*blocks, heatmap=heatmap, seed=seed))
    return reports


@pytest.fixture
def reports() -> list[Report]:
    return random_reports(7)


def test_columns_map_and_settings_are_those_of_the_reports_and_others_are_refused(reports: list[Report]) -> None:
    setups = Setups.collect(iter(reports))
    for key in COLUMNS:
        expected = [[getattr(report.blocks[place], key) for place in (0, 2)] for report in reports]
        np.testing.assert_array_equal(setups.columns[key], expected)
    maps = np.array([report.heatmap.frobenius_sq for report in reports])
    noise = np.array([report.heatmap.stderr for report in reports])
    np.testing.assert_allclose(setups.frobenius_sq, maps.mean(0))
    np.testing.assert_allclose(setups.frobenius_sq_stderr, maps.std(0, ddof=1) / math.sqrt(7))
    for i, j in np.ndindex(2, 2):
        by_hand = math.sqrt(sum(noise[s, i, j] ** 2 for s in range(7))) / 7
        assert setups.estimator_stderr[i, j] == pytest.approx(by_hand, rel=1e-12)
    mean = np.mean([report.heatmap.normalized() for report in reports], axis=0)
    np.testing.assert_allclose(setups.normalized(), mean)
    low, high = sorted(np.diagonal(mean))
    assert setups.spread == pytest.approx(high / low)
    assert (len(setups), setups.seed, setups.names, setups.numel) == (7, 5, ("a.weight", "b.weight"), (4, 9))
    assert all(getattr(setups, key) == getattr(reports[0], key) for key in SETTINGS)
    with pytest.raises(hessdiag.HessdiagError, match="no trials were measured"):
        Setups.collect([])
    setups = Setups.collect(random_reports(1))
    assert np.isnan(setups.frobenius_sq_stderr).all()
    np.testing.assert_array_equal(setups.estimator_stderr, random_reports(1)[0].heatmap.stderr)
    assert Setups.from_json(setups.to_json()).to_json() == setups.to_json()
    for key, value in SETTINGS.items():
        with pytest.raises(hessdiag.HessdiagError, match=f"differ in {key}: .* collect one experiment at a time"):
            Setups.collect([*reports, replace(reports[0], **{key: value})])
    for change in ({"names": ("a.weight", "c.weight")}, {"numel": (4, 12)}):
        with pytest.raises(hessdiag.HessdiagError, match="different blocks"):
            Setups.collect([*reports, replace(reports[0], heatmap=replace(reports[0].heatmap, **change))])


def test_json_gives_set_ups_and_studies_back_exactly(reports: list[Report], tmp_path: Path) -> None:
    block = replace(reports[3].blocks[0], ratio=math.nan, nu=math.inf, gamma=5e-324)
    reports[3] = replace(reports[3], blocks=(block, *reports[3].blocks[1:]))
    setups = Setups.collect(reports)
    text = setups.to_json(tmp_path / "setups.json")
    for source in (text, tmp_path / "setups.json"):
        again = Setups.from_json(source)
        for key in COLUMNS:
            np.testing.assert_array_equal(again.columns[key], setups.columns[key])
        np.testing.assert_array_equal(again.frobenius_sq, setups.frobenius_sq)
        assert again == setups
        assert again.to_json() == text
    record = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert record["schema"] == "hessdiag.setups/1"
    assert set(record["columns"]) == set(COLUMNS)
    study = Study((setups, replace(setups, init="geometric")))
    study.to_json(tmp_path / "study.json")
    assert Study.from_json(tmp_path / "study.json") == study
    assert Study.from_json(Study(()).to_json()).panels == ()


@pytest.mark.parametrize("kind", [Setups, Study, Report])
def test_one_kind_of_file_is_not_taken_for_another_and_damaged_ones_are_refused(kind, reports: list[Report]) -> None:
    setups = Setups.collect(reports)
    for other in (setups, Study((setups,)), reports[0]):
        if not isinstance(other, kind):
            with pytest.raises(hessdiag.HessdiagError, match="has schema"):
                kind.from_json(other.to_json())
    for rest in ("", ', "names": 3', ', "panels": [3]', ', "panels": [{"names": 3}]'):
        with pytest.raises(hessdiag.HessdiagError, match="damaged") as caught:
            kind.from_json(f'{{"schema": "{kind.schema}"{rest}}}')
        assert str(caught.value).count("damaged") == 1
