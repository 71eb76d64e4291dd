"""What callers of public functions pass by mistake: refused in one sentence that says what to write.

torch is imported where it is needed: the command line prints its help without it.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

LOSSES = ("random-quadratic", "cross-entropy", "mse")  # of the outputs of any model
TENSORS = "pass a tensor or array, as of torch.as_tensor or frame.to_numpy(), or a tuple or dict of them"
MAX_MESSAGE = 240  # characters of somebody else's message that are passed on


def check_kind(name: str, value: Any, kinds: type | tuple[type, ...], advice: str) -> None:
    """Refuse a value of another type.

    >>> check_kind("report", [1], int, "pass one number")
    Traceback (most recent call last):
    hessdiag.errors.HessdiagError: report is a list: pass one number
    """
    if not isinstance(value, kinds):
        what = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
        raise HessdiagError(f"{name} is {what}: {advice}")


def check_whole(name: str, value: Any, *, least: int | None = None) -> None:
    """Refuse what is not a whole number, or is less than `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or (least is not None and value < least):
        wanted = "a whole number" if least is None else f"at least {least}, a whole number"
        raise HessdiagError(f"{name} {value!r}: pass {wanted}")


def check_number(name: str, value: Any, advice: str, *, above: float = -math.inf) -> None:
    """Refuse what is not a finite number above a bound."""
    try:
        number = math.nan if isinstance(value, (str, bool)) else float(value)  # tensors of one number too
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > above):
        raise HessdiagError(f"{name} {value!r}: {advice}")


def check_loss(loss: Any) -> None:
    """Refuse what is neither the name of a loss nor a function."""
    if isinstance(loss, type):
        raise HessdiagError(f"loss is the class {loss.__name__}: pass an instance, as in {loss.__name__}()")
    if isinstance(loss, str) and loss not in (*LOSSES, "model"):
        usual = f"use one of {', '.join(LOSSES)}, model, or a function such as F.nll_loss"
        raise HessdiagError(f"unknown loss {loss!r}: {did_you_mean(loss, LOSSES, otherwise=usual)}")
    if not (loss is None or isinstance(loss, str) or callable(loss)):
        raise HessdiagError(f"loss {loss!r}: pass a name such as 'cross-entropy', or a function (outputs, targets)")


def kind_of(value: Any) -> str:
    """The type of a value with its article.

    >>> kind_of(None), kind_of(1), kind_of([])
    ('None', 'an int', 'a list')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def check_model(model: Any) -> None:
    """Refuse what is not a built network."""
    from torch import nn

    built = "hessdiag.models.resolve_model('lenet').build().module"
    check_kind("model", model, nn.Module, f"pass a torch.nn.Module that is built, such as {built}")
    if "forward_unimplemented" in getattr(model.forward, "__name__", ""):
        what = f"the model {type(model).__name__} has no forward method: wrap it in a module whose forward returns"
        raise HessdiagError(f"{what} outputs, or a training step's loss (loss='model', --loss model)")
    if lazy := [name for name, parameter in model.named_parameters() if nn.parameter.is_lazy(parameter)]:
        raise HessdiagError(f"parameter {lazy[0]!r} has no shape yet: run the model once before measuring it")


def is_finite(values: Tensor) -> bool:
    """Whether all are: their sum tells, many times faster than a look at each, unless it overflows by itself."""
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def check_tensors(model: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Refuse weights without values, and inputs on another device or in another dtype."""
    import torch

    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise HessdiagError(f"parameter {name!r} is on the meta device, without a value: build it on another")
        if parameter.requires_grad and not is_finite(parameter.data):  # else it may be that of a mask
            raise HessdiagError(f"parameter {name!r} holds NaN or infinite values: initialise or load it first")
    tensors = [*model.parameters(), *inputs]
    if len(devices := {str(t.device) for t in tensors}) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in tensors if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both, as by model.float() and inputs.float()")


def as_dtype(dtype: Any) -> torch.dtype:
    """A floating-point type, or the one of that name.

    >>> as_dtype("float64")
    torch.float64
    """
    import torch

    known = {"float32": torch.float32, "float64": torch.float64}
    if (found := known.get(str(dtype).removeprefix("torch."))) is None:
        raise HessdiagError(f"dtype {dtype!r}: use {' or '.join(known)}")
    return found


def as_device(device: Any) -> torch.device:
    """A device that is there.

    >>> as_device("cpu")
    device(type='cpu')
    """
    import torch

    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise HessdiagError(f"device {device!r}: use cpu or cuda") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise HessdiagError("device cuda: torch finds no CUDA device here; use device='cpu' (--device cpu)")
    return found


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """A question to end a message with, or `otherwise` where nothing known resembles the word.

    >>> did_you_mean("lenett", ["lenet", "mlp"])
    'did you mean lenet?'
    >>> did_you_mean("x", ["lenet"], otherwise="use lenet")
    'use lenet'
    """
    spellings = {name.lower(): name for name in known}
    if word.lower() in spellings:
        return f"did you mean {spellings[word.lower()]}?"
    near = [spellings[name] for name in difflib.get_close_matches(word.lower(), list(spellings))]
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def matching(patterns: str | Sequence[str] | None, names: Sequence[str]) -> set[str]:
    """Return the names of parameters that match a pattern such as `"layers.*.fc?"`, or whose modules' do; None: all.

    A pattern that matches none is refused.
    """
    if patterns is None:
        return set(names)
    check_kind("blocks", patterns, (str, list, tuple), "pass a pattern such as 'layers.0.*', or a list of some")
    kept: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if not (found := {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}):
            hint = did_you_mean(pattern, names, otherwise=f"there are {few(names, 8)}")
            raise HessdiagError(f"blocks {pattern!r} (--blocks) matches no block: {hint}")
        kept |= found
    return kept


def few(names: Iterable[str], limit: int = 3) -> str:
    """The first names of a list, and how many more there are.

    >>> few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    names = list(names)
    text = ", ".join(names[:limit])
    return f"{text} and {len(names) - limit} more" if len(names) > limit else text


def joined(names: Iterable[str]) -> str:
    """Names as a sentence lists them.

    >>> joined(["a", "b", "c"]), joined(["a"])
    ('a, b and c', 'a')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise HessdiagError(f"{option} {value!r} is not known: use one of {', '.join(choices)}")


def one_line(error: BaseException) -> str:
    """Type and first line of the message of an exception.

    >>> one_line(KeyError("width"))
    "KeyError: 'width'"
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"
