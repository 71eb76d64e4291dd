"""Weights from a file, read without running any code in it.

Only safetensors files and what `torch.load(weights_only=True)` accepts are read: an ordinary pickle may do anything.
"""

import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from hessdiag.arguments import did_you_mean, few, is_finite, one_line
from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import missing_file


def load_weights(module: nn.Module, weights: str) -> tuple[str, ...]:
    """Copy the tensors of a file into a module, all of them and into all of it; say what had to be unwrapped. The file
    is `.safetensors`, or `torch.save` wrote it; `"FILE:KEY"` is what is under a key in it. The network may lie in a
    larger file or under a prefix, as torch.compile, DataParallel or Lightning save it. A module that they do not fit is
    left as it was.
    """
    path, _, key = (weights, "", "") if Path(weights).exists() else weights.partition(":")
    label = f"--weights {path!r}"
    held = _read(path, label)
    own = {name: value for name, value in module.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}
    prefix = _prefix(held, own, key, label)
    tensors = {name.removeprefix(prefix): value for name, value in held.items() if name.startswith(prefix)}
    for name, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
            raise HessdiagError(f"{label}: {name!r} is not a dense tensor of real numbers")
        if value.is_floating_point() and not is_finite(value.float()):
            raise HessdiagError(f"{label}: {name!r} holds NaN or infinite values, take an earlier checkpoint")
        ours = own.get(name, value)
        if value.shape != ours.shape or value.is_floating_point() != ours.is_floating_point():
            theirs, wanted = (f"{tuple(each.shape)} {each.dtype}" for each in (value, ours))
            raise HessdiagError(f"{label}: {name!r} is {theirs} in the file and {wanted} in the network")
    faults = {"missing": _missing(own, tensors), "unexpected": [name for name in tensors if name not in own]}
    if told := [f"{len(names)} {kind} ({few(names)})" for kind, names in faults.items() if names]:
        raise HessdiagError(f"{label} do not fit the network: {', '.join(told)}")
    try:
        module.load_state_dict(tensors, strict=False)  # tied ones may be missing
    except Exception as error:  # a module's own loading code
        raise HessdiagError(f"{label} cannot be loaded: {one_line(error)}") from error
    others = [name for name in held if not name.startswith(prefix)]
    notes = [f"took what is under {prefix.removesuffix('.')!r}"] * bool(prefix)
    notes += [f"left out {len(others)} other tensors ({few(others)})"] if others and not key else []
    return tuple(notes)


def _read(path: str, label: str) -> dict[str, Tensor]:
    """All tensors of a file by name, dotted where dicts lie in one another."""
    if not Path(path).is_file():
        raise HessdiagError(f"{label}: {missing_file(Path(path))}")
    try:
        safe = path.endswith(".safetensors")
        content = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it would call {named.group(1)}" if named else "it is not a plain pickle of tensors"
        message = f"{label} is refused, reading it could run code in it ({reason}):"
        raise HessdiagError(f"{message} save model.state_dict() with torch.save, or as .safetensors") from error
    except Exception as error:  # damaged files fail in as many ways as there are places to damage
        raise HessdiagError(f"{label} is damaged or no file of weights ({one_line(error)})") from error
    if not (tensors := dict(_flat(content)) if isinstance(content, Mapping) else {}):
        raise HessdiagError(f"{label} holds no named tensors: save model.state_dict()")
    return tensors


def _flat(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    for key, value in content.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")


def _prefix(held: Mapping[str, Tensor], own: Mapping[str, Tensor], key: str, label: str) -> str:
    """Find what the names of the network's own tensors begin with in a file."""
    names, start = list(held), f"{key}." if key else ""
    if not (inside := [name for name in names if f".{start}" in f".{name}"]):
        there = sorted({name.partition(".")[0] for name in names})
        hint = did_you_mean(key, there, otherwise=f"it holds {few(there, 8)}")
        raise HessdiagError(f"{label} has no entry {key!r}: {hint}")
    found = {name.removesuffix(ours) for name in inside for ours in own if f".{name}".endswith(f".{ours}")}
    found = {prefix for prefix in found if f".{start}" in f".{prefix}"} or {start}

    def missing(prefix: str) -> int:
        return len(_missing(own, {name.removeprefix(prefix) for name in names if name.startswith(prefix)}))

    least = min(map(missing, found))
    best = sorted(prefix for prefix in found if missing(prefix) == least)
    if len(best) > 1 and "" not in best:
        entries = " and ".join(repr(prefix.removesuffix(".")) for prefix in best)
        raise HessdiagError(f"{label} hold the network more than once: name one as in --weights FILE:KEY, {entries}")
    return best[0]


def _missing(own: Mapping[str, Tensor], names: Any) -> list[str]:
    """The network's tensors that are under none of their names; tied ones have several."""
    there = {id(own[key]) for key in own if key in names}
    return [key for key in own if id(own[key]) not in there]
