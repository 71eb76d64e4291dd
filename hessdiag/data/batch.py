"""A batch of examples: what the model is called with, the targets, and which of what it returns are the outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from hessdiag.arguments import few, kind_of, to_tensor
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
        output: name or position of the model's output that is measured, where it returns several.
        within: numbers of the examples whose outputs are looked at, where the model is always called with all: examples
            that meet in a normalisation. `size` counts these, and targets are theirs.
        as_one: whether all examples together are the one example of this batch.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    targets: Tensor | None
    size: int
    offset: int = 0
    output: str | int | None = None
    within: tuple[int, ...] | None = None
    as_one: bool = False

    @classmethod
    def of(cls, inputs: Inputs, targets: Tensor | None) -> Batch:
        """A tensor is the one argument, a tuple or list the positional ones, a mapping the keyword ones.

        Raises:
            HessdiagError: there is no tensor, no example, or the tensors disagree about the number of examples.
        """
        args, kwargs = _arguments(inputs)
        if targets is not None and not isinstance(targets, Tensor):
            raise HessdiagError(f"targets are {kind_of(targets)}: {to_tensor(targets, 'targets') or 'pass a tensor'}")
        tensors = _tensors(inputs, (*args, *kwargs.values()))
        tensors += [targets] if isinstance(targets, Tensor) else []
        size = _common_size(tensors)
        real = [value for value in tensors if value.is_floating_point() and value.numel()]
        if not all(bool(torch.stack(value.detach().aminmax()).isfinite().all()) for value in real):  # NaN is both
            raise HessdiagError("inputs or targets hold NaN or infinite values: clean the data first")
        args = tuple(map(_plain, args))
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        return cls(args, kwargs, targets, size)

    def narrow(self, start: int, stop: int) -> Batch:
        """Examples `start` up to `stop`."""
        stop = min(stop, self.size)
        if self.within is not None:
            return self._of(self.within[start:stop], self.targets if self.targets is None else self.targets[start:stop])
        if self.as_one:
            return self
        return replace(self._map(lambda value: value[start:stop]), size=stop - start, offset=self.offset + start)

    def select(self, examples: Sequence[int]) -> Batch:
        """The examples of those numbers, in that order."""
        index = torch.tensor(examples)
        return replace(self._map(lambda value: value[index.to(value.device)]), size=len(examples))

    def among_all(self, examples: Sequence[int]) -> Batch:
        """Examples of a whole batch, each measured within it."""
        targets = None if self.targets is None else self.targets[torch.tensor(examples).to(self.targets.device)]
        return self._of(tuple(examples), targets)

    def _of(self, within: tuple[int, ...], targets: Tensor | None) -> Batch:
        return replace(self, within=within, size=len(within), targets=targets)

    @property
    def rows(self) -> int:
        """How many examples the model is called with."""
        return self.size if self.apart else len(self.tensors[0])

    @property
    def apart(self) -> bool:
        """Whether the model can be called with one example alone."""
        return self.within is None and not self.as_one

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
        size = sum(batch.size for batch in batches)
        return cls(args, kwargs, targets, size, first.offset, first.output)

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the examples in all of the data."""
        return [self.offset + number for number in (range(self.size) if self.within is None else self.within)]

    @property
    def inputs(self) -> tuple[Any, ...] | Mapping[str, Any]:
        """The arguments as `of` takes them."""
        return self.kwargs or self.args

    @property
    def tensors(self) -> list[Tensor]:
        """Those among the arguments."""
        return [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]

    def detached(self) -> Batch:
        """The batch outside any autograd graph."""
        return self._map(lambda value: value.detach())

    def single(self, args: Any, kwargs: Any, targets: Tensor | None) -> Batch:
        """One example as a batch, from tensors that a vmap over examples has taken apart."""

        def whole(value: Any) -> Any:
            return value.unsqueeze(0) if isinstance(value, Tensor) else value

        return Batch(
            tuple(map(whole, args)), {k: whole(v) for k, v in kwargs.items()}, whole(targets), 1, output=self.output
        )

    def batched_dims(self) -> tuple[Any, Any, Any]:
        """`in_dims` of args, kwargs and targets for a vmap over examples."""

        def dim(value: Any) -> int | None:
            return 0 if isinstance(value, Tensor) else None

        return tuple(map(dim, self.args)), {k: dim(v) for k, v in self.kwargs.items()}, dim(self.targets)

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
        return self._read(model(*self.args, **self.kwargs))

    def _read(self, returned: Any) -> Outputs:
        found = read_outputs(returned, size=self.rows, which=self.output)
        if self.within is not None:
            return replace(found, y=found.y[list(self.within)])
        return replace(found, y=found.y.unsqueeze(0)) if self.as_one else found

    def check_outputs(self, returned: Any) -> Tensor:
        """The outputs (B, *out) among what the model returned for this batch.

        Raises:
            HessdiagError: there is no such tensor, or no telling which of several it is.
        """
        return self._read(returned).y

    def to(self, device: torch.device, dtype: torch.dtype) -> Batch:
        """The batch on another device, its floating-point tensors in another dtype."""
        return self._map(lambda value: value.to(device, dtype) if value.is_floating_point() else value.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """A function applied to every tensor."""

        def each(value: Any) -> Any:
            return function(value) if isinstance(value, Tensor) else value

        kwargs = {key: each(value) for key, value in self.kwargs.items()}
        return replace(self, args=tuple(map(each, self.args)), kwargs=kwargs, targets=each(self.targets))


def _plain(value: Any) -> Any:
    """A copy of a tensor made under `torch.inference_mode`, which autograd refuses; else the value itself."""
    if isinstance(value, Tensor) and value.is_inference():
        with torch.inference_mode(False):
            return value.clone()
    return value


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Positional and keyword arguments of the model."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    how = to_tensor(inputs, "inputs") or "pass a tensor, or a tuple or dict of tensors"
    raise HessdiagError(f"inputs are {kind_of(inputs)}: {how}")


def _tensors(inputs: Any, arguments: Sequence[Any]) -> list[Tensor]:
    """Those of the arguments that run over the examples; others are passed on as they are, and must hold no tensor."""
    nested = [value for value in arguments if not isinstance(value, Tensor)]
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves(nested)):
        raise HessdiagError(
            "inputs hold tensors inside a dict, list or tuple: pass each tensor as an argument of its own,"
            " and wrap the model so that it takes them"
        )
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    if not tensors:
        advice = [to_tensor(value, "each") for value in nested] + [to_tensor(inputs, "inputs")]
        how = next(filter(None, advice), "pass a tensor, or a tuple or dict of tensors")
        raise HessdiagError(f"inputs hold no tensor: {how}")
    return tensors


def _common_size(tensors: Sequence[Tensor]) -> int:
    """The number of examples that all tensors agree about."""
    sizes = {tuple(t.shape[:1]) for t in tensors}
    if len(sizes) > 1 or () in sizes:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        raise HessdiagError(f"inputs and targets have shapes {shapes}: the first dimension must be the same batch")
    ((size,),) = sizes
    if size == 0:
        raise HessdiagError("the batch is empty: pass at least one example")
    return size


# What a model returned.


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
