"""Attributes of a module set to other values for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(holder: Any, **replacements: Any) -> Iterator[None]:
    """Set attributes of a module to other values, those that this version of it has."""
    saved = {name: getattr(holder, name) for name in replacements if hasattr(holder, name)}
    for name in saved:
        setattr(holder, name, replacements[name])
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(holder, name, value)
