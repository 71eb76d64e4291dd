"""The first call of a model with a batch: where it fails, what to write instead.

A model that refuses its inputs says so in the words of the layer that noticed. What users most often did is tried on
the spot: the call that works is the advice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.execution.memory import is_out_of_memory
from hessdiag.network.blocks import Block
from hessdiag.network.shapes import DryRun, run_dry
from hessdiag.suggestions import did_you_mean, few
from hessdiag.user_code.named_function import one_line

TARGETS = ("labels", "label", "targets", "target", "y")
COLOURS = (1, 3, 4)
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)  # what layers raise that cannot read their input


@contextmanager
def explained(model: nn.Module, batch: Batch, *, name: str = "") -> Iterator[None]:
    """Call the model with the first examples of the batch in this context.

    What the author of the model raises otherwise is raised on, unless the model has a `name` by which it was built.

    Raises:
        HessdiagError: the model could not read them; one sentence says why, or what to write.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        advice = _arguments(model, batch) or _converted(model, batch) or _example_alone(model, batch)
        if not (advice or name or isinstance(error, REFUSALS)):
            raise
        shapes = ", ".join("×".join(map(str, value.shape)) for value in _tensors(batch))
        read = f"{name or 'the model'} cannot read inputs of shape {shapes} ({one_line(error)})"
        raise HessdiagError(advice or read) from error


def try_model(
    model: nn.Module, batch: Batch, blocks: Sequence[Block] = (), *, name: str = "", examples: int = 2
) -> DryRun:
    """Run the model dry on the first examples: their outputs, and sizes and order of the layers that hold `blocks`.

    Raises:
        HessdiagError: the model could not read them; see `explained`.
    """
    few = batch.narrow(0, examples)
    try:
        return run_dry(model, few, blocks)
    except Exception as error:
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        with explained(model, batch, name=name):
            few.outputs(model)  # raises what the model itself has against these inputs, unwatched
        raise


def check_labels(batch: Batch, loss: object) -> None:
    """Refuse targets that lie among the inputs, where the loss would miss them."""
    held = [key for key in batch.kwargs if key in TARGETS]
    if held and batch.targets is None and loss in ("cross-entropy", "mse"):
        shifts = " (a causal language model of transformers shifts labels itself, hessdiag does not: shift them first)"
        raise HessdiagError(
            f"loss {loss!r} needs targets and inputs hold {held[0]!r}: leave that out of the inputs, pass it as targets"
            + shifts * (held[0] == "labels")
        )


def _arguments(model: nn.Module, batch: Batch) -> str:
    """What is wrong with the number or the names of the arguments."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):  # compiled code tells nothing
        return ""
    try:
        signature.bind(*batch.args, **batch.kwargs)
    except TypeError:
        pass
    else:
        return ""
    kinds = inspect.Parameter
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    placed = [p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.POSITIONAL_ONLY)]
    kind = type(model).__name__
    for key in batch.kwargs:
        if key not in named:
            return _unknown_name(kind, key, batch.kwargs, named)
    if len(batch.args) > len(placed):
        return _too_many(kind, batch, placed)
    needed = [p.name for p in parameters if p.default is p.empty and p.name in named]
    missing = [n for n in needed[len(batch.args) :] if n not in batch.kwargs]
    if not missing:
        return ""
    return (
        f"{kind} also needs {few(missing)}: pass a dict of its arguments, {{{', '.join(f'{n!r}: …' for n in needed)}}}"
    )


def _unknown_name(kind: str, key: str, given: Mapping[str, Any], named: Sequence[str]) -> str:
    if key in TARGETS and len(given) > 1:
        return (
            f"inputs hold {key!r}, which {kind} takes no argument for: leave it out of the inputs and pass it as"
            f" targets, diagnose(model, inputs, targets), or in batches as (inputs, targets)"
        )
    hint = did_you_mean(key, named, otherwise=f"it takes {few(named, 8)}" if named else "it takes none")
    return f"{kind} takes no argument {key!r}: {hint}"


def _too_many(kind: str, batch: Batch, placed: Sequence[str]) -> str:
    """More positional arguments than the model takes: targets among them, or examples one by one."""
    args = batch.args
    takes = f"{kind} takes {len(placed)} argument{'s' * (len(placed) != 1)} and inputs are {len(args)}"
    alike = all(isinstance(v, Tensor) and v.shape == args[0].shape and v.dtype == args[0].dtype for v in args)
    stack = "if each is one example, use torch.stack(inputs)"
    apart = "pass inputs and targets apart, diagnose(model, inputs, targets)"
    if alike and args[0].is_floating_point():
        return f"{takes}: {stack}" + (f"; if the second are targets, {apart}" if len(args) == len(placed) + 1 else "")
    if len(args) == len(placed) + 1:
        return f"{takes}: {apart}"
    return f"{takes}: pass one tensor an argument of the model ({few(placed, 8)})"


def _example_alone(model: nn.Module, batch: Batch) -> str:
    """Whether the inputs are one example without the dimension that runs over examples."""
    if batch.targets is not None or len(_tensors(batch)) != 1:
        return ""
    (x,) = _tensors(batch)
    alone = _changed(batch, lambda value: value.unsqueeze(0), size=1)
    for each, more in ((alone, ""), (_changed(alone, lambda v: v.to(_dtype(model)), size=1), ".float()")):
        if _works(model, each):
            shape = tuple(x.shape)
            return f"inputs of shape {shape} are one example without a batch: use inputs{more}.unsqueeze(0)"
    return ""


def _converted(model: nn.Module, batch: Batch) -> str:
    """Whether the model reads the inputs as numbers of its own type, or with the colours first."""
    dtype = _dtype(model)
    whole = [value for value in _tensors(batch) if not value.is_floating_point()]
    few_examples = batch.narrow(0, 2)
    if whole and _works(model, _changed(few_examples, lambda v: v.to(dtype), size=few_examples.size)):
        kind = str(whole[0].dtype).removeprefix("torch.")
        bytes_of_images = whole[0].dtype == torch.uint8
        how = "them scaled as in training, such as inputs.float() / 255" if bytes_of_images else "inputs.float()"
        return f"inputs are {kind} and the model reads {str(dtype).removeprefix('torch.')}: use {how}"
    images = [value for value in _tensors(batch) if value.dim() == 4 and value.shape[-1] in COLOURS]
    if len(images) == 1 == len(_tensors(batch)):
        moved = _changed(few_examples, lambda v: v.movedim(-1, 1).to(dtype), size=few_examples.size)
        if _works(model, moved):
            shape = tuple(images[0].shape)
            return f"inputs of shape {shape} have their channels last: use inputs.permute(0, 3, 1, 2)"
    return ""


def _works(model: nn.Module, batch: Batch) -> bool:
    try:
        with torch.no_grad():
            batch.call(model)
    except Exception:  # whatever the model raises
        return False
    return True


def _changed(batch: Batch, function: Callable[[Tensor], Tensor], *, size: int) -> Batch:
    """The batch without targets, its inputs changed."""

    def each(value: Any) -> Any:
        return function(value) if isinstance(value, Tensor) else value

    kwargs = {key: each(v) for key, v in batch.kwargs.items()}
    return replace(batch, args=tuple(map(each, batch.args)), kwargs=kwargs, targets=None, size=size)


def _tensors(batch: Batch) -> list[Tensor]:
    return [value for value in (*batch.args, *batch.kwargs.values()) if isinstance(value, Tensor)]


def _dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
