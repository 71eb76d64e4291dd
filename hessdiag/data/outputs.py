"""What a model returned: which of its tensors are the outputs, or all of them as one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True)
class Layout:
    """All tensors that a model returns as the columns of one (B, N), for a loss of the whole returned object.

    Attributes:
        template: what the model returned for a few examples.
        parts: of every tensor its shape, for one example where it runs over them, its type and whether it does.
        pick: takes a part of what was returned.
    """

    template: Any
    parts: tuple[tuple[torch.Size, torch.dtype, bool], ...]
    pick: Callable[[Any], Any]

    @classmethod
    def of(cls, returned: Any, *, size: int | None, pick: Callable[[Any], Any] = lambda returned: returned) -> Layout:
        """The layout of what was returned for `size` examples; None for a structure that is one example."""
        picked = pick(returned)
        held = tensors_in(picked)
        over = [size is not None and value.shape[:1] == (size,) for value in held]
        parts = [(v.shape[1:] if each else v.shape, v.dtype, each) for v, each in zip(held, over, strict=True)]
        return cls(mapped(picked, lambda value: value.detach()), tuple(parts), pick)

    @property
    def apart(self) -> bool:
        """Whether every tensor runs over the examples; else one is of all examples of a call, as a loss is."""
        return all(over for _, _, over in self.parts)

    def joined(self, returned: Any, size: int) -> Tensor:
        """(B, N): what is of all examples stands in every row."""
        held = tensors_in(self.pick(returned))
        dtype = next(dtype for _, dtype, _ in self.parts if dtype.is_floating_point)
        if len(held) != len(self.parts):
            raise HessdiagError("the model returned other tensors than in its first call: measure one kind at a time")
        rows = []
        for value, (shape, _, over) in zip(held, self.parts, strict=True):
            if value.shape != (size, *shape)[not over :]:
                raise HessdiagError(f"the model returned a tensor of shape {tuple(value.shape)} for {size} examples")
            rows.append((value if over else value.unsqueeze(0).expand(size, *shape)).reshape(size, -1).to(dtype))
        return torch.cat(rows, dim=1)

    def split(self, y: Tensor) -> Any:
        """The returned object that has the numbers of y (B, N): of those that stand in every row, the mean."""
        sizes = [math.prod(shape) for shape, _, _ in self.parts]
        pieces = iter(zip(torch.split(y, sizes, dim=1), self.parts, strict=True))

        def piece(_: Tensor) -> Tensor:
            values: Tensor
            values, (shape, dtype, over) = next(pieces)
            values = values.reshape(len(y), *shape) if over else values.mean(dim=0).view(shape)
            return values if dtype == y.dtype else (values if dtype.is_floating_point else values.round()).to(dtype)

        return mapped(self.template, piece)


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A tensor, or tuples, lists, dicts and dataclasses of some, with a function applied to every tensor."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        each = [mapped(item, function) for item in value]
        return type(value)(*each) if hasattr(value, "_fields") else type(value)(each)
    if not held_by(value):
        return value
    new = copy.copy(value)
    for key, item in held_by(value).items():
        changed = mapped(item, function)
        if isinstance(value, Mapping):
            new[key] = changed
        else:
            object.__setattr__(new, key, changed)
    return new


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in the order in which `mapped` meets them."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(value, note)
    return found


def read_outputs(returned: Any, *, size: int | None, which: str | int | Layout | None, dim: int = 0) -> Outputs:
    """Find the outputs in what a model returned for `size` examples, None where no dimension runs over any.

    A name or position takes that one, a layout all, None `logits` or the only one over the examples, which may stand at
    `dim` as in the inputs.
    """
    if isinstance(which, Layout):
        return Outputs(which.joined(returned, 1 if size is None else size))
    y = chosen(returned, size=size, which=which, dim=dim)
    y = y.reshape(1, 1) if size is None and y.dim() == 0 else examples_first(y, size, dim)
    if y.dim() == 0:
        raise HessdiagError(
            f"the model returned a single number for {size} examples: if that is its loss, pass loss='model' (--loss"
            " model), and if all inputs are one example, as a graph is, examples='one'"
        )
    if size is not None and y.shape[0] != size:
        raise HessdiagError(
            f"the model returned a tensor of shape {tuple(y.shape)} for {size} examples:"
            " its first dimension must run over the examples; if all inputs are one example, as a graph is, or"
            ' the outputs have positions and examples in one dimension, pass examples="one"'
        )
    if not y.is_floating_point():
        raise HessdiagError(f"the model returned {y.dtype} outputs: they must be real floating-point numbers")
    if y.dtype in (torch.float16, torch.bfloat16):
        raise HessdiagError(f"the model returned {y.dtype} outputs: switch autocast off and convert it to float32")
    class_dim = -1 if y.dim() == 3 and _is_of_transformers(returned) else None  # (B, positions, classes)
    return Outputs(y.unsqueeze(1) if y.dim() == 1 else y, y.dim() == 1, class_dim)


def chosen(returned: Any, *, size: int | None, which: str | int | None, dim: int = 0) -> Tensor:
    """The tensor of outputs, as the model returned it; see `read_outputs`."""
    if not isinstance(returned, Tensor):
        return pick_output(returned, which) if which is not None else _only(returned, size, dim)
    if which is not None:
        raise HessdiagError(f"output {which!r}: the model returned a single tensor, leave output out")
    return returned


def examples_first(y: Tensor, size: int | None, dim: int) -> Tensor:
    """Outputs with their examples first: these may stand at `dim` as in the inputs, in sequences at least."""
    moved = size is not None and 0 < dim < y.dim() and y.shape[dim] == size
    return y.movedim(dim, 0) if moved and (y.dim() > 2 or y.shape[0] != size) else y


def held_by(returned: Any) -> Mapping[Any, Any]:
    """What a dict, tuple, dataclass or model output holds, by name or position."""
    if isinstance(returned, Mapping):  # transformers' model outputs too
        return returned
    if isinstance(returned, (tuple, list)):
        return dict(zip(getattr(returned, "_fields", range(len(returned))), returned, strict=True))
    return vars(returned) if is_dataclass(returned) and not isinstance(returned, type) else {}


def own_loss(returned: Any) -> Tensor | None:
    """The scalar among what a model returned: its own loss; None where there is no one scalar."""
    held = {"loss": returned} if isinstance(returned, Tensor) else held_by(returned)
    scalars = {k: v for k, v in held.items() if isinstance(v, Tensor) and v.dim() == 0 and v.is_floating_point()}
    return scalars.get("loss", next(iter(scalars.values())) if len(scalars) == 1 else None)


def pick_output(returned: Any, which: str | int) -> Tensor:
    """The tensor of that name or position."""
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


def _runs_over(value: Tensor, size: int | None, dim: int) -> bool:
    return value.dim() > 0 and (size is None or examples_first(value, size, dim).shape[0] == size)


def _only(returned: Any, size: int | None, dim: int) -> Tensor:
    """`logits`, or else the only floating-point tensor over the examples."""
    held = held_by(returned)
    if isinstance(logits := held.get("logits"), Tensor):
        return logits
    found = {
        key: value
        for key, value in held.items()
        if isinstance(value, Tensor) and value.is_floating_point() and _runs_over(value, size, dim)
    }
    if len(found) == 1:
        return found.popitem()[1]
    what = f"a {type(returned).__name__}"
    if found:
        which, first = ", ".join(map(repr, found)), next(iter(found))
        message = f"the model returned {what} with {len(found)} tensors over the examples ({which}): wrap it so that it"
        raise HessdiagError(f"{message} returns one of them, or name one, as in output={first!r} (--output {first})")
    message = f"the model returned {what} without a tensor over the examples:"
    raise HessdiagError(f"{message} wrap it so that it returns one tensor (batch, outputs)")


def _is_of_transformers(returned: Any) -> bool:
    kinds = type(returned).__mro__
    return any(kind.__name__ == "ModelOutput" and kind.__module__.startswith("transformers.") for kind in kinds)
