"""Numbers as tables and sentences show them."""

from __future__ import annotations

import math


def short(value: float) -> str:
    """Three significant digits; an exponent where the number would be long, a dash where it is undefined.

    >>> [short(v) for v in (7.1694, 472.6, 0.000321, 123456.0, 0.0, float("inf"), float("nan"))]
    ['7.17', '473', '3.2e-04', '1.2e+05', '0', 'inf', '–']
    """
    if math.isnan(value):
        return "–"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.1e}"
