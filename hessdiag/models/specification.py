"""From what a user types for MODEL to a network: `lenet`, `mlp:784-384-64-10`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.models.lenet import StridedLeNet
from hessdiag.models.mlp import mlp


@dataclass(frozen=True)
class ModelSource:
    """A named network that can be built afresh.

    Attributes:
        name: as typed.
        build: makes a new network, with weights from torch's global random state.
        input_size: shape of one input example.
    """

    name: str
    build: Callable[[], nn.Module]
    input_size: tuple[int, ...]


def resolve_model(specification: str, *, in_channels: int = 3) -> ModelSource:
    """The network that a specification names.

    Args:
        specification: `"lenet"` or `"mlp:"` and the widths, such as `"mlp:784-384-64-10"`.
        in_channels: input channels of image networks.

    Raises:
        HessdiagError: nothing goes by that name; the nearest right specification is offered.
    """
    head, _, tail = specification.partition(":")
    if specification == "lenet":
        if in_channels < 1:
            raise HessdiagError(f"--in-channels {in_channels}: a network needs at least 1 input channel")
        return ModelSource("lenet", lambda: StridedLeNet(in_channels), (in_channels, 32, 32))
    if head == "mlp":
        widths = _widths(specification, tail)
        return ModelSource(specification, lambda: mlp(widths), (widths[0],))
    near = difflib.get_close_matches(head, ["lenet", "mlp"], n=1, cutoff=0.4)
    hint = {"lenet": "lenet", "mlp": "mlp:784-384-64-10"}[near[0]] if near else "lenet or mlp:784-384-64-10"
    raise HessdiagError(f"unknown model {specification!r}: did you mean {hint}?")


def _widths(specification: str, text: str) -> list[int]:
    parts = text.split("-")
    if len(parts) < 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise HessdiagError(f"model {specification!r}: write the widths as in mlp:784-384-64-10 (input to output)")
    return [int(part) for part in parts]
