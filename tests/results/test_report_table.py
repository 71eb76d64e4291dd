"""The table that a report prints, in terminals of any width: the same text as last time, and nothing lost."""

import dataclasses
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hessdiag.results.findings import Finding
from hessdiag.results.numbers import percent, short, spread
from hessdiag.results.report import COLUMNS, BlockReport, Report, cells
from hessdiag.results.text_table import WIDTH, Detail, TextTable, fit_names, grouped, layer_of, plain_text, text_width
from tests.pages import read
from tests.reports import build_block, build_report
from tests.signals import network

GOLDEN = Path(__file__).parents[1] / "golden" / "table.txt"

EXTREME = [math.nan, -math.inf, -1.2345e-308, 99999.0]
NUMBERS = ("activation_scaling", "gamma", "gamma_curvature", "nu", "avg_sq_singular_value", "ratio", "relative_ratio")


def mixed_report() -> Report:
    """A block of every kind, numbers of every size, one skipped parameter, one block that the budget ended."""
    conv = build_block(
        name="conv1.weight", layer="Conv2d", shape=(6, 3, 5, 5), numel=450, activation_scaling=7.3e-5, gamma=0.00779,
        avg_sq_singular_value=0.00278, stderr=0.0001, ratio=2.8021, products=400, ended="budget",
    )  # fmt: skip
    bias = build_block(name="fc1.bias", kind="bias", shape=(3,), numel=3, gamma=123456.0, nu=math.nan)
    scalar = build_block(name="u", kind="scalar", shape=(), numel=1, avg_sq_singular_value=0.0, ratio=math.nan)
    return build_report(
        conv, build_block(stderr=0.02, products=64, ended="rtol"), bias, scalar, method="probe", matrix="hessian",
        per="batch",
        skipped=(("norm.weight", "vector of 6 in LayerNorm: neither a weight matrix, a bias nor a scalar"),),
    )  # fmt: skip


def rows_of(report: Report, title: str = "block", detail: Detail = "whole") -> list[str]:
    lines = report.text(detail).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{title} "))
    rows = [*lines[start:], ""]
    return [row for row in rows[: rows.index("")] if not row.startswith("not shown in ")]


def test_the_table_is_as_it_was() -> None:
    text = "\n\n".join(map(mixed_report().text, ("table", "whole"))) + "\n"
    if os.environ.get("HESSDIAG_OVERWRITE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "if it is meant, run again with HESSDIAG_OVERWRITE_GOLDEN=1"


def hostile_report(value: float) -> Report:
    """Sixty blocks with endless names and shapes, every number the same."""
    names = [f"model.encoder.stages.{i}.layers.{i}.a_rather_long_attribute_name.projection.weight" for i in range(60)]
    numbers = dict.fromkeys((*NUMBERS, "stderr"), value) | {"ended": "rtol"}
    blocks = [build_block(name=name, shape=(65536, 65536, 31, 31, 31), **numbers) for name in names]
    return build_report(
        *blocks, heatmap=build_report().heatmap, model="hf:" + "long-organisation-name/" * 9, method="probe",
        method_reason="a reason " * 30, skipped=tuple((name, "because " * 30) for name in names),
    )  # fmt: skip


@pytest.mark.parametrize("value", EXTREME)
def test_nothing_is_wider_than_120_columns_and_no_number_is_cut(value: float) -> None:
    report = hostile_report(value)
    text = repr(report)
    assert max(map(len, text.splitlines())) <= WIDTH == 120
    assert text.count("Not measured:") == 1
    assert not any(line != line.rstrip() for line in text.splitlines())
    _, *rows = rows_of(report)
    assert len(rows) == 60
    assert len({len(row.split()) for row in rows}) == 1


def test_sampling_says_how_large_errors_are() -> None:
    reached = build_block(ended="rtol", products=64)
    missed = build_block(name="fc2.weight", ended="budget", products=400, stderr=0.5)
    text = build_report(reached, missed, heatmap=build_report().heatmap).text("whole")
    assert "sampling: at most 400 products a block, standard errors up to 25.0 % (rtol 0.05 was asked for)" in text
    fixed = [build_block(ended="sampled", products=32, stderr=0.1), build_block(name="u", kind="scalar")]
    text = build_report(*fixed, rtol=None).text("whole")
    told = "at most 32 products a block, standard errors up to 5.0 % (--rtol (rtol=) asks for smaller ones)"
    assert f"sampling: {told}" in text
    assert "sampling" not in repr(build_report())


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/nothing]", ":smile:", "layers[0].weight", "\\[x]"])
def test_names_are_shown_as_they_are(name: str) -> None:
    report = build_report(build_block(name=name), model=name, skipped=((name, name),))
    assert repr(report).count(layer_of(name)) == 3  # model, row, and not measured
    assert report.text("whole").count(name) == 4


@pytest.mark.parametrize(("names", "width", "fitted"), [
    (["short", "names"], 5, ["short", "names"]),
    (["encoder.q.weight", "decoder.q.weight"], 12, ["e…r.q.weight", "d…r.q.weight"]),
    (["a" * 9, "b"], 4, ["…aaa", "b"]), ([], 10, []),
])  # fmt: skip
def test_long_names_lose_what_they_have_in_common(names: list[str], width: int, fitted: list[str]) -> None:
    assert fit_names(names, width) == fitted


def test_every_column_says_which_attribute_it_shows() -> None:
    told = re.findall(r"^\| (.+?) \| `(\w+)` \|", read("docs/concepts.md"), re.MULTILINE)
    legend = {title: name for titles, name in told for title in titles.split(", ")}
    noisy = build_block(stderr=0.01, ended="sampled")
    for title, *shown in zip(COLUMNS[2:], cells(noisy)[2:], strict=True):
        assert [cells(dataclasses.replace(noisy, **{legend[title]: 0.123}))[COLUMNS.index(title)]] != shown


@pytest.mark.parametrize(("value", "stderr"), [(-9.98e3, 2e4), (0.0, 1.0), (1.0, 3.0)])
def test_what_is_lost_in_noise_is_undecided(value: float, stderr: float) -> None:
    lost = build_block(name="b", avg_sq_singular_value=value, stderr=stderr, ended="budget", products=20)
    sampled = build_block(stderr=0.02, ended="rtol")
    report = build_report(sampled, lost, method="sketch", heatmap=build_report().heatmap)
    _, known, row = rows_of(report)
    assert row.split()[4:8] == ["undecided", "–", "–", "–"]
    assert known.split()[5] == "1.0"  # 0.02 / 2 in percent
    *_, row = rows_of(report, "layer", "table")
    assert ("–" in row) == (value <= 0)
    assert "> 100 %" in row


def curved(*sizes: float, name: str = "h.{}.fc.weight", shape: tuple[int, ...] = (3, 4)) -> list[BlockReport]:
    blocks = enumerate(sizes)
    return [build_block(name=name.format(i), shape=shape, avg_sq_singular_value=size**2) for i, size in blocks]


def test_layers_stand_by_their_curvature_and_those_near_the_typical_one_are_counted() -> None:
    """Closed form: curvatures over their geometric mean, which is 1 here."""
    blocks = [
        *curved(0.5, 1.0, 2.0), *curved(4.0, name="head.weight"), *curved(0.25, name="h.3.fc.weight", shape=(4, 4)),
    ]  # fmt: skip
    bias = build_block(name="head.bias", kind="bias", avg_sq_singular_value=1e9)
    assert rows_of(build_report(*blocks, bias), "layer", "table") == [
        "layer      shape  curvature     range    flat│steep",
        "head       3×4        4.00×                  │██████",
        "h.#.fc ×3  3×4        1.00×  0.50–2.0        │",
        "h.3.fc     4×4       0.250×            ██████│",
    ]
    flat = build_report(*blocks, *curved(0.0, math.nan, name="{}.flat.weight"))
    assert [row.split()[2] for row in rows_of(flat, "layer", "table")[-2:]] == ["0×", "–"]
    sizes = [2.0 ** (i - 10) for i in range(21)]
    rows = rows_of(build_report(*curved(*sizes, name="l{}")), "layer", "table")[1:]
    assert [row.split()[0] for row in rows] == [
        "l20", "l19", "l18", "l17", "l16", "l15", "and", "l4", "l3", "l2", "l1", "l0",
    ]  # fmt: skip
    assert rows[6].split() == ["and", "10", "more", "layers", "0.707×", "0.031–16", "│"]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "GPT": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=12)),
    "BERT": lambda: tf.BertForSequenceClassification(tf.BertConfig(hidden_size=12)),
    "ViT": lambda: tf.ViTForImageClassification(tf.ViTConfig(hidden_size=12)),
    "ResNet-50": lambda: tf.ResNetForImageClassification(tf.ResNetConfig()),
    "MobileNet": lambda: tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config()),
    "U-Net": lambda: nn.ModuleDict({
        f"{way}{i}": nn.Sequential(nn.Conv2d(2**i, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2))
        for way in ("down", "up") for i in range(5)
    }),
}  # fmt: skip


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("rows", [24, 100])
def test_a_report_fits_a_screen(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large network with many long findings: verdict, culprit and advice stand where the eye is."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", str(rows))
    with torch.device("meta"):
        parameters = dict(NETWORKS[kind]().named_parameters())
    assert 60 <= len(parameters) <= 300
    draw = np.random.default_rng(0).lognormal(0, 3, len(parameters))
    weights = [name for name, tensor in parameters.items() if tensor.dim() > 1]
    blocks = [
        build_block(
            name=name, shape=tuple(parameters[name].shape), avg_sq_singular_value=size, stderr=size / 9,
            ended="sampled",
        )
        for name, size in zip(weights, draw, strict=False)
    ]  # fmt: skip
    message, advice = "The measured number is 5.7× (usual: below 3×). " * 3, "Multiply it by 0.5. " * 6
    finding = Finding("HD202", "fault", tuple(weights[-9:]), message, advice, 5.7, 3.0)
    skipped = tuple((name, "vector in a normalisation") for name in parameters if name not in weights)
    lines = repr(build_report(*blocks, findings=(finding,) * 4, signals=network(), skipped=skipped)).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    near = lines[:12] if rows == 100 else lines[-12:]
    assert {"4 faults:", "HD202 fault:", "  found:", "  do:", "  why:"} <= {line[: line.find(":") + 1] for line in near}


TITLES = ("block", "shape", "γ", "ν", "σ²", "ratio")
NAMES = ("encoder.layers.0.attention.weight", "encoder.layers.1.attention.weight", "head.weight")
ROWS = [[name, "64×64", "0.00123", "4.56e-7", "78.9", "1.23"] for name in NAMES]


def lines_of(**options) -> list[str]:
    return plain_text([TextTable(TITLES, ROWS, left=2)], **options).splitlines()


@pytest.mark.parametrize("width", [42, 50, 60, 80, 100, 120, 200])
def test_the_last_columns_go_first_and_are_named(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    header, *rows = lines_of()
    shown = header.split()
    assert tuple(shown) == TITLES[: len(shown)]
    missing = ", ".join(TITLES[len(shown) :])
    notes = [line for line in rows if line.startswith("not shown in ")]
    assert notes == ([f"not shown in {width} columns: {missing}"] if missing else [])
    assert max(map(len, [header, *rows])) <= width
    cells = [line.split() for line in rows if line not in notes]
    assert [row[1:] for row in cells] == [row[1 : len(shown)] for row in ROWS]
    assert len({row[0] for row in cells}) == len(ROWS)


def test_the_width_is_that_of_columns_and_sentences_hang_below_their_indent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "\n".join(lines_of(whole=True))
    assert all(word in text for word in (*NAMES, *TITLES))
    assert "not shown" not in text
    for columns, width in (("55", 55), ("0", WIDTH), ("wide", WIDTH)):
        monkeypatch.setenv("COLUMNS", columns)
        assert text_width() == width
    monkeypatch.setenv("COLUMNS", "40")
    prose = plain_text(["word " * 20, "  fault HD101: " + "word " * 20]).splitlines()
    assert max(map(len, prose)) <= 40
    assert " ".join(" ".join(prose).split()) == " ".join(("word " * 20 + "fault HD101: " + "word " * 20).split())
    hanging = prose[prose.index(next(line for line in prose if "HD101" in line)) + 1 :]
    assert all(line.startswith("    word") for line in hanging)


def test_names_take_one_line_and_what_is_left_out_for_one_reason_is_told_once() -> None:
    table = TextTable(("block", "γ"), [["a\nb\x1b[31m", "1"]])
    assert plain_text([table]).splitlines() == ["block     γ", "a�b�[31m  1"]
    norms = [(f"h.{i}.norm.weight", f"vector of {size} in LayerNorm: no block") for i, size in enumerate((8, 8, 32))]
    assert grouped("not measured:", [*norms, ("emb.weight", "frozen in Embedding")]) == [
        "not measured:",
        "  h.#.norm ×2: vector of 8 in LayerNorm: no block",
        "  h.2.norm: vector of 32 in LayerNorm: no block",
        "  emb: frozen in Embedding",
    ]
    assert grouped("not measured:", norms, whole=True)[1:] == [f"  {name}: {reason}" for name, reason in norms]
    assert grouped("not measured:", []) == []


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_has_three_digits_and_one_style_of_exponent(value: float) -> None:
    text = short(value)
    assert float(text) == float(f"{value:.2e}")
    mantissa, _, power = text.lstrip("-").partition("e")
    digits = mantissa.replace(".", "").lstrip("0")
    assert value == 0 or (len(digits) == 3 or digits[3:].strip("0") == "")
    assert "+" not in text
    assert power == str(int(power)) if power else 1e-3 <= abs(float(text)) < 1e5 or value == 0


def test_percents_have_a_tenth_and_spread_is_largest_over_smallest() -> None:
    texts = {0.0: "0", 4e-4: "<0.1", 6e-4: "0.1", 0.05: "5.0", 0.9996: "100", 12.0: "1200"}
    assert {share: percent(share) for share in texts} == texts
    for values, expected in (
        ([2.0, 8.0, 4.0], 4.0), ([3.0], 1.0), ([0.0, 2.0], math.inf), ([0.0, 0.0], math.nan), ([], math.nan),
        ([1.0, math.nan], math.nan), ([math.nan, 1.0], math.nan), ([1.0, math.inf], math.inf),
    ):  # fmt: skip
        assert spread(values) == pytest.approx(expected, nan_ok=True)
