"""The graph of a model, traced with torch.export on fake tensors: shapes and where each operation stands, no numbers.

torch.export (non-strict) rather than `torch.fx.symbolic_trace`: it runs the model's own Python on fake tensors, so that
control flow on shapes is followed, gives the shape of every result, and works on the meta device.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.errors import HessdiagError
from hessdiag.user_code.named_function import one_line


@dataclass(frozen=True)
class Operation:
    """One call in the graph.

    Attributes:
        name: of the result.
        target: the operation, such as `aten.linear`; the overload is left out.
        call: the function itself.
        args, kwargs: with `Ref` in place of results of earlier operations.
        place: path of the module whose forward called it, `""` for the model itself.
        layer: class name of that module.
        shape: of the result; None where it is no single tensor.
    """

    name: str
    target: str
    call: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    place: str
    layer: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Ref:
    """The result of an earlier operation, or an input, parameter or buffer."""

    name: str


@dataclass(frozen=True)
class Graph:
    """A traced model.

    Attributes:
        inputs: (name, shape, whether it holds floating-point numbers) of what the user passes.
        parameters, buffers: graph name to name in the model.
        operations: in execution order.
        output: the network's output.
        batch: examples it was traced with.
    """

    inputs: tuple[tuple[str, tuple[int, ...], bool], ...]
    parameters: Mapping[str, str]
    buffers: Mapping[str, str]
    constants: Mapping[str, Tensor]
    operations: tuple[Operation, ...]
    output: Ref
    batch: int


def trace_graph(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Graph:
    """Trace a model on example arguments whose tensors, like the model's, may be on the meta device.

    Raises:
        HessdiagError: torch.export cannot follow the model, or it does not return one tensor.
    """
    with _quiet():
        try:
            with torch.no_grad():  # a model's own no_grad then leaves no subgraph
                exported = torch.export.export(model, args, dict(kwargs or {}), strict=False)
        except Exception as error:
            raise HessdiagError(
                f"cannot trace {type(model).__name__} with torch.export ({one_line(error)[:300]}):"
                " measure it with hessdiag.diagnose instead"
            ) from error
    signature = exported.graph_signature
    constants = {
        spec.arg.name: exported.constants[spec.target]
        for spec in signature.input_specs
        if spec.kind.name == "CONSTANT_TENSOR" and isinstance(exported.constants.get(spec.target), Tensor)
    }
    user = set(signature.user_inputs)
    inputs, operations, output = [], [], None
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            if node.name in user and isinstance(value, Tensor):
                inputs.append((node.name, tuple(value.shape), value.is_floating_point()))
        elif node.op == "call_function":
            place, layer = _place(node)
            operations.append(
                Operation(
                    name=node.name,
                    target=_target(node.target),
                    call=node.target,
                    args=_refs(node.args),
                    kwargs=_refs(node.kwargs),
                    place=place,
                    layer=layer,
                    shape=tuple(value.shape) if isinstance(value, Tensor) else None,
                )
            )
        elif node.op == "output":
            output = _one_output(model, node.args[0])
    assert output is not None
    if not inputs:
        raise HessdiagError("the model reads no tensor: pass inputs that hold one")
    return Graph(
        inputs=tuple(inputs),
        parameters=dict(signature.inputs_to_parameters),
        buffers=dict(signature.inputs_to_buffers),
        constants=constants,
        operations=tuple(operations),
        output=output,
        batch=inputs[0][1][0],
    )


def _one_output(model: nn.Module, outputs: Any) -> Ref:
    tensors = [value for value in outputs if isinstance(value, torch.fx.Node)]
    if len(outputs) != 1 or len(tensors) != 1:
        preferred = [value for value in tensors if isinstance(value.meta.get("val"), Tensor)]
        if not preferred:
            raise HessdiagError(f"{type(model).__name__} returns no tensor: wrap it so that it returns one")
        return Ref(preferred[0].name)  # of transformers the logits or the last hidden state, which come first
    return Ref(tensors[0].name)


def _place(node: torch.fx.Node) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", "the model"
    path, kind = stack[-1]
    return str(path), (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def _target(target: Any) -> str:
    """`aten.conv2d` of `aten.conv2d.default`; Python functions go by their names."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name).replace("::", ".")
    return getattr(target, "__name__", str(target))


def _refs(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, (list, tuple)):
        return tuple(_refs(v) for v in value)
    if isinstance(value, Mapping):
        return {k: _refs(v) for k, v in value.items()}
    return value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and log lines of the exporter: what matters is said in errors."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
