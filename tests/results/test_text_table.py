"""Tables in terminals of any width: fewer columns, never wrapped rows or cut numbers, and nothing left out silently."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessdiag.results.numbers import percent, short, spread
from hessdiag.results.text_table import WIDTH, TextTable, grouped, plain_text, text_width

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
    lines = grouped("not measured:", [*norms, ("emb.weight", "frozen in Embedding")])
    assert lines == [
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
