"""The outputs of a model: which tensor of what it returned, and what is known of its dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor

from hessdiag.arguments import few
from hessdiag.errors import HessdiagError


@dataclass(frozen=True)
class Outputs:
    """The outputs of one call.

    Attributes:
        y: (B, *out) floating-point numbers, with at least one output dimension.
        scalar: whether the model returned (B,), of which `y` is (B, 1).
        class_dim: dimension of the classes where the returned object says so by its kind, else None.
    """

    y: Tensor
    scalar: bool = False
    class_dim: int | None = None


def read_outputs(returned: Any, *, size: int, which: str | int | None) -> Outputs:
    """Find the outputs in what a model returned for `size` examples.

    Args:
        returned: a tensor, or a dict, tuple, dataclass or model output that holds some.
        which: name or position of the one to take; None takes `logits`, or else the only one over the examples.

    Raises:
        HessdiagError: there is no such tensor, or no telling which of several it is.
    """
    if isinstance(returned, Tensor):
        if which is not None:
            raise HessdiagError(f"output {which!r}: the model returned a single tensor, leave output out")
        y = returned
    else:
        y = pick_output(returned, which) if which is not None else _only(returned, size)
    if y.dim() == 0 or y.shape[0] != size:
        raise HessdiagError(
            f"the model returned a tensor of shape {tuple(y.shape)} for {size} examples:"
            " its first dimension must run over the examples"
        )
    if not y.is_floating_point():
        raise HessdiagError(f"the model returned {y.dtype} outputs: they must be real floating-point numbers")
    if y.dtype in (torch.float16, torch.bfloat16):
        raise HessdiagError(f"the model returned {y.dtype} outputs: switch autocast off and convert it to float32")
    class_dim = -1 if y.dim() == 3 and _is_of_transformers(returned) else None  # (B, positions, classes)
    return Outputs(y.unsqueeze(1) if y.dim() == 1 else y, y.dim() == 1, class_dim)


def held_by(returned: Any) -> Mapping[Any, Any]:
    """What a dict, tuple, dataclass or model output holds, by name or position."""
    if isinstance(returned, Mapping):  # transformers' model outputs too
        return returned
    if isinstance(returned, (tuple, list)):
        return dict(zip(getattr(returned, "_fields", range(len(returned))), returned, strict=True))
    return vars(returned) if is_dataclass(returned) else {}


def pick_output(returned: Any, which: str | int) -> Tensor:
    """The tensor of that name or position.

    Raises:
        HessdiagError: there is none.
    """
    held = held_by(returned)
    keys = list(held)
    key = which
    if which not in held and isinstance(which, int) and -len(keys) <= which < len(keys):
        key = keys[which]
    if key not in held:
        what = f"a {type(returned).__name__} of {few(map(str, keys), 12)}" if keys else f"a {type(returned).__name__}"
        raise HessdiagError(f"output {which!r}: the model returned {what}, name one of these")
    if not isinstance(held[key], Tensor):
        raise HessdiagError(f"output {which!r} is a {type(held[key]).__name__}: name one that is a tensor")
    return held[key]  # type: ignore[no-any-return]


def _only(returned: Any, size: int) -> Tensor:
    """`logits`, or else the only floating-point tensor over the examples."""
    held = held_by(returned)
    if isinstance(logits := held.get("logits"), Tensor):
        return logits
    found = {
        key: value
        for key, value in held.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.shape[:1] == (size,)
    }
    if len(found) == 1:
        return found.popitem()[1]
    what = f"a {type(returned).__name__}"
    if found:
        which, first = ", ".join(map(repr, found)), next(iter(found))
        raise HessdiagError(
            f"the model returned {what} with {len(found)} tensors over the examples ({which}):"
            f" wrap it so that it returns one of them, or name one, as in output={first!r} (--output {first})"
        )
    raise HessdiagError(
        f"the model returned {what} without a tensor over the examples:"
        " wrap it so that it returns one tensor (batch, outputs)"
    )


def _is_of_transformers(returned: Any) -> bool:
    kinds = type(returned).__mro__
    return any(kind.__name__ == "ModelOutput" and kind.__module__.startswith("transformers.") for kind in kinds)
