"""One operation as a rule sees it: its arguments by name, moments in place of activations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hessdiag.calculus.activation import Activation, Gradient
from hessdiag.calculus.graph import Operation, Ref

PAPER, KERNEL = "paper", "kernel"
MOMENTS = (PAPER, KERNEL)

NOT_IN_PAPER = "the paper has no rule for it"  # in notes


class UnsupportedError(Exception):
    """No rule covers this use of an operation; the text says why."""


@dataclass(frozen=True)
class Unknown:
    """A value without moments: indices, masks, shapes.

    Attributes:
        drawn: whether it depends on what the user passes, as token ids do and positions do not.
        broken: whether it comes from an operation without a rule.
    """

    drawn: bool = False
    broken: bool = False


@dataclass(frozen=True)
class Pieces:
    """A tensor that an operation such as chunk took apart; its pieces are taken by `getitem`."""

    source: Ref
    function: Callable[[Tensor], Any]


Value = Activation | Unknown | Pieces

Back = Callable[[Gradient], Gradient]


@dataclass(frozen=True)
class Step:
    """What a rule found.

    Attributes:
        out: moments of the result.
        back: for each argument that gets a gradient, the map of the gradient's moments.
        weight, bias, scalar: parameters that the operation applies.
        x: the layer's input, where there is a weight or a scalar, or the input of a nonlinearity.
        kind: `"weights"` or `"nonlinearity"` where it is a source of fluctuations over initialisations.
        source: the argument that `x` is.
        share: of E[y²] that is proportional to E[x²], for a linear layer; its bias is the rest.
        note: what the reader should know, such as that the paper has no such rule.
    """

    out: Value
    back: tuple[tuple[Ref, Back], ...] = ()
    weight: str = ""
    bias: str = ""
    scalar: str = ""
    x: Activation | None = None
    kind: str = ""
    source: Ref | None = None
    share: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Call:
    """An operation, the values of its arguments, and which moment model is asked for."""

    operation: Operation
    values: Mapping[str, Value]
    numbers: Mapping[str, Tensor]
    moments: str
    arguments: Mapping[str, Any]
    refs: tuple[Ref, ...]

    @classmethod
    def of(cls, operation: Operation, values: Mapping[str, Value], numbers: Mapping[str, Tensor], moments: str) -> Call:
        """Name the arguments as in the operation's schema; `refs` are all tensors among them."""
        arguments = _bind(operation)
        return cls(operation, values, numbers, moments, arguments, tuple(_refs_in(arguments.values())))

    def reading(self, values: Mapping[str, Value]) -> Call:
        """Replace the moments of some arguments."""
        return replace(self, values={**self.values, **values}) if values else self

    @property
    def kernel(self) -> bool:
        """Say whether the finer moment model is asked for."""
        return self.moments == KERNEL

    def ref(self, name: str) -> Ref:
        """Find the argument as the result of an earlier operation."""
        value = self.arguments.get(name)
        if not isinstance(value, Ref):
            raise UnsupportedError(f"its argument {name} is no tensor")
        return value

    def activation(self, name: str) -> Activation:
        """Find the moments of an argument."""
        return self.at(self.ref(name))

    def at(self, ref: Ref) -> Activation:
        """Find the moments of an earlier result."""
        value = self.values[ref.name]
        if not isinstance(value, Activation):
            raise UnsupportedError(f"{ref.name} has no second moment")
        return value

    def optional(self, name: str) -> Activation | None:
        """Find the moments of an argument that may be left out."""
        return self.activation(name) if isinstance(self.arguments.get(name), Ref) else None

    def number(self, name: str) -> float | None:
        """Read a Python number; None for anything else."""
        value = self.arguments.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def actual(self, ref: Ref) -> Tensor | None:
        """Find the numbers of a parameter or buffer, where they are at hand."""
        return self.numbers.get(ref.name)

    def applied(self, name: str, tensor: Tensor) -> Any:
        """Run the operation itself with one argument replaced by a tensor."""
        kwargs = {key: tensor if key == name else value for key, value in self.arguments.items()}
        if self.operation.target in ("aten.view", "aten._unsafe_view"):  # an expanded tensor cannot always be viewed
            return tensor.reshape(list(self.arguments["size"]))
        return call_by_name(self.operation.call, kwargs)


def _refs_in(values: Iterable[Any]) -> Iterator[Ref]:
    for value in values:
        if isinstance(value, Ref):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _refs_in(value)


def call_by_name(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Call an aten overload or a Python function with arguments by name; positional-only ones in their order."""
    if isinstance(function, torch._ops.OpOverload):
        schema = function._schema.arguments
        args = [_listed(arguments[a.name]) for a in schema if not a.kwarg_only and a.name in arguments]
        kwargs = {a.name: arguments[a.name] for a in schema if a.kwarg_only and a.name in arguments}
        return function(*args, **kwargs)
    return function(*arguments.values())


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _bind(operation: Operation) -> dict[str, Any]:
    """Arguments by name, with the schema's defaults."""
    if isinstance(operation.call, torch._ops.OpOverload):
        schema = operation.call._schema.arguments
        bound = {a.name: _tupled(a.default_value) for a in schema if a.has_default_value()}
        bound.update(zip((a.name for a in schema), operation.args, strict=False))
        bound.update(operation.kwargs)
        return {a.name: bound[a.name] for a in schema if a.name in bound}
    try:
        names = list(inspect.signature(operation.call).parameters)
    except (TypeError, ValueError):
        names = [f"arg{i}" for i in range(len(operation.args))]
    return dict(zip(names, operation.args, strict=False)) | dict(operation.kwargs)


def transposed(function: Callable[[Tensor], Tensor], like: Tensor, cotangent: Tensor) -> Tensor:
    """Compute Aᵀ v for a linear function A of tensors shaped like `like`."""
    with torch.enable_grad():
        leaf = torch.zeros(like.shape, dtype=torch.float64, requires_grad=True)
        (result,) = torch.autograd.grad(function(leaf), leaf, cotangent, create_graph=cotangent.requires_grad)
    return result
