"""A batch of examples: what the model is called with, the targets, and which of what it returns are the outputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, is_dataclass, replace
from itertools import accumulate, compress, pairwise, zip_longest
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_leaves, tree_map, tree_map_only

from hessdiag.arguments import TENSORS, check_choice, few, kind_of, one_line
from hessdiag.data.seeds import Noise, calls_here, user_code
from hessdiag.errors import REFUSALS, SIMILARITIES, CoupledError, HessdiagError

TARGETS = ("labels", "label", "targets", "target", "y")  # arguments of those names
TRIED = {"example": 2, "batch": 8}  # examples on which a loss is tried; a batch's mean needs more than a pair
IGNORED = -100  # torch's class index of positions that are left out

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
BatchDim = int | None | tuple[Any, ...] | list[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """The form in which a model or the data have outputs or targets, which are (B, ...) in here."""

    flat: bool = False  # whether they are (B · positions, ...), or (B,), there
    at: int = 0  # the dimension of the examples there

    def restore(self, values: Tensor) -> Tensor:
        """Outputs or targets (B, ...) in this form."""
        values = values.movedim(0, 1 if self.flat else self.at) if self.at else values
        return values.flatten(0, 1) if self.flat else values


@dataclass(frozen=True)
class Outputs:
    """The outputs of one call."""

    y: Tensor  # (B, *out) floating-point numbers, with at least one output dimension
    form: Form = Form()  # in which the model returned them
    class_dim: int | None = None  # dimension of the classes where the returned object says so by its kind


@dataclass(frozen=True)
class Layout:
    """All tensors that a model returns as the columns of one (B, N), for a loss of the whole returned object."""

    template: Any  # what the model returned for a few examples
    # of every tensor its shape, for one example where it runs over them, its type, and the dimension of the examples
    parts: tuple[tuple[torch.Size, torch.dtype, int | None], ...]
    pick: Callable[[Any], Any]  # takes a part of what was returned

    @classmethod
    def of(
        cls, returned: Any, *, size: int | None, pick: Callable[[Any], Any] = lambda returned: returned,
        fewer: Any = None,
    ) -> Layout:  # fmt: skip
        """Of what was returned for `size` examples, None of a structure; and for `fewer`: states are (layers, B, H)."""
        held, parts = tensors_in(picked := pick(returned)), []
        others = tensors_in(pick(fewer))
        for value, other in zip(held, others if len(others) == len(held) else held, strict=True):
            shape = [*value.shape]
            moved = (
                dim for dim, pair in enumerate(zip(shape, other.shape, strict=False)) if pair[0] == size != pair[1]
            )
            at = 0 if shape[:1] == [size] else next(moved, None)
            parts.append((torch.Size(n for dim, n in enumerate(shape) if dim != at), value.dtype, at))
        return cls(mapped(picked, lambda value: value.detach()), tuple(parts), pick)

    def read_by(self, loss: Callable[..., Tensor], returned: Any, targets: Any) -> Layout:
        """Without recurrent states, not over the examples first, in whose place NaN leaves a loss as it is."""
        parts = [*self.parts]
        for which in (n for n, (_, dtype, at) in enumerate(parts) if at != 0 and dtype.is_floating_point):
            held = [v.detach().clone() for v in tensors_in(self.pick(returned))]
            held[which].fill_(math.nan)
            with suppress(*REFUSALS):
                pieces = iter(held)
                if bool(loss(mapped(self.pick(returned), lambda _: next(pieces)), targets).isfinite().all()):  # noqa: B023
                    parts[which] = (torch.Size([0]), parts[which][1], 0)
        return replace(self, parts=tuple(parts))

    @property
    def apart(self) -> bool:
        """Whether every tensor runs over the examples; else one is of all examples of a call, as a loss is."""
        return all(at is not None for _, _, at in self.parts)

    def joined(self, returned: Any, size: int) -> Tensor:
        """(B, N): what is of all examples stands in every row."""
        held = tensors_in(self.pick(returned))
        dtype = next((dtype for _, dtype, _ in self.parts if dtype.is_floating_point), torch.get_default_dtype())
        if len(held) != len(self.parts):
            raise CoupledError("the model returned other tensors for more examples: pass per='batch' (--per batch)")
        rows = []
        for value, (shape, _, at) in zip(held, self.parts, strict=True):
            if shape == (0,):  # which the loss does not read
                continue
            squeezed = at is not None and size == 1 and value.shape == shape
            first = value.unsqueeze(0) if squeezed else value.movedim(at or 0, 0) if value.dim() else value
            if first.shape != (size, *shape)[at is None :]:
                returned = f"the model returned a tensor of shape {tuple(value.shape)} for {size} examples"
                raise CoupledError(f"{returned}, not one row for each: pass per='batch' (--per batch)")
            rows.append((first.unsqueeze(0).expand(size, *shape) if at is None else first).reshape(size, -1).to(dtype))
        return torch.cat(rows, dim=1)

    @property
    def columns(self) -> list[slice]:
        """The columns of each tensor in outputs (B, N)."""
        ends = accumulate((math.prod(shape) for shape, _, _ in self.parts), initial=0)
        return [slice(*pair) for pair in pairwise(ends)]

    def split(self, y: Tensor) -> Any:
        """The returned object that has the numbers of y (B, N): of those that stand in every row, the mean."""
        pieces = iter(zip((y[:, piece] for piece in self.columns), self.parts, strict=True))

        def piece(held: Tensor) -> Tensor:
            values, (shape, dtype, at) = next(pieces)
            if shape == (0,):
                return held
            if at is None:
                values = values.mean(dim=0).view(shape)
            else:
                values = values.reshape(len(y), *shape).movedim(0, at).contiguous()
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
        if isinstance(leaf, Distribution) and leaf.batch_shape:  # which is no tensor
            before, after = (next(iter(tensors_in(vars(each))), None) for each in (leaf, new))
            if before is not None and after is not None and before.shape[:1] == leaf.batch_shape[:1]:
                new._batch_shape = torch.Size((*after.shape[:1], *leaf.batch_shape[1:]))
        return new

    return tree_map(each, value)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in the order in which `mapped` meets them."""
    found: list[Tensor] = []
    mapped(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def place_of_examples(values: Tensor, size: int | None, dim: int) -> int:
    """The dimension that runs over `size` examples: it may be `dim` as in the inputs, in sequences at least, or 0."""
    there = size is not None and 0 < dim < values.dim() and values.shape[dim] == size
    return dim if there and (values.dim() > 2 or values.shape[0] != size) else 0


def shares_dimension(values: Tensor, size: int | None) -> bool:
    """Whether the first dimension may run over `size` examples and the positions of each."""
    return bool(size) and values.dim() > 0 and len(values) > size and len(values) % size == 0  # type: ignore[operator]


def positions_apart(values: Tensor, size: int, dim: int) -> Tensor:
    """(size · positions, ...) as (size, positions, ...): of rows in that order, or for `dim` 1 the other."""
    return torch.unflatten(values, 0, (-1, size)).movedim(1, 0) if dim else torch.unflatten(values, 0, (size, -1))


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


def pick_output(returned: Any, which: str | int | Layout) -> Tensor:
    """The tensor of that name or position."""
    held = held_by(returned)
    keys = list(held)
    key = keys[which] if which not in held and isinstance(which, int) and -len(keys) <= which < len(keys) else which
    if key not in held:
        what = f"{kind_of(returned)} of {few(map(str, keys), 12)}" if keys else kind_of(returned)
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
    what = kind_of(returned)
    if found:
        which, first = ", ".join(map(repr, found)), next(iter(found))
        message = f"the model returned {what} with {len(found)} tensors over the examples ({which}): wrap it so that it"
        raise HessdiagError(f"{message} returns one of them, or name one, as in output={first!r} (--output {first})")
    message = f"the model returned {what} without a tensor over the examples:"
    raise HessdiagError(f"{message} wrap it so that it returns one tensor (batch, outputs)")


@dataclass(frozen=True)
class Common:
    """A tensor among the arguments that is the same for all examples: a sparse one, as of a graph, or one number."""

    value: Tensor


@dataclass(frozen=True)
class Batch:
    """Positional and keyword arguments of the model; in here the first dimension of tensors runs over examples."""

    args: tuple[Any, ...]  # what the model is called with: tensors, also in lists, tuples and dicts, and anything else
    kwargs: Mapping[str, Any]
    targets: Tensor | None  # what the loss compares with
    size: int  # B, examples
    offset: int = 0  # number of the first example in all of the data, from which follows what is drawn for it
    output: str | int | Layout | None = None  # name or position of the output, of several; or all of them
    # numbers of the examples looked at, `size` of them, where the model is called with all: they meet in a norm
    within: tuple[int, ...] | None = None
    as_one: bool = False  # whether all examples together are the one example of this batch
    dims: tuple[int, ...] = ()  # where the model reads the examples, of each tensor over them, if not first in all
    structure: bool = False  # whether no dimension runs over examples, as in a graph
    form: Form = Form()  # in which the data have the targets
    # where the examples stand in outputs, if not as in the first argument; -1 where the first dimension repeats them
    returned_at: int = 0
    masked: bool = False  # whether outputs of -inf are masked logits, which count as -1e9
    asked: Layout | None = None  # how `targets` (B, N) hold those of several tensors
    noise: tuple[Any, ...] = ()  # what the model draws when it is called, one after the other
    # at which dimension for the examples, as 1 of an LSTM's first state; -1 where the first is of their positions, too
    noise_at: tuple[int, ...] = ()

    @classmethod
    def of(cls, inputs: Any, targets: Any, *, batch_dim: BatchDim = 0, examples: str = "batch") -> Batch:
        """A tensor is the one argument, a tuple or list the positional ones, a mapping the keyword ones. `batch_dim`:
        the dimension over the examples; or, as `in_dims` of `torch.vmap`, that of each tensor, None if shared. With
        `examples="one"` all inputs are one example, with `"either"` those of no common number of them.
        """
        check_choice("examples", examples, ("batch", "one", "either"))
        inputs, targets = tree_map_only(np.ndarray, of_numpy, (inputs, targets))
        given, examples = _arguments(inputs, examples)
        args, kwargs = tree_map_only(
            Tensor, lambda v: v if v.layout is torch.strided and (v.dim() or examples == "one") else Common(v), given
        )
        if isinstance(targets, (tuple, list, Mapping)) and tensors_in(targets):
            batch = cls.of(inputs, None, batch_dim=batch_dim, examples=examples)
            asked = Layout.of(targets, size=None if batch.structure else batch.size)
            if not (asked.apart or batch.structure):
                if examples == "either":
                    return cls.of(inputs, targets, examples="one")
                what = f"targets hold a tensor that does not run over the {batch.size} examples first: transpose it,"
                raise HessdiagError(f"{what} or pass examples='one' if all are one example")
            return replace(batch, targets=asked.joined(targets, batch.size), asked=asked).map(_plain)
        if targets is not None and not (isinstance(targets, Tensor) and (targets.dim() or examples == "one")):
            how = "a batch, as of DataLoader(dataset)" if isinstance(targets, Tensor) else "torch.as_tensor(targets)"
            raise HessdiagError(f"targets are {kind_of(targets)}: pass {how}")
        batch = replace(cls(args, kwargs, None, 1).map(_finite), targets=targets).map(_plain)
        if examples == "one":
            return replace(batch, as_one=True, structure=True)
        if not batch.tensors:
            raise HessdiagError("inputs hold no tensor: pass tensors, as of torch.as_tensor, in a tuple or dict")
        if not (batch := batch._examples_first(batch_dim, alone=isinstance(inputs, Tensor))).leaves:
            raise HessdiagError("batch_dim is None for all inputs: if they are one example, pass examples='one'")
        size, targets = len(batch.leaves[0]) if batch.leaves[0].dim() else 0, batch.targets
        batch = batch if targets is None else batch._targets_apart(targets, size)
        if examples == "either" and len({value.shape[:1] for value in batch.leaves}) > 1:
            return cls.of(inputs, targets, examples="one")
        return replace(batch, size=_common_size(batch.leaves))

    def _targets_apart(self, targets: Tensor, size: int) -> Batch:
        """With targets (size · positions,) or (positions, size) of outputs in that form as (size, positions)."""
        if shares_dimension(targets, size):
            return replace(self, targets=positions_apart(targets, size, self.dim), form=Form(True, self.dim))
        if targets.shape[:1] != (size,) and place_of_examples(targets, size, 1):
            return replace(self, targets=targets.movedim(1, 0), form=Form(at=1))
        return self

    def _examples_first(self, batch_dim: BatchDim, *, alone: bool) -> Batch:
        leaves, spec = tree_flatten(dict(self.kwargs) or (self.args[0] if alone else self.args))
        dims = _broadcast_to_and_flatten(tuple(batch_dim) if isinstance(batch_dim, list) else batch_dim, spec)
        pairs = [] if dims is None else [pair for pair in zip(leaves, dims, strict=True) if isinstance(pair[0], Tensor)]
        fit = [d is None or (isinstance(d, int) and -v.dim() <= d < max(v.dim(), 1)) for v, d in pairs]
        if not pairs and any(isinstance(value, Common) for value in leaves):
            raise HessdiagError("inputs are sparse or one number: pass inputs.to_dense(), or examples='one'")
        if not pairs or not all(fit):
            raise HessdiagError(f"batch_dim {batch_dim!r}: pass a dimension of the inputs, or one for each of them")
        kept = tuple(dim % max(value.dim(), 1) for value, dim in pairs if dim is not None)
        if not any(kept) and len(kept) == len(pairs):
            return self
        places = iter(dims or ())

        def first(value: Any) -> Any:
            dim = next(places)
            if not isinstance(value, Tensor):
                return value
            return Common(value) if dim is None else value.movedim(dim, 0)

        args, kwargs = tree_map(first, (self.args, dict(self.kwargs)))
        targets, at = self.targets, 0
        size = next((value.shape[dim] for value, dim in pairs if dim is not None), 1)
        if targets is not None and kept[:1] not in ((), (0,)):
            if targets.dim() > kept[0] and targets.shape[0] == targets.shape[kept[0]] == size:
                message = f"targets {tuple(targets.shape)} have {size} examples in dimension 0 or {kept[0]}: pass a"
                raise HessdiagError(f"{message} batch of another size")
            at = place_of_examples(targets, size, kept[0])
            targets = targets.movedim(at, 0)
        return replace(self, args=args, kwargs=kwargs, targets=targets, dims=kept, form=Form(at=at))

    @property
    def given(self) -> tuple[Any, Any]:
        """Inputs and targets as `of` takes them."""
        if self.asked is None or self.targets is None:
            return self.inputs, self.targets
        return self.inputs, self.asked.split(self.targets)

    def loss_of(self, loss: Any) -> Any:
        """A loss as a function of the targets as they are in here, where it asks for several tensors."""
        if (asked := self.asked) is None:
            return loss
        if not callable(loss):
            raise HessdiagError("targets hold several tensors: pass loss as a function of the outputs and of these")

        def of_several(y: Any, targets: Tensor) -> Any:
            return loss(y, asked.split(targets))

        of_several.__name__ = getattr(loss, "__name__", type(loss).__name__)
        return of_several

    def narrow(self, start: int, stop: int) -> Batch:
        """Examples `start` up to `stop`."""
        stop = min(stop, self.size)
        if self.within is not None:
            return replace(self.among_all(range(start, stop)), within=self.within[start:stop])
        if self.as_one:
            return self
        return self.map(lambda value: value[start:stop], size=stop - start, offset=self.offset + start)

    def as_structure(self) -> Batch:
        """All of it as one example, as a graph is."""
        targets = None if self.targets is None else self.form.restore(self.targets)
        return replace(self, as_one=True, structure=True, size=1, targets=targets, form=Form())

    def select(self, examples: Sequence[int]) -> Batch:
        """The examples of those numbers, in that order."""
        return self.map(lambda value: value[list(examples)], size=len(examples))

    def among_all(self, examples: Sequence[int]) -> Batch:
        """Examples of a whole batch, each measured within it."""
        targets = None if self.targets is None else self.targets[list(examples)]
        return replace(self, within=tuple(examples), size=len(examples), targets=targets)

    @property
    def rows(self) -> int | None:
        """How many examples the model is called with; None of a structure."""
        return None if self.structure else self.size if self.apart else len(self.leaves[0])

    @property
    def dim(self) -> int:
        """Where the examples stand in outputs and targets: as in the first of the arguments."""
        return self.returned_at or (self.dims[0] if self.dims else 0)

    @property
    def apart(self) -> bool:
        """Whether the model can be called with one example alone."""
        return self.within is None and not self.as_one

    @classmethod
    def concatenate(cls, batches: Sequence[Batch]) -> Batch:
        """One batch of the examples of several."""
        first = batches[0]
        if len(batches) == 1:
            return first
        if first.structure:
            raise HessdiagError("every one of the inputs is one example: per='batch' needs a single one")
        joined = [torch.cat(values) for values in zip(*(batch.leaves for batch in batches), strict=True)]
        return replace(first.with_leaves(joined), size=sum(batch.size for batch in batches))

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the examples in all of the data."""
        return [self.offset + number for number in (range(self.size) if self.within is None else self.within)]

    @property
    def inputs(self) -> tuple[Any, ...] | Mapping[str, Any]:
        """The arguments as `of` takes them."""
        args, kwargs = self.arguments
        return kwargs or args

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""
        dims = iter(self.dims)

        def given(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.movedim(0, dim) if (dim := next(dims, 0)) else value
            return value.value if isinstance(value, Common) else value

        return tree_map(given, (self.args, dict(self.kwargs)))  # type: ignore[no-any-return]

    @property
    def tensors(self) -> list[Tensor]:
        """Those among the arguments."""
        return [value for value in tree_leaves(self.arguments) if isinstance(value, Tensor)]

    @property
    def leaves(self) -> list[Tensor]:
        """All tensors over the examples, of arguments, noise and targets."""
        held = tree_leaves((self.args, dict(self.kwargs), self.noise, self.targets))
        return [value for value in held if isinstance(value, Tensor)]

    def with_leaves(self, leaves: Sequence[Tensor]) -> Batch:
        """The same with others in their places."""
        values = iter(leaves)
        return self.map(lambda _: next(values))

    def single(self, leaves: Sequence[Tensor]) -> Batch:
        """One example as a batch, from `leaves` that a vmap over examples has taken apart."""
        return replace(self.with_leaves([value.unsqueeze(0) for value in leaves]), size=1)

    def chunks(self, examples: int) -> Iterator[Batch]:
        """The batch in pieces of at most `examples`; of one, where the model is called with all of them."""
        examples = examples if self.within is None else 1
        return (self.narrow(start, start + examples) for start in range(0, self.size, examples))

    def call(self, model: Callable[..., Any]) -> Tensor:
        """The model's outputs, (B, *out), with at least one output dimension."""
        return self.read(self.run(model)).y

    def run(self, model: Callable[..., Any]) -> Any:
        """What the model returns: it draws the noise of the batch, whatever examples of it are there."""
        args, kwargs = tree_map_only(Tensor, Tensor.clone, self.arguments)  # the model may write to them
        pairs = zip(self.noise, self.noise_at, strict=True)
        drawn = [v.value if isinstance(v, Common) else v.flatten(0, 1) if d < 0 else v.movedim(0, d) for v, d in pairs]
        if calls := calls_here():
            calls.start_over()
        with user_code(), Noise(drawn) if drawn else nullcontext():
            return model(*args, **kwargs)

    def with_noise(self, model: nn.Module, few: Sequence[Any] = ()) -> tuple[Batch, Any]:
        """With what the model draws for these examples, and what it returns; for a `few` it drew noise in which that
        of no example's own shows, though a layer may be as wide as the batch is large.
        """
        count = self.rows
        with Noise() as drawn:
            returned = self.run(model)
        places = [[d for d, size in enumerate(each.shape[:2]) if size == count] for each in drawn.noted]
        if count and count > 1 and any(dims != [0] for dims in places):  # whose they are, one example less tells
            with Noise() as fewer:
                self.narrow(0, count - 1).run(model)
            if len(drawn.noted) != len(fewer.noted):  # at its first call it draws more, as for means of clusters
                with Noise() as drawn:
                    returned = self.run(model)
            places = [_places(e.shape, less.shape, count) for e, less in zip(drawn.noted, fewer.noted, strict=False)]
        noise, at = list[Any](), list[int]()
        for each, dims, known in zip_longest(drawn.noted, places, few[: len(places)]):
            own = dims and not isinstance(known, Common)
            at.append(dims[0] if own else 0)
            split = each.unflatten(0, (count, -1)) if at[-1] < 0 else each
            noise.append(split.movedim(max(at[-1], 0), 0) if own else Common(each))
        return replace(self, noise=tuple(noise), noise_at=tuple(at)), returned

    def look(self, model: nn.Module, per: str) -> tuple[Batch, Any]:
        """A few examples with what the model draws for them, and what it returns."""
        return self.narrow(0, TRIED[per]).with_noise(model)

    def of_pairs(self, model: nn.Module, returned: Any) -> bool:
        """Whether the outputs of an example, which the model returned, have another size among fewer examples."""
        count = self.rows
        over = [v.shape.count(count) > 1 for v in tensors_in(returned)]
        if count is None or count < 2 or not any(over):
            return False
        with suppress(Exception):  # of a model that takes no example alone
            pairs = zip(tensors_in(returned), tensors_in(self.narrow(0, count - 1).run(model)), strict=True)
            return any(sum(a != b for a, b in zip(v.shape, w.shape, strict=True)) > 1 for v, w in compress(pairs, over))
        return False

    def one_after_the_other(self, model: nn.Module, returned: Tensor, *around: AbstractContextManager[Any]) -> bool:
        """Whether outputs (k · B, ...) run over the examples of one input, then of the next, as of real and fake."""
        count = self.rows or 1
        if count < 2 or self.as_one or returned.dim() > 2 or not shares_dimension(returned, count):
            return False
        with suppress(Exception), ExitStack() as stack:  # a model that takes no example alone
            for context in around:
                stack.enter_context(context)
            alone, among = self.narrow(0, 1).run(model), self.run(model)
            there, here = ((alone - rows).abs().max().item() for rows in (among[: len(alone)], among[::count]))
            return bool(here < min(1e-3 * among.abs().max().item(), there / 10))  # convolutions round
        return False

    def chosen(self, returned: Any) -> Tensor:
        """The tensor of outputs, as the model returned it: `output`, `logits` or the only one over the examples."""
        if not isinstance(returned, Tensor):
            return _only(returned, self.rows, self.dim) if self.output is None else pick_output(returned, self.output)
        if self.output is not None:
            raise HessdiagError(f"output {self.output!r}: the model returned a single tensor, leave output out")
        return returned

    def read(self, returned: Any) -> Outputs:
        """The outputs (B, *out) among what the model returned for this batch."""
        found = self._read(returned)
        found = replace(found, y=found.y.masked_fill(found.y == -math.inf, -1e9)) if self.masked else found
        if self.within is not None:
            return replace(found, y=found.y[list(self.within)])
        return replace(found, y=found.y.unsqueeze(0)) if self.as_one else found

    def _read(self, returned: Any) -> Outputs:
        """Of all examples that the model is called with; they may stand at `dim`, or share the first with positions."""
        size, dim = self.rows, self.dim
        if isinstance(self.output, Layout):
            return Outputs(self.output.joined(returned, 1 if size is None else size))
        y = self.chosen(returned)
        at = place_of_examples(y, size, dim)
        # Of one example, which `.squeeze()` took away.
        y = y.reshape((1, 1) if size is None else (1,)) if y.dim() == 0 and size in (None, 1) else y
        y = y.movedim(at, 0) if at else y
        if flat := y.dim() < 3 and shares_dimension(y, size):
            y, at = positions_apart(y, size or 1, dim), dim
        if size is not None and y.shape[:1] != (size,):
            what = f"the model returned a tensor of shape {tuple(y.shape)} for {size} examples: its first dimension"
            how = "if it is the loss, pass loss='model' (--loss model), and if all inputs are one example"
            if y.dim() and any(v.shape[1:2] == y.shape[:1] for v in self.tensors):
                how = f"of the last step of a sequence take y[:, -1], not y[-1]; {how}"
            raise HessdiagError(f"{what} must run over the examples; {how}, as a graph is, examples='one'")
        if y.dtype not in (torch.float32, torch.float64):
            how = "switch autocast off, and return real floating-point numbers (not an argmax, but what it is taken of)"
            raise HessdiagError(f"the model returned {y.dtype} outputs: {how}")
        kinds = {f"{k.__module__.partition('.')[0]}.{k.__name__}" for k in type(returned).__mro__}
        last = y.dim() == 3 and (flat or "transformers.ModelOutput" in kinds)  # (B, positions, classes)
        return Outputs(y.unsqueeze(1) if y.dim() == 1 else y, Form(flat or y.dim() == 1, at), -1 if last else None)

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """The batch on another device, its floating-point tensors in another dtype."""
        return self.map(lambda v: v.to(device, dtype) if v.is_floating_point() else v.to(device), common=True)

    def map(self, function: Callable[[Tensor], Tensor], *, common: bool = False, **changes: Any) -> Batch:
        """A function applied to every tensor over the examples, or also to those that all examples share."""

        def each(value: Any) -> Any:
            if common and isinstance(value, Common):
                return Common(function(value.value))
            return function(value) if isinstance(value, Tensor) else value

        args, kwargs, noise = tree_map(each, (self.args, dict(self.kwargs), self.noise))
        return replace(self, args=args, kwargs=kwargs, noise=noise, targets=each(self.targets), **changes)


@dataclass(frozen=True)
class Road:
    """How outputs and targets of every batch are found."""

    loss: Any  # of these
    output: str | int | Layout | None = None  # which of what the model returns
    labels: int | None = None  # number of the tensor among the arguments that are the targets; None where given
    shifted: bool = False  # whether the label of a position is that of the next one
    # whether the model returns a number of all examples, such as its loss: an example is called alone, the batch is one
    together: bool = False
    draws: tuple[Any, ...] = ()  # noise of a few examples, where the model draws random numbers
    returned_at: int = 0  # where the examples stand in outputs (T, B, ...) of inputs (B, ...), or -1, see `Batch`
    masked: bool = False  # whether outputs of -inf are masked logits

    def whole(self, batch: Batch) -> Batch:
        """The batch with its targets."""
        targets = batch.targets if self.labels is None else labels_of(batch.leaves[self.labels], shifted=self.shifted)
        form = batch.form
        if self.returned_at < 0 and form == Form(flat=True) and targets is not None:
            form = Form(True, self.returned_at)
            targets = positions_apart(batch.form.restore(targets), batch.size, self.returned_at)
        found: dict[str, Any] = {"output": self.output, "returned_at": self.returned_at, "masked": self.masked}
        batch = replace(batch, targets=targets, form=form, **found)
        return replace(batch, as_one=True, size=1) if self.together else batch

    def batches(self, model: nn.Module, batch: Batch, per: str) -> Iterator[Batch]:
        """The same, or its examples one by one, with the noise that the model draws for them all."""
        batch = batch.with_noise(model, self.draws)[0] if self.draws else batch
        if self.together and per == "example" and not batch.as_one:
            yield from (replace(each, output=self.output) for each in batch.chunks(1))
        else:
            yield self.whole(batch)

    def of_all(self, model: nn.Module, batch: Batch, some: Batch, returned: Any, per: str) -> Road:
        """For a loss of all that the model returns."""
        if some.of_pairs(model, returned):
            if per == "example":
                raise CoupledError(f"{SIMILARITIES} per='batch' (--per batch)")
            return replace(self, output=Layout.of(batch.run(model), size=batch.rows), together=True)
        more = batch if per == "batch" else batch.narrow(0, (some.rows or 1) + 1)  # a size may be as many as those
        layout = Layout.of(more.run(model), size=more.rows, fewer=returned)
        if callable(self.loss) and any(isinstance(module, nn.RNNBase) for module in model.modules()):
            layout = layout.read_by(self.loss, returned, some.targets)
        if not layout.apart and per == "example" and callable(self.loss):
            try:
                for one in some.chunks(1):
                    self.loss(mapped(one.run(model), Tensor.detach), one.targets)
            except REFUSALS as error:
                message = f"the loss cannot be called with an example alone ({one_line(error)}): if it compares the"
                raise CoupledError(f"{message} examples of a batch, pass per='batch' (--per batch)") from error
        return replace(self, output=layout, together=not layout.apart)


def labels_of(held: Tensor, *, shifted: bool) -> Tensor:
    """Targets; where they are those of the next position, as in causal language models, the last one has none."""
    return F.pad(held[:, 1:], (0, 1), value=IGNORED) if shifted else held


def _places(shape: torch.Size, fewer: torch.Size, count: int) -> list[int]:
    """Dimensions over `count` examples, of which `fewer` has one less; -1 of a first one over positions of each, too.

    >>> _places(torch.Size([8, 4]), torch.Size([7, 4]), 8), _places(torch.Size([24, 8]), torch.Size([21, 8]), 8)
    ([0], [-1])
    """
    grown = [d for d, size in enumerate(shape) if size and size * (count - 1) == fewer[d] * count]
    return [d if shape[d] == count else -1 for d in grown if d == 0 or shape[d] == count]


def of_numpy(array: Any) -> Any:
    """A tensor, of numpy's usual float64 in torch's usual type."""
    values = torch.as_tensor(array) if array.dtype.kind in "biuf" else array
    return values.to(torch.get_default_dtype()) if array.dtype == np.float64 else values


def _plain(value: Tensor) -> Tensor:
    """A copy of a tensor made under `torch.inference_mode`, which autograd refuses; else the value itself."""
    with torch.inference_mode(False):
        return value.clone() if value.is_inference() else value


def _finite(value: Tensor) -> Tensor:
    """The value itself, if its numbers are finite, NaN left to the model, or it is a mask of zeros and -inf."""
    mask = (value == 0) | (value == -math.inf)
    if value.is_floating_point() and bool(value.isinf().any()) and not bool(mask.all()):
        raise HessdiagError("inputs hold infinite values: clean the data first")
    return value


def _arguments(inputs: Any, examples: str) -> tuple[tuple[tuple[Any, ...], Mapping[str, Any]], str]:
    """Positional and keyword arguments of the model; and what they hold: a packed sequence is one example."""
    several = isinstance(inputs, (tuple, list)) and not isinstance(inputs, PackedSequence)
    if not (several or isinstance(inputs, Tensor | PackedSequence | Mapping) or examples == "one"):
        raise HessdiagError(f"inputs are {kind_of(inputs)}: {TENSORS}")
    kwargs = dict(inputs) if isinstance(inputs, Mapping) else {}
    args = () if kwargs else tuple(inputs) if several else (inputs,)
    packed = any(isinstance(each, PackedSequence) for each in (*args, *kwargs.values()))
    return (args, kwargs), "one" if packed else examples


def _common_size(tensors: Sequence[Tensor]) -> int:
    if len(sizes := {tuple(t.shape[:1]) for t in tensors}) > 1 or () in sizes:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        how = 'must be the same batch, or pass batch_dim, or, where all are one, examples="one" (of --data FILE:f write'
        raise HessdiagError(f'inputs and targets have shapes {shapes}: the first dimension {how} f.examples = "one")')
    ((size,),) = sizes
    if size == 0:
        raise HessdiagError("the batch is empty: pass at least one example")
    return size
