"""Numbers as tables and sentences show them, and spreads of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessdiag.results.numbers import percent, short, spread


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
