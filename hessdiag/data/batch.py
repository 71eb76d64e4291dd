"""A batch of examples: what the model is called with, the targets, and which of what it returns are the outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_leaves, tree_map

from hessdiag.arguments import kind_of, to_tensor
from hessdiag.data.noise import Noise, user_code
from hessdiag.data.outputs import Layout, Outputs, examples_first, read_outputs
from hessdiag.errors import HessdiagError

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
BatchDim = int | None | tuple[Any, ...] | list[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Common:
    """A tensor among the arguments that is the same for all examples."""

    value: Tensor


@dataclass(frozen=True)
class Batch:
    """Positional and keyword arguments of the model; in here the first dimension of tensors runs over examples.

    Attributes:
        args, kwargs: what the model is called with: tensors, also in lists, tuples and dicts, and anything else.
        targets: what the loss compares with.
        size: B, examples.
        offset: number of the first example in all of the data: what is drawn for an example follows from its number.
        output: name or position of the model's output that is measured, where it returns several; or all of them.
        within: numbers of the examples whose outputs are looked at, where the model is always called with all: examples
            that meet in a normalisation. `size` counts these, and targets are theirs.
        as_one: whether all examples together are the one example of this batch.
        dims: at which dimension the model reads the examples, of each tensor over them, if not at the first of all.
        structure: whether no dimension runs over examples, as in a graph.
        noise: what the model draws when it is called, one after the other.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    targets: Tensor | None
    size: int
    offset: int = 0
    output: str | int | Layout | None = None
    within: tuple[int, ...] | None = None
    as_one: bool = False
    dims: tuple[int, ...] = ()
    structure: bool = False
    noise: tuple[Any, ...] = ()

    @classmethod
    def of(cls, inputs: Any, targets: Tensor | None, *, batch_dim: BatchDim = 0, examples: str = "batch") -> Batch:
        """A tensor is the one argument, a tuple or list the positional ones, a mapping the keyword ones.

        `batch_dim` is the dimension that runs over the examples; or in a structure like the inputs', as `in_dims` of
        `torch.vmap`, that of each tensor, and None of a tensor that all examples share. With `examples="one"` all
        inputs together are one example.
        """
        if examples not in ("batch", "one"):
            raise HessdiagError(f"examples {examples!r} is not known: use one of batch, one")
        args, kwargs = _arguments(inputs, any_kind=examples == "one")
        if targets is not None and not isinstance(targets, Tensor):
            raise HessdiagError(f"targets are {kind_of(targets)}: {to_tensor(targets, 'targets') or 'pass a tensor'}")
        batch = cls(args, kwargs, targets, 1).map(_plain)
        real = [value for value in batch.leaves if value.is_floating_point() and value.numel()]
        if not all(bool(torch.stack(value.detach().aminmax()).isfinite().all()) for value in real):  # NaN is both
            raise HessdiagError("inputs or targets hold NaN or infinite values: clean the data first")
        if examples == "one":
            return replace(batch, as_one=True, structure=True)
        if not batch.tensors:
            advice = [to_tensor(value, "each") for value in (*args, *kwargs.values())] + [to_tensor(inputs, "inputs")]
            how = next(filter(None, advice), "pass a tensor, or a tuple or dict of tensors")
            raise HessdiagError(f"inputs hold no tensor: {how}")
        batch = batch._examples_first(batch_dim, alone=isinstance(inputs, Tensor))
        if not batch.leaves:
            raise HessdiagError("batch_dim is None for all inputs: if they are one example, pass examples='one'")
        return replace(batch, size=_common_size(batch.leaves))

    def _examples_first(self, batch_dim: BatchDim, *, alone: bool) -> Batch:
        """With the examples first in every tensor."""
        leaves, spec = tree_flatten(dict(self.kwargs) or (self.args[0] if alone else self.args))
        dims = _broadcast_to_and_flatten(tuple(batch_dim) if isinstance(batch_dim, list) else batch_dim, spec)
        pairs = [] if dims is None else [pair for pair in zip(leaves, dims, strict=True) if isinstance(pair[0], Tensor)]
        fit = [d is None or (isinstance(d, int) and -v.dim() <= d < max(v.dim(), 1)) for v, d in pairs]
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
        targets = self.targets
        size = next((value.shape[dim] for value, dim in pairs if dim is not None), 1)
        if targets is not None and kept[:1] != (0,):
            if targets.dim() > kept[0] and targets.shape[0] == targets.shape[kept[0]] == size:
                message = f"targets {tuple(targets.shape)} have {size} examples in dimension 0 or {kept[0]}: pass a"
                raise HessdiagError(f"{message} batch of another size")
            targets = examples_first(targets, size, kept[0])
        return replace(self, args=args, kwargs=kwargs, targets=targets, dims=kept)

    def narrow(self, start: int, stop: int) -> Batch:
        """Examples `start` up to `stop`."""
        stop = min(stop, self.size)
        if self.within is not None:
            return self._of(self.within[start:stop], self.targets if self.targets is None else self.targets[start:stop])
        if self.as_one:
            return self
        return replace(self.map(lambda value: value[start:stop]), size=stop - start, offset=self.offset + start)

    def select(self, examples: Sequence[int]) -> Batch:
        """The examples of those numbers, in that order."""
        index = torch.tensor(examples)
        return replace(self.map(lambda value: value[index.to(value.device)]), size=len(examples))

    def among_all(self, examples: Sequence[int]) -> Batch:
        """Examples of a whole batch, each measured within it."""
        targets = None if self.targets is None else self.targets[torch.tensor(examples).to(self.targets.device)]
        return self._of(tuple(examples), targets)

    def _of(self, within: tuple[int, ...], targets: Tensor | None) -> Batch:
        return replace(self, within=within, size=len(within), targets=targets)

    @property
    def rows(self) -> int | None:
        """How many examples the model is called with; None of a structure."""
        return None if self.structure else self.size if self.apart else len(self.leaves[0])

    @property
    def dim(self) -> int:
        """Where the examples stand in the first of the arguments."""
        return self.dims[0] if self.dims else 0

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

        args, kwargs = tree_map(given, (self.args, dict(self.kwargs)))
        return args, kwargs

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
        for start in range(0, self.size, examples):
            yield self.narrow(start, start + examples)

    def call(self, model: nn.Module) -> Tensor:
        """The model's outputs, (B, *out), with at least one output dimension."""
        return self.outputs(model).y

    def outputs(self, model: nn.Module) -> Outputs:
        """The same with what is known of their dimensions."""
        return self.read(self.run(model))

    def run(self, model: nn.Module) -> Any:
        """What the model returns."""
        args, kwargs = self.arguments
        with self.replaying():
            return model(*args, **kwargs)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """In this context the model is called: it draws the noise of the batch, whatever examples of it are there."""
        drawn = [each.value if isinstance(each, Common) else each for each in self.noise]
        with user_code(), Noise(drawn) if drawn else nullcontext():
            yield

    def with_noise(self, model: nn.Module) -> tuple[Batch, Any]:
        """With what the model draws for these examples, and what it returns."""
        with Noise() as drawn:
            returned = self.run(model)
        noise = tuple(each if each.shape[:1] == (self.rows,) else Common(each) for each in drawn.noted)
        return replace(self, noise=noise), returned

    def read(self, returned: Any) -> Outputs:
        """The outputs (B, *out) among what the model returned for this batch."""
        found = read_outputs(returned, size=self.rows, which=self.output, dim=self.dim)
        if self.within is not None:
            return replace(found, y=found.y[list(self.within)])
        return replace(found, y=found.y.unsqueeze(0)) if self.as_one else found

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """The batch on another device, its floating-point tensors in another dtype."""
        return self.map(lambda v: v.to(device, dtype) if v.is_floating_point() else v.to(device), common=True)

    def map(self, function: Callable[[Tensor], Tensor], *, common: bool = False) -> Batch:
        """A function applied to every tensor over the examples, or also to those that all examples share."""

        def each(value: Any) -> Any:
            if common and isinstance(value, Common):
                return Common(function(value.value))
            return function(value) if isinstance(value, Tensor) else value

        args, kwargs, noise, targets = tree_map(each, (self.args, dict(self.kwargs), self.noise, self.targets))
        return replace(self, args=args, kwargs=kwargs, noise=noise, targets=targets)


def _plain(value: Tensor) -> Tensor:
    """A copy of a tensor made under `torch.inference_mode`, which autograd refuses; else the value itself."""
    if value.is_inference():
        with torch.inference_mode(False):
            return value.clone()
    return value


def _arguments(inputs: Any, *, any_kind: bool) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Positional and keyword arguments of the model."""
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, Tensor) and not any_kind:
        how = to_tensor(inputs, "inputs") or "pass a tensor, or a tuple or dict of tensors"
        raise HessdiagError(f"inputs are {kind_of(inputs)}: {how}")
    return (inputs,), {}


def _common_size(tensors: Sequence[Tensor]) -> int:
    """The number of examples that all tensors agree about."""
    sizes = {tuple(t.shape[:1]) for t in tensors}
    if len(sizes) > 1 or () in sizes:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        raise HessdiagError(
            f"inputs and targets have shapes {shapes}: the first dimension must be the same batch, or pass batch_dim,"
            ' or examples="one" where all of them together are one example'
        )
    ((size,),) = sizes
    if size == 0:
        raise HessdiagError("the batch is empty: pass at least one example")
    return size
