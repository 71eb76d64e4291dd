"""Batches from what users have: tensors, or an iterable of batches that is read once.

A batch is

* a tensor, or a dict of the model's keyword arguments: the inputs;
* `(inputs, targets)`, where inputs may also be a tuple of positional arguments, and targets may be None.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader, Dataset

from hessdiag.arguments import check_loss, check_model, check_tensors, did_you_mean, few
from hessdiag.data.batch import TARGETS, Batch, BatchDim, Inputs, of_numpy, tensors_in
from hessdiag.errors import HessdiagError

Read = Callable[[Any, Any], Batch]
EXPECTED = "give a tensor, as of torch.as_tensor, (inputs, targets), or an iterable of such batches"


@dataclass
class Tally:
    """How many batches were read so far, and how many there are: None where the data does not say."""

    read: int = 0
    given: int | None = None


def batches_for(  # noqa: PLR0913, keyword-only options
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None, *, loss: Any = None,
    batch_dim: BatchDim = 0, examples: str = "batch", output: str | int | None = None, tally: Tally | None = None,
    most: int | None = None, enough: int | None = None, whole: bool = False,
) -> Iterator[Batch]:  # fmt: skip
    """What `hessdiag.diagnose` was given as batches for this model: one, those of an iterable, or the `whole` as one.
    `most` is how many batches to read, and `enough` after how many examples to stop; `tally` counts them.
    """
    tally = tally or Tally()
    read = reader(model, batch_dim, examples, loss)
    check_model(model)
    check_loss(loss)
    # A list of tensors is one batch's positional arguments; one of tuples or dicts is a list of batches.
    batch = isinstance(inputs, list) and not (inputs and all(isinstance(o, (tuple, list, Mapping)) for o in inputs))
    if batch or not _holds_batches(inputs):
        tally.read = tally.given = 1
        given = iter([read(inputs, targets)])
    elif targets is None:
        given = batches(inputs, label="inputs", batch_size=1, tally=tally, read=read, enough=enough)
    else:
        raise HessdiagError("targets were passed beside an iterable of batches: let every batch be (inputs, targets)")
    given = islice(given, most)
    for each in [Batch.concatenate([*given])] if whole else given:
        check_tensors(model, each.tensors)
        yield replace(each, output=output)


def reader(model: nn.Module, batch_dim: BatchDim, examples: str, loss: object) -> Read:
    """A function that makes a batch for this model of inputs and targets; see `Batch.of`."""

    def read(inputs: Any, targets: Any) -> Batch:
        named, more = argument_names(model)
        inputs, targets = tree_map_only(np.ndarray, of_numpy, (inputs, targets))
        if by_name := isinstance(inputs, Mapping) and any(key in named for key in inputs):
            inputs, targets = _collated(inputs, targets, named, more=more)
        elif isinstance(inputs, Mapping) and len(named) == 1 and not any(did_you_mean(key, named) for key in inputs):
            inputs = (inputs,)
        label = next((name for name in named if name in TARGETS), "")
        if loss == "model" and isinstance(targets, (tuple, list, Mapping)) and label:  # which it reads as they are
            args = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
            inputs, targets = (inputs if by_name else dict(zip(named, args, strict=False))) | {label: targets}, None
        dims = steps_first(inputs, targets) if batch_dim == 0 and examples != "one" else batch_dim
        batch = Batch.of(inputs, targets, batch_dim=dims, examples=examples)
        free = [name for name in named[len(batch.args) :] if name in TARGETS and name not in batch.kwargs]
        if loss != "model" or batch.targets is None or not free:
            return batch
        dims = (*batch.dims, 0) if batch.dims else ()
        return replace(batch, kwargs={**batch.kwargs, free[0]: batch.targets}, targets=None, dims=dims)

    return read


def steps_first(inputs: Any, targets: Any) -> BatchDim:
    """The `batch_dim` of inputs (T, B), of which targets (B, ...) or their own next steps tell; else 0.

    >>> steps_first((torch.ones(9, 4), torch.ones(4)), torch.ones(4))
    (1, 0)
    """
    held = tensors_in(inputs)
    if not held or not isinstance(targets, Tensor) or not targets.dim():
        return 0
    x, size = held[0], len(targets)
    if len(held) == 1 and x.dim() == 2 and x.shape[0] != x.shape[1] and x.numel() == targets.numel():
        t, (T, B) = targets.reshape(x.shape), x.shape
        alike = torch.equal(x[: T - 1], x[1:]) or torch.equal(t[:, : B - 1], x[:, 1:])
        return int(torch.equal(t[: T - 1], x[1:]) and not alike)
    if targets.shape[1:2] == (size,) or not all(size in each.shape[:2] for each in held):
        return 0
    return tree_map_only(Tensor, lambda each: [*each.shape[:2]].index(size), inputs)  # type: ignore[no-any-return]


def _collated(inputs: Mapping[str, Any], targets: Any, named: list[str], *, more: bool) -> tuple[Any, Any]:
    """Of a collated dict the keys that the model takes, and its labels as targets; misspelt ones are kept."""
    labels = [key for key in inputs if key in TARGETS and key not in named]
    spare = [name for name in named if name not in inputs]
    others = [key for key in inputs if key not in TARGETS and (more or did_you_mean(key, spare))]
    kept = {key: value for key, value in inputs.items() if key in named or key in others}
    left = [key for key in inputs if key not in kept]
    if left and targets is None and not any(key in TARGETS for key in inputs):
        what = f"the model takes {few(kept)} of the inputs, and not {few(left)}: leave it out, or pass the labels as"
        raise HessdiagError(f"{what} targets, as in ((b[{next(iter(kept))!r}], b[{left[0]!r}]) for b in loader)")
    if len(labels) > 1 and targets is None:
        raise HessdiagError(f"inputs hold {few(labels)}: leave one of them in, or pass targets")
    return kept, inputs[labels[0]] if labels and targets is None else targets


def argument_names(model: nn.Module) -> tuple[list[str], bool]:
    """The arguments of `forward`, of what a wrapper wraps that takes any; and whether there may be more by name."""
    with suppress(TypeError, ValueError):  # compiled code tells nothing
        parameters = inspect.signature(model.forward).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        more = any(p.kind is p.VAR_KEYWORD for p in parameters)
        inner = getattr(model, "_orig_mod", getattr(model, "module", None))
        return argument_names(inner) if more and not names and isinstance(inner, nn.Module) else (names, more)
    return [], True


def batches(
    content: Any, *, label: str, batch_size: int, tally: Tally, read: Read = Batch.of, enough: int | None = None
) -> Iterator[Batch]:
    """What users' code, called `label` in messages, gave as batches of equal examples, with their examples numbered. A
    `Dataset` holds single examples, of which `batch_size` make a batch; `tally` counts the batches; `read` makes one of
    inputs and targets. Batches of other sizes than the first are left out, and what comes after `enough` examples.
    """
    content = DataLoader(content, batch_size=batch_size) if isinstance(content, Dataset) else content
    content = content if _holds_batches(content) and not _is_pair(content) else [content]
    with suppress(TypeError, NotImplementedError):  # a generator or an iterable data set does not say
        tally.given = len(content)
    first, done, seen = None, 0, 0
    for each in content:
        batch = replace(_batch(each, label, read), offset=done)
        first, seen = first or batch, seen + 1
        if _is_alike(first, batch, label):
            done += batch.size
            tally.read += 1
            yield batch
            if enough is not None and done >= enough:
                return
    if first is None:
        raise HessdiagError(f"{label}: there is no batch: {EXPECTED}")
    tally.given = seen


def _holds_batches(content: Any) -> bool:
    """Whether it is an iterable of batches, not a batch, nor something of which no batch can be made."""
    if isinstance(content, (Tensor, Mapping, tuple, str, bytes)) or hasattr(content, "__array__"):
        return False
    return isinstance(content, (Iterable, Dataset))


def _is_pair(content: Any) -> bool:
    """Whether it is the inputs and targets of one batch in a list, as a DataLoader collates them."""
    pair = isinstance(content, list) and len(content) == 2 and all(isinstance(each, Tensor) for each in content)
    return pair and (content[0].shape, content[0].dtype) != (content[1].shape, content[1].dtype)


def _is_alike(first: Batch, batch: Batch, label: str) -> bool:
    """Whether examples are of the first ones' sizes, or of a structure that is read as it is."""
    expected, found = ([tuple(value.shape[1:]) for value in each.leaves] for each in (first, batch))
    if not first.structure and [*map(len, expected)] != [*map(len, found)]:
        which = f"the examples from number {batch.offset} on have inputs and targets of shapes {found}"
        raise HessdiagError(f"{label}: {which}, those before {expected}: pad or crop them to one shape")
    return bool(first.structure) or expected == found


def _batch(content: Any, label: str, read: Read) -> Batch:
    inputs, targets = content if isinstance(content, (tuple, list)) and len(content) == 2 else (content, None)
    for value in tree_leaves((dict(inputs) if isinstance(inputs, Mapping) else inputs, targets)):
        if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_meta or value.is_complex()):
            raise HessdiagError(f"{label} gave a tensor that is not dense and real: {EXPECTED}")
    try:
        return read(inputs, targets).map(Tensor.detach)
    except HessdiagError as error:
        raise HessdiagError(f"{label}: {error}") from error
