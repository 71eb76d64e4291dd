"""The same for recommenders, series, images and the rest, with what their files take from here."""

import math  # noqa: F401
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn  # noqa: F401
import torch.nn.functional as F  # noqa: F401

CASES: dict[str, dict[str, Any]] = {}


def case(name: str, bug: str | None = None, guilty: Any = (), **options: Any) -> Callable[[Any], Any]:
    def enter(make: Any) -> Any:
        CASES[name] = {"make": make, "bug": bug, "guilty": tuple(guilty), "options": options}
        return make

    return enter


def call(model: Any, x: Any) -> Any:
    return model(**x) if isinstance(x, dict) else model(*x) if isinstance(x, tuple) else model(x)


def G(seed: int) -> torch.Generator:  # noqa: N802
    return torch.Generator().manual_seed(seed)
