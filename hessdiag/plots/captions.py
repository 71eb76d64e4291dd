"""What a figure shows, in one line, and whether several measurements may share a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hessdiag.arguments import check_kind, joined
from hessdiag.errors import HessdiagError
from hessdiag.plots.labels import plural, printable
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

T = TypeVar("T")

MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton"}


def caption(*measured: Report | Setups) -> str:
    """Say in one line what a figure shows: model, initialisation, loss, matrix and view, size, method and seed.

    Settings in which several measurements differ are listed.
    """
    for each in measured:
        check_kind("a measurement", each, (Report, Setups), "pass reports or Setups, one after the other")
    return printable(
        " · ".join(
            (
                _listed(m.model for m in measured),
                f"{_listed(m.init for m in measured)} initialisation",
                f"{_listed(m.loss for m in measured)} loss",
                f"{_listed(MATRIX_NAMES.get(m.matrix, m.matrix) for m in measured)}, "
                + _listed(f"per {m.per}" for m in measured),
                f"batch size {_listed(m.batch_size for m in measured)}",
                _listed(plural(_count(m), "set-up") for m in measured),
                f"{_listed(m.method for m in measured)} method",
                _listed(_seeds(m) for m in measured),
            )
        )
    )


def agree(measured: Sequence[T], keys: Sequence[str]) -> None:
    """Check that measurements drawn in one figure share the settings `keys`.

    Raises:
        HessdiagError: there is none, or two of them differ.
    """
    if not measured:
        raise HessdiagError("nothing to draw: pass at least one measurement")
    for other in measured[1:]:
        for key in keys:
            mine, theirs = getattr(measured[0], key), getattr(other, key)
            if mine != theirs:
                raise HessdiagError(f"panels differ in {key}: {mine!r} and {theirs!r}; draw one experiment a figure")


def _count(measured: Report | Setups) -> int:
    return len(measured) if isinstance(measured, Setups) else 1


def _seeds(measured: Report | Setups) -> str:
    last = measured.seed + _count(measured) - 1
    return f"seed {last}" if last == measured.seed else f"seeds {measured.seed}–{last}"


def _listed(values: Iterable[object]) -> str:
    return joined(dict.fromkeys(str(value) for value in values))
