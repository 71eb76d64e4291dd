"""What a model returns: which of it are the outputs, and in which form; of several tensors, all in one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils._pytree import tree_map

from hessdiag.arguments import few
from hessdiag.errors import CoupledError, HessdiagError


@dataclass(frozen=True)
class Form:
    """The form in which a model or the data have outputs or targets, which are (B, ...) in here.

    Attributes:
        flat, at: whether they are (B · positions, ...), or (B,), there; the dimension of the examples.
    """

    flat: bool = False
    at: int = 0

    def restore(self, values: Tensor) -> Tensor:
        """Outputs or targets (B, ...) in this form."""
        values = values.movedim(0, 1 if self.flat else self.at) if self.at else values
        return values.flatten(0, 1) if self.flat else values


FIRST = Form()  # as in here


@dataclass(frozen=True)
class Outputs:
    """The outputs of one call.

    Attributes:
        y: (B, *out) floating-point numbers, with at least one output dimension.
        form: in which the model returned them.
        class_dim: dimension of the classes where the returned object says so by its kind, else None.
    """

    y: Tensor
    form: Form = FIRST
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
        dtype = next((dtype for _, dtype, _ in self.parts if dtype.is_floating_point), torch.get_default_dtype())
        if len(held) != len(self.parts):
            raise HessdiagError("the model returned other tensors than in its first call: measure one kind at a time")
        rows = []
        for value, (shape, _, over) in zip(held, self.parts, strict=True):
            value = value.unsqueeze(0) if over and size == 1 and value.shape == shape else value  # was squeezed
            if value.shape != (size, *shape)[not over :]:
                returned = f"the model returned a tensor of shape {tuple(value.shape)} for {size} examples"
                raise CoupledError(
                    f"{returned}, whose first dimension does not run over them: pass per='batch' (--per batch)"
                )
            rows.append((value if over else value.unsqueeze(0).expand(size, *shape)).reshape(size, -1).to(dtype))
        return torch.cat(rows, dim=1)

    def split(self, y: Tensor) -> Any:
        """The returned object that has the numbers of y (B, N): of those that stand in every row, the mean."""
        sizes = [math.prod(shape) for shape, _, _ in self.parts]
        pieces = iter(zip(torch.split(y, sizes, dim=1), self.parts, strict=True))

        def piece(_: Tensor) -> Tensor:
            values, (shape, dtype, over) = next(pieces)
            values = values.reshape(len(y), *shape).contiguous() if over else values.mean(dim=0).view(shape)
            return values if dtype == y.dtype else (values if dtype.is_floating_point else values.round()).to(dtype)

        return mapped(self.template, piece)


def has_fields(value: Any) -> bool:
    """Whether it is a dataclass or a distribution, whose attributes are mapped."""
    return isinstance(value, Distribution) or (is_dataclass(value) and not isinstance(value, type))


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A tensor, or tuples, lists, dicts and what has fields of some, with a function applied to every tensor."""

    def each(leaf: Any) -> Any:
        if not has_fields(leaf):
            return function(leaf) if isinstance(leaf, Tensor) else leaf
        new = copy.copy(leaf)
        vars(new).update(mapped(vars(leaf), function))  # also of a frozen one
        return new

    return tree_map(each, value)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in the order in which `mapped` meets them."""
    found: list[Tensor] = []
    mapped(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def read_outputs(returned: Any, *, size: int | None, which: str | int | Layout | None, dim: int = 0) -> Outputs:
    """Find the outputs in what a model returned for `size` examples, None where no dimension runs over any.

    A name or position takes that one, a layout all, None `logits` or the only one over the examples, which may stand at
    `dim` as in the inputs, also where positions and examples share the first dimension.
    """
    if isinstance(which, Layout):
        return Outputs(which.joined(returned, 1 if size is None else size))
    y = chosen(returned, size=size, which=which, dim=dim)
    at = place_of_examples(y, size, dim)
    if y.dim() == 0 and size in (None, 1):  # of one example, which `.squeeze()` took away
        y = y.reshape((1, 1) if size is None else (1,))
    y = y.movedim(at, 0) if at else y
    if flat := y.dim() < 3 and shares_dimension(y, size):
        y, at = positions_apart(y, size or 1, dim), dim
    if size is not None and y.shape[:1] != (size,):
        first = f"the model returned a tensor of shape {tuple(y.shape)} for {size} examples: its first dimension must"
        how = "if it is the loss, pass loss='model' (--loss model), and if all inputs are one example, as a graph is,"
        raise HessdiagError(f"{first} run over the examples; {how} examples='one'")
    if y.dtype not in (torch.float32, torch.float64):
        how = "switch autocast off, and return real floating-point numbers (not an argmax, but what it is taken of)"
        raise HessdiagError(f"the model returned {y.dtype} outputs: {how}")
    last = y.dim() == 3 and (flat or _is_of_transformers(returned))  # (B, positions, classes)
    form = Form(flat or y.dim() == 1, at)
    return Outputs(y.unsqueeze(1) if y.dim() == 1 else y, form, -1 if last else None)


def chosen(returned: Any, *, size: int | None, which: str | int | None, dim: int = 0) -> Tensor:
    """The tensor of outputs, as the model returned it; see `read_outputs`."""
    if not isinstance(returned, Tensor):
        return pick_output(returned, which) if which is not None else _only(returned, size, dim)
    if which is not None:
        raise HessdiagError(f"output {which!r}: the model returned a single tensor, leave output out")
    return returned


def place_of_examples(values: Tensor, size: int | None, dim: int) -> int:
    """The dimension that runs over `size` examples: it may be `dim` as in the inputs, in sequences at least, or 0."""
    there = size is not None and 0 < dim < values.dim() and values.shape[dim] == size
    return dim if there and (values.dim() > 2 or values.shape[0] != size) else 0


def shares_dimension(values: Tensor, size: int | None) -> bool:
    """Whether the first dimension may run over `size` examples and the positions of each."""
    return bool(size) and values.dim() > 0 and len(values) > size and len(values) % size == 0  # type: ignore[operator]


def positions_apart(values: Tensor, size: int, dim: int) -> Tensor:
    """(size · positions, ...) as (size, positions, ...): of rows in that order, or for `dim` 1 the other."""
    if dim:
        return values.reshape(-1, size, *values.shape[1:]).movedim(1, 0)
    return values.reshape(size, -1, *values.shape[1:])


def held_by(returned: Any) -> Mapping[Any, Any]:
    """What a dict, tuple, dataclass or model output holds, by name or position."""
    if isinstance(returned, Mapping):  # transformers' model outputs too
        return returned
    if isinstance(returned, (tuple, list)):
        return dict(zip(getattr(returned, "_fields", range(len(returned))), returned, strict=True))
    return vars(returned) if has_fields(returned) else {}


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


def _only(returned: Any, size: int | None, dim: int) -> Tensor:
    """`logits`, the last hidden state, or else the only floating-point tensor over the examples."""
    held = held_by(returned)
    for name in ("logits", "last_hidden_state"):
        if isinstance(usual := held.get(name), Tensor):
            return usual
    real = {key: value for key, value in held.items() if isinstance(value, Tensor) and value.is_floating_point()}
    found = {k: v for k, v in real.items() if v.dim() and size in (None, v.shape[place_of_examples(v, size, dim)])}
    found = found or {key: value for key, value in real.items() if shares_dimension(value, size)}
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
