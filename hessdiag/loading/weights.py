"""Weights from a file, read without running any code in it.

Only safetensors files and what `torch.load(weights_only=True)` accepts are read: an ordinary pickle may do anything.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hessdiag.arguments import did_you_mean, few, one_line
from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import missing_file


@dataclass(frozen=True)
class Checkpoint:
    """All tensors of the file `path` by name, dotted where dicts lie in one another; `key` is what names begin with."""

    path: str
    tensors: Mapping[str, Tensor]
    key: str = ""


def read_checkpoint(path: str, *, key: str = "") -> Checkpoint:
    """Read a `.safetensors` file, or one that `torch.save` wrote; `key` begins the names of the network's tensors."""
    label = f"--weights {path!r}"
    if not Path(path).is_file():
        raise HessdiagError(f"{label}: {missing_file(Path(path))}")
    content = _read_safetensors(path, label) if path.endswith(".safetensors") else _read_torch(path, label)
    tensors = dict(_flat(content)) if isinstance(content, Mapping) else {}
    if not tensors:
        raise HessdiagError(f"{label} holds no named tensors: save model.state_dict()")
    return Checkpoint(path, tensors, key)


def load_checkpoint(module: nn.Module, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Copy a checkpoint's tensors into a module, all of them and into all of it; say what had to be unwrapped.

    The network may lie in a larger file or under a prefix, as torch.compile, DataParallel or Lightning save it.
    """
    label = f"--weights {checkpoint.path!r}"
    own = {key: value for key, value in module.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}
    prefix = _prefix(checkpoint, own, label)
    tensors = {key.removeprefix(prefix): value for key, value in checkpoint.tensors.items() if key.startswith(prefix)}
    for key, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
            raise HessdiagError(f"{label}: {key!r} is not a dense tensor of real numbers")
        if value.is_floating_point() and not bool(value.float().isfinite().all()):
            raise HessdiagError(f"{label}: {key!r} holds NaN or infinite values, take an earlier checkpoint")
    faults = {
        "missing": _missing(own, tensors),
        "unexpected": [key for key in tensors if key not in own],
        "unlike the network's": [
            f"{key} is {_kind(tensors[key])} in the file and {_kind(own[key])} in the network"
            for key in own
            if key in tensors
            and (tensors[key].shape, tensors[key].is_floating_point()) != (own[key].shape, own[key].is_floating_point())
        ],
    }
    told = [f"{len(names)} {kind} ({few(names)})" for kind, names in faults.items() if names]
    if told:
        raise HessdiagError(f"{label} do not fit the network: {', '.join(told)}")
    try:
        module.load_state_dict(tensors, strict=False)
    except Exception as error:  # a module's own loading code
        raise HessdiagError(f"{label} cannot be loaded: {one_line(error)}") from error
    others = [key for key in checkpoint.tensors if not key.startswith(prefix)]
    notes = [f"took what is under {prefix.removesuffix('.')!r}"] * bool(prefix)
    if others and not checkpoint.key:
        notes.append(f"left out {len(others)} other tensors ({few(others)})")
    return tuple(notes)


def _flat(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of dicts in one another under its dotted name."""
    for key, value in content.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")


def _prefix(checkpoint: Checkpoint, own: Mapping[str, Tensor], label: str) -> str:
    """Find what the names of the network's own tensors begin with in a file."""
    names, start = list(checkpoint.tensors), f"{checkpoint.key}." if checkpoint.key else ""
    inside = [name for name in names if f".{name}".find(f".{start}") >= 0]
    if not inside:
        there = sorted({name.partition(".")[0] for name in names})
        hint = did_you_mean(checkpoint.key, there, otherwise=f"it holds {few(there, 8)}")
        raise HessdiagError(f"{label} has no entry {checkpoint.key!r}: {hint}")
    found = {name.removesuffix(key) for name in inside for key in own if f".{name}".endswith(f".{key}")}
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


def _read_safetensors(path: str, label: str) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise HessdiagError(f"{label} is damaged or no safetensors file ({one_line(error)})") from error


def _read_torch(path: str, label: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it would call {named.group(1)}" if named else "it is not a plain pickle of tensors"
        message = f"{label} is refused, reading it could run code in it ({reason}):"
        raise HessdiagError(f"{message} save model.state_dict() with torch.save, or as .safetensors") from error
    except OSError as error:
        raise HessdiagError(f"{label} cannot be read ({error.strerror})") from error
    except Exception as error:  # damaged files fail in as many ways as there are places to damage
        raise HessdiagError(f"{label} is damaged or no file that torch.save wrote ({one_line(error)})") from error


def _kind(tensor: Tensor) -> str:
    return f"{'×'.join(map(str, tensor.shape)) or 'a scalar'} {str(tensor.dtype).removeprefix('torch.')}"
