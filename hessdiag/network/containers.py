"""What lists, dicts and other holders hold, and putting it back: a forward pass may append to a log or fill a cache.

Holders are kept by reference and filled again, so that everyone who shares one sees it as it was.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

DEPTH = 4  # of holders in holders
MAX_ENTRIES = 10_000  # entries up to which what they hold is looked at too: a data set is no cache

Holder = Any


@dataclass(frozen=True)
class Content:
    """A holder and a copy of what it held."""

    holder: Holder
    copy: Any
    version: int = field(default=0, kw_only=True)

    def put_back(self) -> None:
        """Fill the holder as it was, where that has changed."""
        holder, copy = self.holder, self.copy
        if isinstance(holder, Tensor):
            if holder._version != self.version:
                with torch.no_grad():
                    holder.resize_(copy.shape).copy_(copy)  # in place: a view of it sees the same
        elif _same(_entries(holder), copy):
            return
        elif isinstance(holder, (list, bytearray)):
            holder[:] = copy
        elif isinstance(holder, deque):
            holder.clear()
            holder.extend(copy)
        else:
            filled: Any = holder if isinstance(holder, (dict, set)) else vars(holder)
            filled.clear()
            filled.update(copy)


def contents_of(attributes: Iterable[Mapping[str, Any]]) -> list[Content]:
    """What the holders among attributes of modules hold, and the holders in these.

    >>> log = [1]
    >>> (content,) = contents_of([{"log": log}])
    >>> log.append(2)
    >>> content.put_back()
    >>> log
    [1]
    """
    found: dict[int, Content] = {}
    for values in attributes:
        for name, value in values.items():
            if name not in MODULES_OWN:
                _collect(value, DEPTH, found)
    return list(found.values())


MODULES_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, hooks: kept by other means


def _collect(value: Any, depth: int, found: dict[int, Content]) -> None:
    """Note a holder and those in it."""
    if depth == 0 or id(value) in found:
        return
    if isinstance(value, Tensor):
        if not value.requires_grad and not value.is_inference():
            found[id(value)] = Content(value, value.detach().clone(), version=value._version)
        return
    held = _entries(value)
    if held is None:
        return
    if not isinstance(value, tuple):
        found[id(value)] = Content(value, held)
    entries = list(held.values() if isinstance(held, dict) else held)
    for entry in entries if len(entries) <= MAX_ENTRIES else []:
        _collect(entry, depth - 1, found)


def _entries(value: Any) -> Any:
    """A shallow copy of what a holder holds; None of what is no holder."""
    if isinstance(value, (list, dict, set, deque, bytearray)):
        return _plain_copy(value)
    if isinstance(value, tuple):
        return value
    kind = type(value)
    ours = kind.__module__.split(".")[0] in ("torch", "builtins", "numpy", "typing", "types", "functools", "logging")
    if ours or isinstance(value, (nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        return None
    return dict(vars(value))


def _same(one: Any, other: Any) -> bool:
    """Whether two shallow copies hold the same objects in the same order."""
    if len(one) != len(other):
        return False
    if isinstance(one, dict) and not all(map(operator.is_, one.values(), other.values())):
        return False
    return all(map(operator.is_, one, other))


def _plain_copy(value: Any) -> Any:
    """A subclass's entries in a plain holder, in order."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, set):
        return set(value)
    return list(value)
