"""The user's model comes back exactly as it was, also after an error.

A forward pass may append to a log or fill a cache: lists, dicts and other holders are kept by reference and filled
again, so that everyone who shares one sees it as it was.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from hessdiag.errors import HessdiagError
from hessdiag.network.torch_state import measuring, refill

DEPTH = 4  # of holders in holders
MAX_ENTRIES = 10_000  # entries up to which what they hold is looked at too: a data set is no cache
MODULES_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, hooks: kept by other means

Cache = dict[Any, Any]

_turns: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_turns_lock = threading.Lock()


@contextmanager
def preserve_state(
    model: nn.Module, *, seed: int, call: Callable[[], object] | None = None, mode: str = "", loss: Any = None
) -> Iterator[None]:
    """Measure inside this context: as `hessdiag.network.torch_state.measuring`, with the model restored afterwards. Two
    threads that measure the same model take turns. Buffers, `.grad` and what a forward pass keeps in the modules'
    attributes, or in lists, dicts and caches that these hold, are put back, and weights whose `.data` it writes; one
    that writes to weights otherwise is refused. `mode` is `"train"` or `"eval"`, in both of which nothing is dropped;
    by default the mode that it is in. A `loss` with a state comes back as it was, too.
    """
    with _turns_lock:
        turn = _turns.setdefault(model, threading.RLock())
    own = [loss] if isinstance(loss, nn.Module) else []
    theirs = _put_back(nn.ModuleList(own), "")
    with turn, theirs, _put_back(model, mode) as undo, measuring(model, *own, seed=seed, call=call, undo=undo):
        yield


def set_mode(model: nn.Module, mode: str) -> None:
    """Put a model in a mode in which nothing is dropped: the one that it trains in keeps the layers that it froze.
    Spectral normalisation keeps its vectors, after an iteration as in a first step. Synchronised batch normalisation
    takes the statistics of this process's batch: the other processes may not measure.
    """
    if not mode:
        return
    if mode == "eval" or not model.training:
        model.train(mode == "train")
    for module in model.modules():
        drops = re.search("Drop|^StochasticDepth$", type(module).__name__) and not any(True for _ in module.children())
        iterates = [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, SpectralNorm)]
        for hook in iterates if module.training else ():
            hook.compute_weight(module, do_power_iteration=True)
        if drops or iterates or isinstance(module, (_SpectralNorm, nn.RNNBase)):
            module.training = False
        if "layerdrop" in vars(module):  # of fairseq and transformers: the share of layers that are left out
            vars(module)["layerdrop"] = 0.0
        if isinstance(module, nn.SyncBatchNorm) and module.training:
            module.training = False
            module._buffers.update(running_mean=None, running_var=None)


def _make_ready(model: nn.Module, mode: str) -> None:
    """Put a model in a mode, and change in its modules what is in the way of measuring them."""
    for module in model.modules():
        if "_original_forward" in vars(module):  # which accelerate wrapped in autocast
            vars(module)["forward"] = vars(module)["_original_forward"]
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            # Sparse gradients have few operations; scaled ones are not those of the loss.
            module.sparse = module.scale_grad_by_freq = False
    for parameter in model.parameters():
        parameter.grad = None  # as told by `hessdiag.diagnosis.moments`, where a backward pass adds to it
    set_mode(model, mode)


@contextmanager
def _put_back(model: nn.Module, mode: str) -> Iterator[Callable[[], None]]:
    """Put a model in a mode, and put back buffers, `.grad`, attributes and parts of modules, afterwards or if asked."""
    python = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    _check_measurable(model)
    scripted = [(module, module.training) for module in model.modules() if isinstance(module, torch.jit.ScriptModule)]
    held = [(d, dict(d)) for m in python for d in (vars(m), m._parameters, m._buffers, m._modules)]
    kept = contents_of([dict(vars(module)) for module in python])
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]

    def put_back() -> None:
        for part, names in held:  # a forward pass may bind something new to the name
            _fill(part, names)
        for module, training in scripted:
            module.training = training
        for content in kept:
            content.put_back()
        refill(buffers)
        for parameter, saved_grad in grads:
            if parameter.grad is not saved_grad:
                parameter.grad = saved_grad

    def begin_again() -> None:
        put_back()
        _make_ready(model, mode)

    try:
        _make_ready(model, mode)
        yield begin_again
    except HessdiagError:
        raise
    except Exception as error:
        if "heckpoint" in str(error) and ".grad()" in str(error):  # the words differ between versions
            why = "the model uses reentrant activation checkpointing, which torch differentiates by .backward() alone:"
            raise HessdiagError(f"{why} pass use_reentrant=False to torch.utils.checkpoint.checkpoint") from error
        raise
    finally:
        try:
            put_back()
        except KeyboardInterrupt:  # the second one
            put_back()
            raise


def _check_measurable(model: nn.Module) -> None:
    """Refuse tensors without derivatives, and embeddings with a largest norm: each call writes to the weight."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_inference():
            message = f"{name!r} was made in inference mode, which has no derivatives: make the model outside of"
            raise HessdiagError(f"{message} torch.inference_mode(), or load its state_dict into one that was")
    for path, module in model.named_modules():
        if hasattr(nn.Module, name := path.rpartition(".")[2]):
            raise HessdiagError(f"a part of the model has the name of a method of nn.Module, {name!r}: rename it")
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
            own = f"embedding {path!r} has max_norm={module.max_norm:g}; set its max_norm to None on a copy"
            raise HessdiagError(f"the model's forward pass changes its own parameter: {own}, and measure that")


@dataclass(frozen=True)
class Content:
    """A holder and a copy of what it held."""

    holder: Any
    copy: Any
    version: int = field(default=0, kw_only=True)

    def put_back(self) -> None:
        """Fill the holder as it was, where that has changed."""
        holder, copy = self.holder, self.copy
        if isinstance(holder, Tensor):
            if holder._version != self.version:
                with torch.no_grad():
                    holder.resize_(copy.shape).copy_(copy)  # in place: a view of it sees the same
        elif isinstance(holder, np.ndarray):
            np.copyto(holder, copy)
        elif not _same(_entries(holder), copy):
            filled: Any = holder if isinstance(holder, (list, bytearray, deque, dict, set)) else vars(holder)
            if isinstance(filled, dict):
                _fill(filled, copy)
            else:
                filled.clear()
                (filled.update if isinstance(filled, set) else filled.extend)(copy)


def _fill(held: Cache, names: Cache) -> None:
    """Put a dict back, without emptying it: an interrupt may come in between."""
    held.update(names)
    for key in held.keys() - names.keys():
        del held[key]
    for key in names if list(held) != list(names) else ():
        held[key] = held.pop(key)


def contents_of(attributes: Iterable[Mapping[str, Any]]) -> list[Content]:
    """What the holders among attributes of modules hold, and the holders in these.

    >>> log = [1]
    >>> (content,) = contents_of([{"log": log}])
    >>> log.append(2)
    >>> content.put_back()
    >>> log
    [1]
    """
    found: dict[int, Content] = {}
    for values in attributes:
        for name, value in values.items():
            if name not in MODULES_OWN:
                _collect(value, DEPTH, found)
    return list(found.values())


def _collect(value: Any, depth: int, found: dict[int, Content]) -> None:
    if depth == 0 or id(value) in found:
        return
    if isinstance(value, Tensor):
        if not value.requires_grad and not value.is_inference():
            found[id(value)] = Content(value, value.detach().clone(), version=value._version)
    elif isinstance(value, np.ndarray) and value.flags.writeable:
        found[id(value)] = Content(value, value.copy())
    elif (held := _entries(value)) is not None:
        if not isinstance(value, tuple):
            found[id(value)] = Content(value, held)
        entries = list(held.values() if isinstance(held, dict) else held)
        for entry in entries if len(entries) <= MAX_ENTRIES else []:
            _collect(entry, depth - 1, found)


def _entries(value: Any) -> Any:
    """A shallow copy of what a holder holds; None of what is no holder."""
    plain: Any = next((kind for kind in (dict, set) if isinstance(value, kind)), list)
    if isinstance(value, (list, dict, set, deque, bytearray)):
        return plain(value)  # a subclass's entries in a plain holder, in order
    if isinstance(value, tuple):
        return list(tuple.__iter__(value))  # whatever a subclass makes of its length
    kind = type(value)
    ours = kind.__module__.split(".")[0] in ("torch", "builtins", "numpy", "typing", "functools", "logging")
    if ours or isinstance(value, (nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        return None
    return dict(vars(value))


def _same(one: Any, other: Any) -> bool:
    """Whether two shallow copies hold the same objects in the same order."""
    values = zip(one.values(), other.values(), strict=False) if isinstance(one, dict) else ()
    return len(one) == len(other) and all(a is b for a, b in chain(values, zip(one, other, strict=False)))


def caches_of(model: nn.Module) -> list[Cache]:
    """The dicts among the attributes of modules, each once."""
    values = [value for module in model.modules() for name, value in vars(module).items() if name not in MODULES_OWN]
    found = [value for value in values if isinstance(value, dict) and len(value) <= MAX_ENTRIES]
    return list({id(value): value for value in found}.values())


@contextmanager
def emptied(caches: Sequence[Cache]) -> Iterator[None]:
    """Take out of the dicts what was computed from weights, and fill them as they were afterwards."""
    with ExitStack() as stack:
        for cache in caches:
            content = Content(cache, dict(cache))
            stack.callback(content.put_back)
            for key, value in content.copy.items():
                if isinstance(value, Tensor) and value.grad_fn is not None:
                    del cache[key]
        yield
