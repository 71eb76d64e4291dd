"""A batch of examples: what the model is called with, and the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from hessdiag.errors import HessdiagError

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Positional and keyword arguments of the model; the first dimension of every tensor runs over examples.

    Attributes:
        args, kwargs: what the model is called with.
        targets: what the loss compares with.
        size: B, examples.
        offset: number of the first example in all of the data: what is drawn for an example follows from its number.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    targets: Tensor | None
    size: int
    offset: int = 0

    @classmethod
    def of(cls, inputs: Inputs, targets: Tensor | None) -> Batch:
        """A tensor is the one argument, a tuple or list the positional ones, a mapping the keyword ones.

        Raises:
            HessdiagError: there is no tensor, no example, or the tensors disagree about the number of examples.
        """
        args: tuple[Any, ...] = ()
        kwargs: Mapping[str, Any] = {}
        if isinstance(inputs, Tensor):
            args = (inputs,)
        elif isinstance(inputs, (tuple, list)):
            args = tuple(inputs)
        elif isinstance(inputs, Mapping):
            kwargs = dict(inputs)
        else:
            raise HessdiagError(f"inputs are a {type(inputs).__name__}: pass a tensor, or a tuple or dict of tensors")
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        nested = [value for value in (*args, *kwargs.values()) if not isinstance(value, Tensor)]
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(nested)):
            raise HessdiagError(
                "inputs hold tensors inside a dict, list or tuple: pass each tensor as an argument of its own,"
                " and wrap the model so that it takes them"
            )
        if not tensors:
            raise HessdiagError("inputs hold no tensor: pass a tensor, or a tuple or dict of tensors")
        tensors += [targets] if isinstance(targets, Tensor) else []
        sizes = {tuple(t.shape[:1]) for t in tensors}
        if len(sizes) > 1 or () in sizes:
            shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
            raise HessdiagError(f"inputs and targets have shapes {shapes}: the first dimension must be the same batch")
        (size,) = sizes.pop()
        if size == 0:
            raise HessdiagError("the batch is empty: pass at least one example")
        args = tuple(map(_plain, args))
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        for value in tensors:
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise HessdiagError("inputs or targets hold NaN or infinite values: clean the data first")
        return cls(args, kwargs, targets, size)

    def narrow(self, start: int, stop: int) -> Batch:
        """Examples `start` up to `stop`."""
        stop = min(stop, self.size)
        return replace(self._map(lambda value: value[start:stop]), size=stop - start, offset=self.offset + start)

    def select(self, examples: Sequence[int]) -> Batch:
        """The examples of those numbers, in that order."""
        index = torch.tensor(examples)
        return replace(self._map(lambda value: value[index.to(value.device)]), size=len(examples))

    @classmethod
    def concatenate(cls, batches: Sequence[Batch]) -> Batch:
        """One batch of the examples of several."""
        if len(batches) == 1:
            return batches[0]

        def joined(values: Sequence[Any]) -> Any:
            return torch.cat(list(values)) if isinstance(values[0], Tensor) else values[0]

        first = batches[0]
        args = tuple(joined([batch.args[i] for batch in batches]) for i in range(len(first.args)))
        kwargs = {key: joined([batch.kwargs[key] for batch in batches]) for key in first.kwargs}
        targets = joined([batch.targets for batch in batches])
        return cls(args, kwargs, targets, sum(batch.size for batch in batches), first.offset)

    @property
    def numbers(self) -> range:
        """Numbers of the examples in all of the data."""
        return range(self.offset, self.offset + self.size)

    @property
    def inputs(self) -> tuple[Any, ...] | Mapping[str, Any]:
        """The arguments as `of` takes them."""
        return self.kwargs or self.args

    def detached(self) -> Batch:
        """The batch outside any autograd graph."""
        return self._map(lambda value: value.detach())

    def single(self, args: Any, kwargs: Any, targets: Tensor | None) -> Batch:
        """One example as a batch, from tensors that a vmap over examples has taken apart."""

        def whole(value: Any) -> Any:
            return value.unsqueeze(0) if isinstance(value, Tensor) else value

        return Batch(tuple(map(whole, args)), {k: whole(v) for k, v in kwargs.items()}, whole(targets), 1)

    def batched_dims(self) -> tuple[Any, Any, Any]:
        """`in_dims` of args, kwargs and targets for a vmap over examples."""

        def dim(value: Any) -> int | None:
            return 0 if isinstance(value, Tensor) else None

        return tuple(map(dim, self.args)), {k: dim(v) for k, v in self.kwargs.items()}, dim(self.targets)

    def chunks(self, examples: int) -> Iterator[Batch]:
        """The batch in pieces of at most `examples`."""
        for start in range(0, self.size, examples):
            yield self.narrow(start, start + examples)

    def call(self, model: nn.Module) -> Tensor:
        """The model's outputs, (B, *out), with at least one output dimension."""
        y = model(*self.args, **self.kwargs)
        return self.check_outputs(y)

    def check_outputs(self, returned: Any) -> Tensor:
        """The outputs as a floating-point tensor (B, *out), also out of a dict, tuple or model output that holds one.

        Raises:
            HessdiagError: there is no such tensor, or no telling which of several it is.
        """
        y = returned if isinstance(returned, Tensor) else _only_outputs(returned, self.size)
        if y.dim() == 0 or y.shape[0] != self.size:
            raise HessdiagError(
                f"the model returned a tensor of shape {tuple(y.shape)} for {self.size} examples:"
                " its first dimension must run over the examples"
            )
        if not y.is_floating_point():
            raise HessdiagError(f"the model returned {y.dtype} outputs: they must be real floating-point numbers")
        if y.dtype in (torch.float16, torch.bfloat16):
            raise HessdiagError(f"the model returned {y.dtype} outputs: switch autocast off and convert it to float32")
        return y.unsqueeze(1) if y.dim() == 1 else y

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """The batch on another device, its floating-point tensors in another dtype."""
        return self._map(lambda value: value.to(device, dtype) if value.is_floating_point() else value.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """A function applied to every tensor."""

        def each(value: Any) -> Any:
            return function(value) if isinstance(value, Tensor) else value

        kwargs = {key: each(value) for key, value in self.kwargs.items()}
        return replace(self, args=tuple(map(each, self.args)), kwargs=kwargs, targets=each(self.targets))


def _only_outputs(returned: Any, size: int) -> Tensor:
    """The outputs among what a model returned: `logits`, or else the only floating-point tensor over the examples."""
    held: Mapping[Any, Any] = {}
    if isinstance(returned, Mapping):  # transformers' model outputs too
        held = returned
    elif isinstance(returned, (tuple, list)):
        held = dict(zip(getattr(returned, "_fields", range(len(returned))), returned, strict=True))
    elif is_dataclass(returned):
        held = vars(returned)
    if isinstance(held.get("logits"), Tensor):
        return cast(Tensor, held["logits"])
    found = {
        key: value
        for key, value in held.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.shape[:1] == (size,)
    }
    if len(found) == 1:
        return found.popitem()[1]
    what = f"a {type(returned).__name__}"
    if found:
        which = ", ".join(map(repr, found))
        raise HessdiagError(
            f"the model returned {what} with {len(found)} tensors over the examples ({which}):"
            " wrap it so that it returns one of them, or call that one 'logits'"
        )
    raise HessdiagError(
        f"the model returned {what} without a tensor over the examples:"
        " wrap it so that it returns one tensor (batch, outputs)"
    )


def _plain(value: Any) -> Any:
    """A copy of a tensor made under `torch.inference_mode`, which autograd refuses; else the value itself."""
    if isinstance(value, Tensor) and value.is_inference():
        with torch.inference_mode(False):
            return value.clone()
    return value
