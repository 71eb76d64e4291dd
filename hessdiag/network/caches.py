"""What a model computes from its weights once and keeps, as attention biases by position in evaluation mode.

Called with other weights it must not find what it computed from the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from hessdiag.network.containers import MAX_ENTRIES, MODULES_OWN

Cache = dict[Any, Any]


def caches_of(model: nn.Module) -> list[Cache]:
    """The dicts among the attributes of modules, each once."""
    values = [value for module in model.modules() for name, value in vars(module).items() if name not in MODULES_OWN]
    found = [value for value in values if isinstance(value, dict) and len(value) <= MAX_ENTRIES]
    return list({id(value): value for value in found}.values())


@contextmanager
def emptied(caches: Sequence[Cache]) -> Iterator[None]:
    """Take out of the dicts what was computed from weights, and fill them as they were afterwards."""
    held = [dict(cache) for cache in caches]
    for cache, entries in zip(caches, held, strict=True):
        for key, value in entries.items():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                del cache[key]
    try:
        yield
    finally:
        for cache, entries in zip(caches, held, strict=True):
            cache.clear()
            cache.update(entries)
