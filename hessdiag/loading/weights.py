"""Weights from a file, read without running any code in it.

Only safetensors files and what `torch.load(weights_only=True)` accepts are read: an ordinary pickle may do anything.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
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

WRAPPERS = ("state_dict", "model_state_dict", "model")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by parameter name, from the file `path`; `unwrapped` says what was around them."""

    path: str
    tensors: Mapping[str, Tensor]
    unwrapped: tuple[str, ...] = ()


def read_checkpoint(path: str, *, key: str = "") -> Checkpoint:
    """Read a `.safetensors` file, or one that `torch.save` wrote.

    Args:
        path: the file.
        key: entry that holds the network's tensors, or what their names begin with; by default a usual one.

    Raises:
        HessdiagError: the file is missing, damaged, would run code, or does not hold named tensors.
    """
    label = f"--weights {path!r}"
    if not Path(path).is_file():
        raise HessdiagError(f"{label}: {missing_file(Path(path))}")
    content: Any = _read_safetensors(path, label) if path.endswith(".safetensors") else _read_torch(path, label)
    unwrapped: list[str] = []
    if key:
        content = _entry(content, key, label)
        unwrapped.append(key)
    while isinstance(content, Mapping) and not any(isinstance(value, Tensor) for value in content.values()):
        wrapper = next((name for name in WRAPPERS if isinstance(content.get(name), Mapping)), None)
        if wrapper is None:
            break
        content = content[wrapper]
        unwrapped.append(wrapper)
    if not isinstance(content, Mapping):
        raise HessdiagError(f"{label} holds a {type(content).__name__}: save model.state_dict(), tensors by name")
    wrong = [str(key) for key, value in content.items() if not isinstance(value, Tensor) or not isinstance(key, str)]
    if wrong or not content:
        held = f"{few(wrong)}, which are not tensors" if wrong else "nothing"
        entries = [str(key) for key, value in content.items() if isinstance(value, Mapping) and _holds_tensors(value)]
        advice = "save model.state_dict(), tensors by name"
        if entries:
            advice = f"name the network as in --weights FILE:KEY, one of {few(entries, 8)}"
        raise HessdiagError(f"{label} holds {held}: {advice}")
    _check_values(content, label)
    return Checkpoint(path, content, tuple(f"took what is under {key!r}" for key in unwrapped))


def load_checkpoint(module: nn.Module, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Copy a checkpoint's tensors into a module, all of them and into all of it.

    Returns:
        What had to be unwrapped, in words.

    Raises:
        HessdiagError: names or shapes do not fit; the module is as it was.
    """
    own = {key: value for key, value in module.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}
    tensors, notes = _without_prefix(checkpoint.tensors, list(own))
    loaded = {id(own[key]) for key in tensors if key in own}
    missing = [key for key, value in own.items() if key not in tensors and id(value) not in loaded]  # tied ones are in
    unexpected = [key for key in tensors if key not in own]
    shapes = [
        f"{key} is {_size(tensors[key])} in the file and {_size(own[key])} in the network"
        for key in own
        if key in tensors and tensors[key].shape != own[key].shape
    ]
    types = [
        f"{key} holds {str(tensors[key].dtype).removeprefix('torch.')}"
        for key in own
        if key in tensors and own[key].is_floating_point() and not tensors[key].is_floating_point()
    ]
    kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes), ("no floats", types))
    faults = [f"{len(names)} {kind} ({few(names)})" for kind, names in kinds if names]
    if faults:
        raise HessdiagError(f"--weights {checkpoint.path!r} do not fit the network: {', '.join(faults)}")
    try:
        module.load_state_dict(dict(tensors), strict=False)
    except Exception as error:  # a module's own loading code
        raise HessdiagError(f"--weights {checkpoint.path!r} cannot be loaded: {one_line(error)}") from error
    return (*checkpoint.unwrapped, *notes)


def _entry(content: Any, key: str, label: str) -> dict[str, Any]:
    """What is under a key, or the tensors whose names begin with it."""
    held = content if isinstance(content, Mapping) else {}
    if isinstance(held.get(key), Mapping):
        return dict(held[key])
    for inner in (held, *(held[name] for name in WRAPPERS if isinstance(held.get(name), Mapping))):
        begun = {k.removeprefix(f"{key}."): v for k, v in inner.items() if str(k).startswith(f"{key}.")}
        if begun:
            return begun
    there = [str(k) for k, value in held.items() if isinstance(value, Mapping)]
    there += sorted(
        {str(k).partition(".")[0] for k, value in held.items() if isinstance(value, Tensor) and "." in str(k)}
    )
    hint = did_you_mean(key, there)
    known = f"it holds {few(there, 8)}" if there else "it holds no entries with tensors"
    raise HessdiagError(f"{label} has no entry {key!r}; {known}" + (f", {hint}" if hint else ""))


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
        raise HessdiagError(
            f"{label} is refused, reading it could run code in it ({reason}):"
            " save model.state_dict() with torch.save, or as .safetensors"
        ) from error
    except OSError as error:
        raise HessdiagError(f"{label} cannot be read ({error.strerror})") from error
    except Exception as error:  # damaged files fail in as many ways as there are places to damage
        raise HessdiagError(f"{label} is damaged or no file that torch.save wrote ({one_line(error)})") from error


def _check_values(tensors: Mapping[str, Tensor], label: str) -> None:
    for key, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
            raise HessdiagError(f"{label}: {key!r} is not a dense tensor of real numbers")
        if value.is_floating_point() and not bool(value.float().isfinite().all()):
            raise HessdiagError(f"{label}: {key!r} holds NaN or infinite values, take an earlier checkpoint")


def _without_prefix(tensors: Mapping[str, Tensor], own: list[str]) -> tuple[Mapping[str, Tensor], list[str]]:
    """Find the whole network in a larger module, as DataParallel, torch.compile or Lightning save it."""
    if not own or all(key in tensors for key in own):
        return tensors, []
    found = sorted({key.removesuffix(own[0]) for key in tensors if key.endswith(f".{own[0]}")})
    whole = [prefix for prefix in found if all(f"{prefix}{key}" in tensors for key in own)]
    if len(whole) > 1:
        names = " and ".join(repr(prefix.removesuffix(".")) for prefix in whole)
        raise HessdiagError(f"--weights hold the network more than once: name one as in --weights FILE:KEY, {names}")
    if not whole:
        return tensors, []
    (prefix,) = whole
    others = [key for key in tensors if not key.startswith(prefix)]
    notes = [f"left out the prefix {prefix!r}"]
    if others:
        notes.append(f"left out {len(others)} tensors without it ({few(others)})")
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}, notes


def _holds_tensors(entry: Mapping[Any, Any]) -> bool:
    return bool(entry) and all(isinstance(value, Tensor) for value in entry.values())


def _size(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a scalar"
