"""A batch from a function that users write.

The function takes no argument and returns one of

* a tensor, or a dict of the model's keyword arguments: the inputs;
* `(inputs, targets)`, where inputs may also be a tuple of positional arguments, and targets may be None;
* an iterable of such batches (a generator, a list, a `DataLoader`), or a `Dataset` of single examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hessdiag.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.importing import NamedFunction

EXPECTED = "return a tensor, (inputs, targets), or an iterable of such batches"


def first_batch(function: NamedFunction, *, batch_size: int) -> Batch:
    """The first batch that a function gives, of at most `batch_size` examples; later ones are never asked for.

    Raises:
        HessdiagError: the function raised, or gave something that is no batch, or an empty one.
    """
    function.check_arguments({})
    content = function()
    with function.running():
        batch = next(batches(content, function, batch_size=batch_size), None)
    if batch is None:
        raise HessdiagError(f"{function.what} {function.reference!r} gives no batch: {EXPECTED}")
    return batch.narrow(0, batch_size)


def batches(content: Any, function: NamedFunction, *, batch_size: int) -> Iterator[Batch]:
    """What the function returned as batches, one after the other."""
    label = f"{function.what} {function.reference!r}"
    if isinstance(content, Dataset):
        whole = not isinstance(content, IterableDataset) and hasattr(content, "__len__") and len(content) == 0
        content = [] if whole else DataLoader(content, batch_size=batch_size)
    if isinstance(content, (Tensor, Mapping, tuple)):
        yield _batch(content, label)
    elif isinstance(content, Iterable) and not isinstance(content, (str, bytes)) and not hasattr(content, "__array__"):
        for each in content:
            yield _batch(each, label)
    else:
        raise HessdiagError(f"{label} returned a {type(content).__name__}: {EXPECTED}{_advice(content)}")


def _batch(content: Any, label: str) -> Batch:
    inputs, targets = content, None
    if isinstance(content, (tuple, list)) and len(content) == 2:
        inputs, targets = content
    if targets is not None and not isinstance(targets, Tensor):
        raise HessdiagError(f"{label} gave targets of type {type(targets).__name__}: {EXPECTED}{_advice(targets)}")
    if not isinstance(inputs, (Tensor, Mapping, tuple, list)):
        raise HessdiagError(f"{label} gave inputs of type {type(inputs).__name__}: {EXPECTED}{_advice(inputs)}")
    positional = (inputs,) if isinstance(inputs, Tensor) else inputs
    for value in (*(inputs.values() if isinstance(inputs, Mapping) else positional), targets):
        if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_meta or value.is_complex()):
            raise HessdiagError(f"{label} gave a tensor that is not dense and real: {EXPECTED}")
    try:
        return Batch.of(inputs, targets).detached()
    except HessdiagError as error:
        raise HessdiagError(f"{label}: {error}") from error


def _advice(value: Any) -> str:
    return ", made with torch.from_numpy" if hasattr(value, "__array__") else ""
