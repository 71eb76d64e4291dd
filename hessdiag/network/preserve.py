"""The user's model comes back exactly as it was, also after an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.network.containers import contents_of
from hessdiag.network.torch_state import draws_random_numbers, measuring, seeded_rng


@contextmanager
def preserve_state(model: nn.Module, *, seed: int, call: Callable[[], object] | None = None) -> Iterator[None]:
    """Measure inside this context: as `hessdiag.network.torch_state.measuring`, with the model restored afterwards.

    Two threads that measure the same model take turns.

    Buffers, `.grad` and what a forward pass keeps in the modules' attributes, or in lists, dicts and caches that these
    hold, are put back. Weights need no copy: nothing in hessdiag writes to them, and a model whose own forward does is
    refused. Buffers do, because a forward pass in training mode updates running statistics.

    Args:
        model: the model.
        seed: of the global random state, where it is needed.
        call: calls the model on a few examples; where no random numbers are drawn, their state is left alone.

    Raises:
        HessdiagError: the model's forward pass changes one of its parameters.
    """
    with _turn_of(model):
        _check_embeddings(model)
        versions = {name: parameter._version for name, parameter in model.named_parameters()}
        try:
            with ExitStack() as stack:
                stack.enter_context(measuring(model))
                stack.enter_context(_put_back(model))
                for module in model.modules():
                    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
                        module.sparse = False  # sparse gradients have few operations; restored with all attributes
                if call is None or draws_random_numbers(call):
                    stack.enter_context(seeded_rng(seed))
                yield
        except HessdiagError:
            raise
        except Exception as error:  # perhaps of a transform that refuses to write
            _check_unwritten(model, versions, error)
            if "heckpoint" in str(error) and ".grad()" in str(error):  # the words differ between versions
                raise HessdiagError(
                    "the model uses reentrant activation checkpointing, which torch differentiates by .backward()"
                    " alone: pass use_reentrant=False to torch.utils.checkpoint.checkpoint, or switch checkpointing off"
                ) from error
            raise
        _check_unwritten(model, versions)


_turns: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_turns_lock = threading.Lock()


def _turn_of(model: nn.Module) -> AbstractContextManager[Any]:
    with _turns_lock:
        lock: AbstractContextManager[Any] = _turns.setdefault(model, threading.RLock())
    return lock


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
