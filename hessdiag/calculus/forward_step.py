"""One operation of the forward sweep: its rule applied, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from hessdiag.calculus.activation import Activation, Gradient
from hessdiag.calculus.call import PAPER, Call, Pieces, Step, Unknown, UnsupportedError, Value
from hessdiag.calculus.graph import Operation, Ref
from hessdiag.calculus.rules import BY_TARGET

KEEPS_CONSTANTS = ("reshaping", "copying", "detaching", "padding")  # a weight stays a weight


@dataclass
class Remarks:
    """What a sweep found that a reader should know.

    Attributes:
        unsupported: (operation with its place, reason).
        notes: approximations, each once.
    """

    unsupported: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note, once; an empty one is none."""
        if text and text not in self.notes:
            self.notes.append(text)


def place(operation: Operation) -> str:
    """Say where in the model an operation is called."""
    return f"in {operation.layer} {operation.place!r}" if operation.place else "in the model's own forward"


def forward_step(call: Call, remarks: Remarks) -> Step:
    """Apply the rule of an operation; one without a rule gives NaN and is listed, once, where the trouble starts."""
    operation = call.operation
    if operation.target.startswith("aten._assert"):
        return Step(Unknown())
    arguments = _arguments(call)
    if any(isinstance(v, Unknown) and v.broken for _, v in arguments):
        return _broken(operation, arguments)
    moving = [v for _, v in arguments if isinstance(v, (Activation, Pieces))]
    drawn = any(isinstance(v, Unknown) and v.drawn for _, v in arguments)
    constants = all(isinstance(v, Activation) and v.parameter for v in moving)
    rule = BY_TARGET.get(operation.target)
    if not moving or (rule is None and constants):
        return Step(Unknown(drawn=drawn))
    if rule is None:
        return _refused(operation, arguments, remarks, "no rule for this operation")
    try:
        step = rule.apply(call)
    except UnsupportedError as error:
        return Step(Unknown()) if constants else _refused(operation, arguments, remarks, str(error))
    remarks.note(step.note)
    if not isinstance(step.out, Activation) or (constants and rule.operation in KEEPS_CONSTANTS):
        return step
    out = replace(step.out, parameter="")
    return replace(step, out=out.uniform() if call.moments == PAPER else out)


def _arguments(call: Call) -> list[tuple[Ref, Value]]:
    """The tensors that a call reads; other results are parts of the graph."""
    return [(ref, call.values[ref.name]) for ref in call.refs if ref.name in call.values]


def _refused(operation: Operation, arguments: Sequence[tuple[Ref, Value]], remarks: Remarks, reason: str) -> Step:
    tainted = any(
        isinstance(v, Activation) and not v.parameter and bool(v.sq.detach().isnan().any()) for _, v in arguments
    )
    if not tainted:
        remarks.unsupported.append((f"{operation.target} ({operation.name}) {place(operation)}", reason))
    return _broken(operation, arguments)


def _broken(operation: Operation, arguments: Sequence[tuple[Ref, Value]]) -> Step:
    """Moments of NaN, forward and backward."""
    if operation.shape is None:
        return Step(Unknown(drawn=True, broken=True))
    nan = torch.tensor(math.nan, dtype=torch.float64)
    back = []
    for ref, value in arguments:
        if isinstance(value, Activation) and not value.parameter:
            back.append((ref, lambda g, shape=value.sq.shape: Gradient(nan.expand(shape))))
    return Step(Activation(nan.expand(operation.shape)), tuple(back))
