"""Functions that a model writes out operation by operation: of one entry, as GELU is, and of a root mean square."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from hessdiag.calculus.graph import Call, Operation, Ref, Size, Step, UnsupportedError
from hessdiag.calculus.moments import NODES, Activation, Nonlinearity
from hessdiag.calculus.rules.layers import normalised

SAME = "to _to_copy clone contiguous alias type_as lift_fresh_copy"  # the same entries, perhaps in another precision
_COPIES = frozenset(f"aten.{name}" for name in SAME.split())

Chain = tuple[Ref, Nonlinearity]  # a result as a function φ, entry by entry, of one earlier result
SELF = Nonlinearity("x", lambda x: x)


def with_numbers(operation: Operation, found: Mapping[str, Tensor]) -> Any:
    """Run an operation with numbers in place of the results that it reads."""
    read = tree_map_only(Ref, lambda ref: found[ref.name], dict(operation.arguments))
    return operation.run(tree_map_only(torch.device, lambda _: torch.device("cpu"), read))


def chained(call: Call, chains: Mapping[str, Chain]) -> Chain | None:
    """Write the result as a function of one earlier result, where it is one."""
    operation = call.operation
    tags = getattr(operation.call, "tags", ())
    by_entry = torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
    if not (by_entry or operation.target in _COPIES):
        return None
    moving = {ref for ref in operation.refs if moves(call.values.get(ref.name))}
    read = {ref.name: chains.get(ref.name, (ref, SELF)) for ref in moving}
    roots = {root for root, _ in read.values()}
    others = [call.numbers.get(ref.name) for ref in operation.refs if ref not in moving]
    if len(roots) != 1 or any(actual is None or actual.numel() != 1 for actual in others):
        return None
    (root,) = roots
    if call.at(root).sq.shape != operation.shape:
        return None
    if operation.target in _COPIES:
        return next(iter(read.values()))
    known = {ref.name: call.numbers[ref.name].double() for ref in operation.refs if ref.name not in read}

    def function(x: Tensor) -> Any:
        return with_numbers(operation, known | {name: phi.function(x) for name, (_, phi) in read.items()})

    return root, Nonlinearity(operation.target, function, nodes=NODES // 4)


def moves(value: Any) -> TypeGuard[Activation]:
    """Say whether a value is an activation, and no parameter."""
    return isinstance(value, Activation) and not value.parameter


def joins(call: Call) -> bool:
    """Say whether an operation joins two results, or one result with itself."""
    first, second = call.arguments.get("self"), call.arguments.get("other")
    refs = [r for r in (first, second) if isinstance(r, Ref) and r.name not in call.numbers]
    return len(refs) == 2 and (refs[0] != refs[1] or call.operation.target != "aten.add")


def size_of(call: Call, chains: Mapping[str, Chain], squares: dict[str, Ref]) -> Step | None:
    """Follow x² → its mean over channels → its root, and x over that: RMS normalisation written out by hand."""
    name, refs = call.operation.target.removeprefix("aten."), call.operation.refs
    sizes = [value for ref in refs if isinstance(value := call.values.get(ref.name), Size)]
    if not sizes:
        squared = name == "square" or (name == "pow" and call.arguments.get("exponent") == 2)
        if squared or (name == "mul" and call.arguments["self"] == call.arguments["other"]):
            squares[call.operation.name] = _original(refs[0], chains)
        last = call.operation.shape and call.arguments.get("dim") in ([-1], [len(call.operation.shape) - 1])
        if name == "mean" and refs[0].name in squares and last and call.arguments.get("keepdim"):
            return Step(Size(squares[refs[0].name]))
        return None
    (size,) = sizes
    others = [ref for ref in refs if not isinstance(call.values.get(ref.name), Size)]
    power = {"rsqrt": -0.5, "sqrt": 0.5, "reciprocal": -1.0, "pow": call.number("exponent")}.get(name)
    if call.operation.target in _COPIES:
        return Step(size)
    if name == "add" and not others and size.power == 1.0:
        return Step(replace(size, eps=size.eps + (call.number("other") or 0.0)))
    if not others and power is not None:
        return Step(replace(size, power=size.power * power))
    power = {"mul": size.power, "div": -size.power}.get(name)
    if len(others) != 1 or power != -0.5 or _original(others[0], chains) != size.of:
        raise UnsupportedError("no rule for this use of a mean square")
    return normalised(call, others[0], 1, call.shape[-1], centred=False, eps=size.eps)


def _original(ref: Ref, chains: Mapping[str, Chain]) -> Ref:
    root, phi = chains.get(ref.name, (ref, SELF))
    return root if phi == SELF else ref
