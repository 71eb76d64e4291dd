"""The table that a report prints: the same text as last time, at most 120 columns wide, nothing lost."""

import dataclasses
import math
import os
import re
from pathlib import Path

import pytest

from hessdiag.results.report import COLUMNS, BlockReport, Report
from hessdiag.results.text_table import WIDTH, fit_names
from tests.reports import build_block, build_report

GOLDEN = Path(__file__).parents[1] / "golden" / "table.txt"

EXTREME = [math.nan, -math.inf, -1.2345e-308, 99999.0]
NUMBERS = ("activation_scaling", "gamma", "gamma_curvature", "nu", "avg_sq_singular_value", "ratio", "relative_ratio")


def mixed_report() -> Report:
    """A block of every kind, numbers of every size, one skipped parameter, one block that the budget ended."""
    conv = build_block(
        name="conv1.weight",
        layer="Conv2d",
        shape=(6, 3, 5, 5),
        numel=450,
        activation_scaling=7.3e-5,
        gamma=0.00779,
        avg_sq_singular_value=0.00278,
        stderr=0.0001,
        ratio=2.8021,
        products=400,
        ended="budget",
    )
    bias = build_block(name="fc1.bias", kind="bias", shape=(3,), numel=3, gamma=123456.0, nu=math.nan)
    scalar = build_block(name="u", kind="scalar", shape=(), numel=1, avg_sq_singular_value=0.0, ratio=math.nan)
    return build_report(
        conv,
        build_block(stderr=0.02, products=64, ended="rtol"),
        bias,
        scalar,
        method="probe",
        matrix="hessian",
        per="batch",
        skipped=(("norm.weight", "vector of 6 in LayerNorm: neither a weight matrix, a bias nor a scalar"),),
    )


def rows_of(report: Report) -> list[str]:
    """Header and block rows."""
    lines = repr(report).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("block "))
    rows = lines[start : lines.index("", start)]
    return [row for row in rows if not row.startswith("not shown in ")]


def test_the_table_is_as_it_was() -> None:
    text = repr(mixed_report()) + "\n"
    if os.environ.get("HESSDIAG_OVERWRITE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "if it is meant, run again with HESSDIAG_OVERWRITE_GOLDEN=1"


def hostile_report(value: float) -> Report:
    """Sixty blocks with endless names and shapes, every number the same."""
    names = [f"model.encoder.stages.{i}.layers.{i}.a_rather_long_attribute_name.projection.weight" for i in range(60)]
    numbers = dict.fromkeys((*NUMBERS, "stderr"), value)
    blocks = [
        build_block(name=name, shape=(65536, 65536, 31, 31, 31), **(numbers | {"ended": "rtol"})) for name in names
    ]
    return build_report(
        *blocks,
        heatmap=build_report().heatmap,
        model="hf:" + "long-organisation-name/" * 9,
        method="probe",
        method_reason="a reason " * 30,
        skipped=tuple((name, "because " * 30) for name in names),
    )


@pytest.mark.parametrize("value", EXTREME)
def test_nothing_is_wider_than_120_columns_and_no_number_is_cut(value: float) -> None:
    report = hostile_report(value)
    text = repr(report)
    assert max(map(len, text.splitlines())) <= WIDTH == 120
    assert text.count("not measured:") == 1
    assert not any(line != line.rstrip() for line in text.splitlines())
    _, *rows = rows_of(report)
    assert len(rows) == 60
    assert all("…" not in cell for row in rows for cell in row.split()[1:])
    assert len({len(row.split()) for row in rows}) == 1


def test_sampling_says_what_ended_it() -> None:
    reached = build_block(ended="rtol", products=64)
    known = build_block(name="wte.weight", ended="budget", products=400, stderr=0.0084)  # within rtol all the same
    missed = build_block(name="fc2.weight", ended="budget", products=400, stderr=0.5)
    heatmap = build_report().heatmap
    assert "sampling: rtol 0.05 reached with at most 64 products a block" in repr(build_report(reached))
    text = repr(build_report(reached, known, missed, heatmap=heatmap))
    assert "sampling: rtol 0.05 missed with at most 400 products a block on fc2.weight\n" in text
    fixed = [build_block(ended="sampled", products=32, stderr=0.1), build_block(name="u", kind="scalar")]
    assert "sampling: 32 products a block, standard errors up to 5.0 %;" in repr(build_report(*fixed, rtol=None))
    assert "sampling" not in repr(build_report())


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/nothing]", ":smile:", "layers[0].weight", "\\[x]"])
def test_names_are_shown_as_they_are(name: str) -> None:
    report = build_report(build_block(name=name), model=name, skipped=((name, name),))
    assert repr(report).count(name) == 4  # model, row, and twice below


@pytest.mark.parametrize(
    ("names", "width", "fitted"),
    [
        (["short", "names"], 5, ["short", "names"]),
        (["encoder.q.weight", "decoder.q.weight"], 12, ["e…r.q.weight", "d…r.q.weight"]),
        (["a" * 9, "b"], 4, ["…aaa", "b"]),
        ([], 10, []),
    ],
)
def test_long_names_lose_what_they_have_in_common(names: list[str], width: int, fitted: list[str]) -> None:
    assert fit_names(names, width) == fitted


def test_every_column_says_which_attribute_it_shows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (.+?) \| `(\w+)` \|", page, re.MULTILINE)
    legend = {title: name for titles, name in told for title in titles.split(", ")}
    whole = mixed_report().text("whole").split()
    assert set(COLUMNS.values()) <= {f.name for f in dataclasses.fields(BlockReport)}
    for title, name in COLUMNS.items():
        if title not in ("block", "shape"):
            assert legend[title] == name
            assert f"{name}," in whole or name in whole


@pytest.mark.parametrize(("value", "stderr"), [(-9.98e3, 2e4), (0.0, 1.0), (1.0, 3.0)])
def test_what_is_lost_in_noise_is_undecided(value: float, stderr: float) -> None:
    lost = build_block(name="b", avg_sq_singular_value=value, stderr=stderr, ended="budget", products=20)
    sampled = build_block(stderr=0.02, ended="rtol")
    _, known, row = rows_of(build_report(sampled, lost, method="sketch", heatmap=build_report().heatmap))
    assert row.split()[4:8] == ["undecided", "–", "–", "–"]
    assert known.split()[5] == "1.0"  # 0.02 / 2 in percent
