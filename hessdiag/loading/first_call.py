"""The first call of a model with a batch: where it fails, what to write instead.

A model that refuses its inputs says so in the words of the layer that noticed. The usual mistakes are tried on the
spot: the call that works is the advice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from hessdiag.arguments import did_you_mean, few, one_line
from hessdiag.data.batch import Batch
from hessdiag.data.memory import is_out_of_memory
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block
from hessdiag.network.trace import DryRun, run_dry

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)  # of layers that cannot read inputs
APART = "diagnose(model, inputs, targets), or (inputs, targets) from the function of --data"


def try_model(
    model: nn.Module, batch: Batch, blocks: Sequence[Block] = (), *, name: str = "", examples: int = 2
) -> DryRun:
    """Run the model dry on the first examples: their outputs, and sizes and order of the layers that hold `blocks`."""
    tried = batch.narrow(0, examples)
    try:
        return run_dry(model, tried, blocks)
    except Exception as error:
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        own = error
    try:
        tried.outputs(model)
    except Exception as error:  # what the model itself has against these inputs, unwatched
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        advice = _arguments(model, tried) or _converted(model, tried) or _example_alone(model, batch)
        if not (advice or name or isinstance(error, REFUSALS)):
            raise
        shapes = ", ".join("×".join(map(str, value.shape)) for value in batch.tensors)
        ids = [int(x.max()) for x in batch.tensors if isinstance(error, IndexError) and not x.is_floating_point()]
        largest = f", indices up to {max(ids)}" if ids else ""
        read = f"{name or 'the model'} cannot read inputs of shape {shapes}{largest} ({one_line(error)})"
        raise HessdiagError(advice or read) from error
    raise own


def check_tensors(model: nn.Module, batch: Batch) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the weights."""
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise HessdiagError(f"parameter {name!r} has no shape yet: run the model once before measuring it")
        if not bool(parameter.data.isfinite().all()):
            raise HessdiagError(f"parameter {name!r} holds NaN or infinite values: initialise or load it first")
    tensors = list(model.parameters())
    if not tensors:
        raise HessdiagError(f"the model {type(model).__name__} has no parameters: there is nothing to measure")
    devices = {str(t.device) for t in (*tensors, *batch.tensors)}
    if len(devices) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in (*tensors, *batch.tensors) if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both, as by model.float() and inputs.float()")
    return tensors[0].device, tensors[0].dtype


def _arguments(model: nn.Module, batch: Batch) -> str:
    """What is wrong with the number or the names of the arguments."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):  # compiled code tells nothing
        return ""
    with suppress(TypeError):
        signature.bind(*batch.args, **batch.kwargs)
        return ""
    parameters, kind = signature.parameters.values(), type(model).__name__
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    placed = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    for key in batch.kwargs:
        if key not in named:
            hint = did_you_mean(key, named, otherwise=f"it takes {few(named, 8)}" if named else "it takes none")
            return f"{kind} takes no argument {key!r}: {hint}"
    if len(batch.args) > len(placed):
        takes = f"{kind} takes {len(placed)} argument{'s' * (len(placed) != 1)} and inputs are {len(batch.args)}"
        return f"{takes}: pass inputs and targets apart, {APART}; if each is one example, use torch.stack(inputs)"
    needed = [p.name for p in parameters if p.default is p.empty and p.name in named]
    missing = [n for n in needed[len(batch.args) :] if n not in batch.kwargs]
    wanted = ", ".join(f"{n!r}: …" for n in needed)
    return f"{kind} also needs {few(missing)}: pass a dict of its arguments, {{{wanted}}}" if missing else ""


def _converted(model: nn.Module, batch: Batch) -> str:
    """Whether the model reads the inputs as numbers of its own type, or with the colours first."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    whole = [value for value in batch.tensors if not value.is_floating_point()]
    if whole and _reads(model, batch, lambda v: v.to(dtype)):
        held, wanted = (str(each).removeprefix("torch.") for each in (whole[0].dtype, dtype))
        scaled = "them scaled as in training, such as inputs.float() / 255"
        how = scaled if whole[0].dtype == torch.uint8 else "inputs.float()"
        return f"inputs are {held} and the model reads {wanted}: use {how}"
    x, *others = batch.tensors
    if not others and x.dim() == 4 and _reads(model, batch, lambda v: v.movedim(-1, 1).to(dtype)):
        shape = (batch.size, *x.shape[1:])
        return f"inputs of shape {shape} have their channels last: use inputs.permute(0, 3, 1, 2)"
    return ""


def _example_alone(model: nn.Module, batch: Batch) -> str:
    """Whether the inputs are one example without the dimension that runs over examples."""
    x, *others = batch.tensors
    if batch.targets is not None or others:
        return ""
    for more, dtype in (("", x.dtype), (".float()", torch.float32)):
        if _reads(model, batch, lambda v, dtype=dtype: v.to(dtype).unsqueeze(0)):  # type: ignore[misc]
            return f"inputs of shape {tuple(x.shape)} are one example without a batch: use inputs{more}.unsqueeze(0)"
    return ""


def _reads(model: nn.Module, batch: Batch, change: Callable[[Tensor], Tensor]) -> bool:
    """Whether the model runs with the inputs changed."""
    changed = replace(batch, targets=None).map(change)
    try:
        with torch.no_grad():
            replace(changed, size=len(changed.tensors[0])).call(model)
    except Exception:  # whatever the model raises
        return False
    return True
