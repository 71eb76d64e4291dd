"""A report as JSON, data frame and CSV, and what it derives from its own numbers."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

import hessdiag
from hessdiag.results.report import BlockReport, Heatmap, Report
from tests.networks import build
from tests.reports import build_block, build_report

AWKWARD = [math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2, math.pi]

BLOCK = "name shape numel fan_in fan_out kernel gamma gamma_intrinsic gamma_curvature nu avg_sq_singular_value stderr"
BLOCK += " ratio relative_ratio activation_scaling"
KEYS = "schema blocks heatmap skipped spread model loss matrix per method init seed batch_size device dtype versions"


def strict(text: str):
    return json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def damaged(report: Report, **changes) -> str:
    record = json.loads(report.to_json()) | changes
    return json.dumps({key: value for key, value in record.items() if value is not ...})


@pytest.mark.parametrize("value", AWKWARD)
def test_json_gives_every_number_back_exactly(value: float) -> None:
    block = build_block(nu=value, gamma=value)
    heatmap = Heatmap(
        names=("a", "b"), numel=(2, 3), frobenius_sq=np.array([[1.0, value], [value, 2.0]]),
        stderr=np.full((2, 2), value),
    )  # fmt: skip
    report = build_report(block, heatmap=heatmap)
    text = report.to_json()
    again = Report.from_json(text)
    assert (again, repr(again.blocks[0].nu)) == (report, repr(value))
    assert repr(float(again.heatmap.frobenius_sq[0, 1])) == repr(value)
    assert again.to_json() == text
    assert Report.from_json(damaged(report, said_by_another_version=1)) == report
    strict(text)


@pytest.mark.parametrize("network", ["conv groups", "unused", "groupnorm", "tied"])
def test_a_measured_report_survives_a_file_and_has_the_keys_of_the_contract(network: str, tmp_path: Path) -> None:
    report = hessdiag.diagnose(*build(network))
    text = report.to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text() == text
    for source in (text, tmp_path / "report.json", str(tmp_path / "report.json")):
        again = Report.from_json(source)
        assert (again, repr(again)) == (report, repr(report))
    record = strict(text)
    assert set(record) >= set(KEYS.split())
    assert record["schema"] == "hessdiag.report/2"
    assert all(set(block) >= set(BLOCK.split()) for block in record["blocks"])
    assert set(record["heatmap"]) >= {"names", "frobenius_sq", "stderr"}
    assert set(record["spread"]) == {"gamma", "nu", "avg_sq_singular_value"}
    assert {"hessdiag", "torch"} <= set(record["versions"])
    frame = report.to_dataframe()
    assert list(frame.columns) == [f.name for f in dataclasses.fields(BlockReport)]
    assert list(frame["name"]) == [block.name for block in report.blocks]
    assert list(frame["shape"]) == [tuple(block["shape"]) for block in record["blocks"]]
    for key in ("gamma", "nu", "avg_sq_singular_value", "ratio"):
        np.testing.assert_array_equal(frame[key], [getattr(block, key) for block in report.blocks])
    assert list(dataclasses.replace(report, blocks=()).to_dataframe().columns) == list(frame.columns)


@pytest.mark.parametrize(("source", "message"), [
    ("{not json", "not valid JSON"), ("{}", "schema None, expected 'hessdiag.report/2'"),
    ('{"schema": "hessdiag.setups/1"}', "schema 'hessdiag.setups/1', expected"),
    ('{"schema": "hessdiag.report/1"}', "'hessdiag.report/2'; another version of hessdiag wrote it: measure again"),
    ('{"schema": "hessdiag.report/2"}', "damaged"), (damaged(build_report(), blocks=[{"name": "a"}]), "damaged"),
    (damaged(build_report(), blocks=3), "damaged"), (damaged(build_report(), loss=...), "damaged"),
    (damaged(build_report(), heatmap={"names": ["a"]}), "damaged"),
    ("no such file.json", "cannot read 'no such file.json'"), ("", "cannot read"), (".", "cannot read"),
])  # fmt: skip
def test_what_is_no_report_is_refused_in_one_sentence(source: str, message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=message) as caught:
        Report.from_json(source)
    assert "\n" not in str(caught.value)


def test_csv_keeps_every_digit(tmp_path: Path) -> None:
    blocks = [build_block(name=f'b,"{i}"', nu=value) for i, value in enumerate(AWKWARD)]
    text = build_report(*blocks, heatmap=build_report().heatmap).to_csv(tmp_path / "blocks.csv")
    assert (tmp_path / "blocks.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == [f.name for f in dataclasses.fields(BlockReport)]
    assert ([repr(float(row["nu"])) for row in rows], rows[1]["name"]) == (list(map(repr, AWKWARD)), 'b,"1"')
    assert {row["shape"] for row in rows} == {"3x4"}


def test_the_spread_of_a_report_is_over_its_weights() -> None:
    blocks = [
        build_block(name="a.weight", gamma=1.0, nu=5.0, avg_sq_singular_value=2.0),
        build_block(name="b.weight", gamma=4.0, nu=1.0, avg_sq_singular_value=6.0),
        build_block(name="b.bias", kind="bias", gamma=1e6, nu=1e6, avg_sq_singular_value=1e6),
        build_block(name="u", kind="scalar", gamma=1e-6, nu=1e-6, avg_sq_singular_value=1e-6),
    ]
    report = build_report(*blocks)
    assert strict(report.to_json())["blocks"][0]["relative_curvature"] == 12 * 2.0 * 0.25
    assert report.spread == {"gamma": 4.0, "nu": 5.0, "avg_sq_singular_value": 3.0}
    assert [block.name for block in report.weights] == ["a.weight", "b.weight"]


@pytest.mark.parametrize(("network", "method"), [("conv stride", "exact"), ("tied", "probe")])
def test_the_normalized_map_is_symmetric_with_sigma_sq_on_its_diagonal(network: str, method: str) -> None:
    report = hessdiag.diagnose(*build(network), method=method)
    cells = report.heatmap.normalized()
    np.testing.assert_array_equal(cells, cells.T)
    sigma = [block.avg_sq_singular_value for block in report.weights]
    np.testing.assert_allclose(np.diagonal(cells), sigma, rtol=1e-12)
    i, j = 0, len(cells) - 1
    P = report.heatmap.numel
    assert cells[i, j] == pytest.approx(report.heatmap.frobenius_sq[i, j] / math.sqrt(P[i] * P[j]))


def test_a_report_knows_its_blocks_and_cannot_be_changed() -> None:
    report = build_report()
    for record, key in ((report, "loss"), (report.blocks[0], "gamma"), (report.heatmap, "names")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, key, "other")
    with pytest.raises(ValueError, match="read-only"):
        Report.from_json(report.to_json()).heatmap.frobenius_sq[0, 0] = 1.0
    second = build_block(name="fc2.weight")
    report = build_report(build_block(), second, skipped=(("norm.weight", "vector of 6"),))
    assert report["fc2.weight"] is second
    assert [block.name for block in report] == ["fc1.weight", "fc2.weight"]
    for name, message in (
        ("norm.weight", r"no block 'norm\.weight': vector of 6"),
        ("fc3", r"no block 'fc3': it has fc1\.weight, fc2\.weight"),
        ("head", r"no block 'head': it has fc1\.weight, fc2\.weight"),
        ("fc1", r"no block 'fc1': it has fc1\.weight$"),
    ):
        with pytest.raises(hessdiag.HessdiagError, match=message):
            report[name]
    block, heatmap = build_block(nu=math.nan), build_report().heatmap
    assert block == build_block(nu=float("nan"))
    for field in dataclasses.fields(BlockReport):
        value = "x" if isinstance(getattr(block, field.name), str) else 77
        other = dataclasses.replace(block, **{field.name: value})
        assert build_report(block, heatmap=heatmap) != build_report(other, heatmap=heatmap)
    changes = {"names": ("other",), "numel": (13,)} | dict.fromkeys(("frobenius_sq", "stderr"), np.full((1, 1), 99.0))
    assert all(heatmap != dataclasses.replace(heatmap, **{key: value}) for key, value in changes.items())
    assert heatmap == dataclasses.replace(heatmap)
    assert heatmap != "a map"
