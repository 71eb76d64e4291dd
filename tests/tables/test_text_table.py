"""Tables in terminals of any width: fewer columns, never wrapped rows or cut numbers, and nothing left out silently."""

from __future__ import annotations

import shutil
import sys
from os import terminal_size

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessdiag.results.numbers import percent, short, short_error, with_error
from hessdiag.tables.text_table import WIDTH, Verbatim, grouped, make_table, plain_text, text_width

TITLES = ("block", "shape", "γ", "ν", "σ²", "ratio")
NAMES = ("encoder.layers.0.attention.weight", "encoder.layers.1.attention.weight", "head.weight")
ROWS = [[name, "64×64", "0.00123", "4.56e-7", "78.9", "1.23"] for name in NAMES]
NEEDED = {"block", "γ", "ν", "σ²"}


@pytest.fixture(params=[38, 42, 50, 60, 80, 100, 120, 200])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def lines_of(**options) -> list[str]:
    return plain_text([make_table(TITLES, ROWS, left=2, expendable=("ratio", "shape"))], **options).splitlines()


def test_rows_fit_and_what_does_not_is_named(width: int) -> None:
    header, *rows = lines_of()
    notes = [line for line in rows if line.startswith("not shown in ")]
    assert max(map(len, [header, *rows])) <= max(width, 36)  # the least that the needed columns take
    shown = set(header.split())
    assert shown >= NEEDED
    missing = [title for title in TITLES if title not in shown]
    assert notes == ([f"not shown in {width} columns: {', '.join(missing)}"] if missing else [])
    assert len(rows) - len(notes) == len(ROWS)


def test_numbers_stay_whole_and_names_apart(width: int) -> None:
    header, *rows = [line.split() for line in lines_of() if not line.startswith("not shown")]
    places = [TITLES.index(title) for title in header]
    assert [row[1:] for row in rows] == [[row[place] for place in places[1:]] for row in ROWS]
    assert len({row[0] for row in rows}) == len(ROWS) or width < 42  # where what tells them apart has no room


def test_the_most_expendable_column_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {}
    for columns in range(20, 90):
        monkeypatch.setenv("COLUMNS", str(columns))
        counts[columns] = [title for title in TITLES if title not in lines_of()[0].split()]
    assert [list(each) for each in dict.fromkeys(map(tuple, counts.values()))] == [["shape", "ratio"], ["ratio"], []]


def test_the_whole_is_as_wide_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "\n".join(lines_of(whole=True))
    assert all(name in text for name in NAMES)
    assert all(title in text for title in TITLES)
    assert "not shown" not in text


def test_the_width_is_that_of_columns_then_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_width() == WIDTH
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda fallback: terminal_size((77, 24)))
    assert text_width() == 77
    monkeypatch.setenv("COLUMNS", "55")
    assert text_width() == 55
    for nonsense in ("0", "-3", "wide"):
        monkeypatch.setenv("COLUMNS", nonsense)
        assert text_width() == 77


def test_sentences_wrap_and_code_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    code = "rescale_weight(model, 'encoder.layers.0.attention.weight', 1.16559)"
    text = plain_text(["word " * 20, "  fault HD101: " + "word " * 20, Verbatim(code)])
    *prose, last = text.splitlines()
    assert last == code
    assert max(map(len, prose)) <= 40
    assert " ".join(" ".join(prose).split()) == " ".join(("word " * 20 + "fault HD101: " + "word " * 20).split())
    hanging = prose[prose.index(next(line for line in prose if "HD101" in line)) + 1 :]
    assert all(line.startswith("    word") for line in hanging)


def test_sentences_are_never_wider_than_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, plain_text(["word " * 100]).splitlines())) <= WIDTH


def test_a_name_with_control_characters_takes_one_line() -> None:
    table = make_table(("block", "γ"), [["a\nb\x1b[31m", "1"]])
    assert plain_text([table]).splitlines() == ["block     γ", "a�b�[31m  1"]


def test_what_is_left_out_for_one_reason_is_told_once() -> None:
    norms = [(f"h.{i}.norm.weight", f"vector of {size} in LayerNorm: no block") for i, size in enumerate((8, 8, 32))]
    lines = grouped("not measured:", [*norms, ("emb.weight", "frozen in Embedding")])
    assert lines == [
        "not measured:",
        "  3 parameters such as h.0.norm.weight: vector of 8 to 32 in LayerNorm: no block",
        "  emb.weight: frozen in Embedding",
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


@given(st.floats(1e-30, 1e30), st.floats(1e-6, 1e3))
def test_an_error_is_rounded_to_its_value(value: float, relative: float) -> None:
    error = relative * value
    shown = float(short_error(error, value))
    place = 10.0 ** (int(f"{value:.2e}".split("e")[1]) - 2)  # of the last digit of the value
    assert abs(shown - error) <= max(0.5 * place * (1 + 1e-9), 0.005 * error * 1.01)
    assert shown > 0
    assert with_error(value, error) == f"{short(value)} ± {short_error(error, value)}"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0"), (4e-4, "<0.1"), (6e-4, "0.1"), (0.05, "5.0"), (0.9996, "100"), (12.0, "1200")]
)
def test_percents_have_a_tenth(share: float, text: str) -> None:
    assert percent(share) == text
