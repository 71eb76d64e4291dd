"""The user's model, random state and backend settings come back exactly as they were, also after an error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hessdiag.errors import HessdiagError
from hessdiag.network.containers import contents_of
from hessdiag.network.large_products import large_products
from hessdiag.network.random_state import seed_torch
from hessdiag.network.replaced import replaced
from hessdiag.network.written_out import written_out


@contextmanager
def preserve_state(model: nn.Module, *, seed: int) -> Iterator[None]:
    """Measure inside this context: gradients on; TF32, autocast, compilation and activation checkpointing off.

    Random state is forked; buffers, `.grad` and what a forward pass keeps in the modules' attributes, or in lists,
    dicts and caches that these hold, are put back. Weights need no copy: nothing in hessdiag writes to them, and a
    model whose own forward does is refused. Buffers do, because a forward pass in training mode updates running
    statistics.

    Raises:
        HessdiagError: the model's forward pass changes one of its parameters.
    """
    _check_embeddings(model)
    versions = {name: parameter._version for name, parameter in model.named_parameters()}
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=devices))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(_in_full_precision())
            for device in sorted({"cpu", *(p.device.type for p in model.parameters())}):
                stack.enter_context(torch.autocast(device, enabled=False))
            if "torch._dynamo" in sys.modules:  # else nothing is compiled yet, and importing it takes seconds
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(_without_checkpointing())
            stack.enter_context(written_out())
            stack.enter_context(large_products(model))
            stack.enter_context(_without_fast_path())
            stack.enter_context(_without_warnings_of_speed())
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # the only attention kernel with second derivatives
            if any(isinstance(module, nn.RNNBase) for module in model.modules()):
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # cuDNN's have none
            stack.enter_context(_put_back(model))
            seed_torch(seed, devices)
            for module in model.modules():
                if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                    module.sparse = False  # sparse gradients have few operations; put back with the other attributes
            yield
    except HessdiagError:
        raise
    except Exception as error:  # perhaps of a transform that refuses to write
        _check_unwritten(model, versions, error)
        raise
    _check_unwritten(model, versions)


@contextmanager
def _put_back(model: nn.Module) -> Iterator[None]:
    """Put back buffers, `.grad`, attributes of modules and what these hold."""
    python = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    held = [(module, dict(vars(module)), dict(module._buffers)) for module in python]
    kept = contents_of([attributes for _, attributes, _ in held])
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        for module, attributes, names in held:  # a forward pass may bind a new tensor to the name
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.update(names)
        for content in kept:
            content.put_back()
        with torch.no_grad():
            for buffer, saved in buffers:
                if not torch.equal(buffer, saved):  # leave untouched buffers' version counters alone
                    buffer.copy_(saved)
        for parameter, saved_grad in grads:
            if parameter.grad is not saved_grad:
                parameter.grad = saved_grad


def _check_embeddings(model: nn.Module) -> None:
    """Refuse embeddings with a largest norm before they are called: each call writes to the weight."""
    for path, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
            raise HessdiagError(
                f"the model's forward pass changes its own parameter: embedding {path!r} has"
                f" max_norm={module.max_norm:g}; set its max_norm to None on a copy, and measure that"
            )


def _check_unwritten(model: nn.Module, versions: Mapping[str, int], error: Exception | None = None) -> None:
    """Refuse a model that wrote to its parameters."""
    for name, parameter in model.named_parameters():
        if parameter._version != versions.get(name, parameter._version):
            raise HessdiagError(
                f"the model's forward pass changes its own parameter {name!r}: measure a copy in eval mode"
            ) from error


@contextmanager
def _without_checkpointing() -> Iterator[None]:
    """Call checkpointed functions as they are: the values are the same.

    Recomputing them in the backward pass, by when the hooks are gone, is an error, and `torch.autograd.grad` refuses
    the reentrant kind altogether.
    """
    plain = {"CheckpointFunction": _Plain, "_checkpoint_without_reentrant_generator": _nothing_around}
    with replaced(torch.utils.checkpoint, **plain):
        yield


class _Plain:
    """In place of `torch.utils.checkpoint.CheckpointFunction`."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """Call the function."""
        return function(*args)


def _nothing_around(*_: Any, **__: Any) -> Iterator[None]:
    """In place of what surrounds the call of a non-reentrant checkpointed function."""
    yield


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Attention's kernels for inference have no derivatives; they run where no argument seems to need one."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextmanager
def _without_warnings_of_speed() -> Iterator[None]:
    """Of operations without a batching rule, which the user cannot do anything about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*torch.jit.script. is deprecated", category=DeprecationWarning)
        yield


@contextmanager
def _in_full_precision() -> Iterator[None]:
    """No TF32, in which CUDA's convolutions are by default and which costs three digits, and no bfloat16."""
    asked = _matmul_precision()
    if asked:
        torch.set_float32_matmul_precision("highest")
    on_cpu = [getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    holders = [torch.backends.cudnn, *([] if asked else [torch.backends.cuda.matmul])]
    holders += [each for each in on_cpu if hasattr(each, "fp32_precision")]
    saved = [_setting(holder) for holder in holders]
    for holder, (name, _) in zip(holders, saved, strict=True):
        setattr(holder, name, False if name == "allow_tf32" else "ieee")
    try:
        yield
    finally:
        for holder, (name, value) in zip(holders, saved, strict=True):
            setattr(holder, name, value)
        if asked:
            torch.set_float32_matmul_precision(asked)


def _matmul_precision() -> str:
    """What products of matrices are less precise by; empty where they are not, or were told so backend by backend."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # once the newer settings were used, torch refuses to read the older
        return ""
    return "" if precision == "highest" else precision


def _setting(holder: Any) -> tuple[str, Any]:
    """Name and value of the setting; oneDNN's has the newer name alone."""
    try:
        return "allow_tf32", holder.allow_tf32
    except (RuntimeError, AttributeError):
        return "fp32_precision", holder.fp32_precision
