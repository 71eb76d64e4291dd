"""What callers of public functions pass by mistake: refused in one sentence that says what to write."""

from __future__ import annotations

import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable
from typing import Any

from hessdiag.errors import HessdiagError
from hessdiag.suggestions import did_you_mean, few


def check_kind(name: str, value: Any, kinds: type | tuple[type, ...], advice: str) -> None:
    """Refuse a value of another type.

    >>> check_kind("report", [1], int, "pass one number")
    Traceback (most recent call last):
    hessdiag.errors.HessdiagError: report is a list: pass one number
    """
    if not isinstance(value, kinds):
        what = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
        raise HessdiagError(f"{name} is {what}: {advice}")


def check_whole(name: str, value: Any, *, least: int | None = None) -> None:
    """Refuse what is not a whole number, or is less than `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or (least is not None and value < least):
        wanted = "a whole number" if least is None else f"at least {least}, a whole number"
        raise HessdiagError(f"{name} {value!r}: pass {wanted}")


def check_number(name: str, value: Any, advice: str, *, above: float = -math.inf) -> None:
    """Refuse what is not a finite number above a bound."""
    try:
        number = math.nan if isinstance(value, (str, bool)) else float(value)  # tensors of one number too
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > above):
        raise HessdiagError(f"{name} {value!r}: {advice}")


def is_positive(value: Any) -> bool:
    """Whether a value is a finite number above 0.

    >>> is_positive(2), is_positive("2"), is_positive(float("nan"))
    (True, False, False)
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def check_path(name: str, value: Any) -> None:
    """Refuse what names no file."""
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise HessdiagError(f"{name} {value!r}: pass the name of a file, as in {name}='run.db'")


def check_loss(loss: Any) -> None:
    """Refuse what is neither the name of a loss nor a function."""
    if isinstance(loss, type):
        raise HessdiagError(f"loss is the class {loss.__name__}: pass an instance, as in {loss.__name__}()")
    if not isinstance(loss, str) and not callable(loss):
        raise HessdiagError(f"loss {loss!r}: pass a name such as 'cross-entropy', or a function (outputs, targets)")


def check_options(options: Iterable[str], function: Callable[..., Any], fixed: Iterable[str]) -> None:
    """Refuse keyword arguments that a function does not take beside the `fixed` ones."""
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = [name for name in names if name not in set(fixed)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"use {few(known, 8)}")
            raise HessdiagError(f"unknown option {name!r}: {hint}")


def kind_of(value: Any) -> str:
    """The type of a value with its article.

    >>> kind_of(None), kind_of(1), kind_of([])
    ('None', 'an int', 'a list')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"
