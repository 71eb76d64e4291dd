"""The traced graph of a network, and one operation of it as a rule sees it."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.utils._pytree import tree_leaves, tree_map_only

from hessdiag.arguments import one_line
from hessdiag.calculus.moments import Activation, Gradient
from hessdiag.errors import HessdiagError

# Dropout of whole channels would come apart into random numbers and a product.
_SAME_MOMENTS: dict[Any, Any] = {
    torch.ops.aten.feature_dropout.default: torch.ops.aten.dropout.default,
    torch.ops.aten.feature_dropout_.default: torch.ops.aten.dropout_.default,
}


@dataclass(frozen=True)
class Operation:
    """One call in the graph."""

    name: str  # of the result
    target: str  # the operation, such as `aten.linear`; the overload is left out
    call: Any  # the function itself
    arguments: Mapping[str, Any]  # by name, defaults too, with `Ref` in place of results of earlier operations
    refs: tuple[Ref, ...]  # all results of earlier operations among the arguments
    place: str  # path of the module whose forward called it, `""` for the model itself
    layer: str  # class name of that module
    shape: tuple[int, ...] | None  # of the result; None of several tensors, and where the inputs tell how many entries

    def run(self, others: Mapping[str, Any]) -> Any:
        """Call it, with others in place of some of its arguments."""
        arguments = {**self.arguments, **others}
        return self.call(**arguments) if isinstance(self.call, OpOverload) else self.call(*arguments.values())


@dataclass(frozen=True)
class Ref:
    """The result of an earlier operation, or an input, parameter or buffer."""

    name: str


@dataclass(frozen=True)
class Graph:
    """A traced model."""

    inputs: Mapping[str, Tensor]  # by name; of these and of `shapes` there are no numbers
    parameters: Mapping[str, str]  # parameters, buffers: graph name to name in the model
    buffers: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]  # of parameters and buffers, by graph name
    constants: Mapping[str, Tensor]  # numbers that the model's Python made while it was traced, and those of token ids
    operations: tuple[Operation, ...]  # in execution order
    output: Ref  # the network's output
    batch: int  # examples it was traced with


def trace_graph(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Graph:
    """Trace a model on example arguments whose tensors, like the model's, may be on the meta device."""
    exported = _export(model, args, kwargs)
    signature, nodes = exported.graph_signature, list(exported.graph.nodes)
    tensors = {n.name: n.meta["val"] for n in nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), Tensor)}
    inputs = {name: value for name, value in tensors.items() if name in signature.user_inputs}
    returned = [spec.arg for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]  # others it writes to
    if (output := next((Ref(each.name) for each in returned if isinstance(each, TensorArgument)), None)) is None:
        raise HessdiagError(f"{type(model).__name__} returns no tensor: wrap it so that it returns one")
    return Graph(
        inputs=inputs, parameters=dict(signature.inputs_to_parameters), buffers=dict(signature.inputs_to_buffers),
        shapes={name: tuple(value.shape) for name, value in tensors.items() if name not in inputs},
        constants=_constants(exported), output=output, batch=len(next(iter(inputs.values()))),
        operations=tuple(_operation(node) for node in nodes if node.op == "call_function"),
    )  # fmt: skip


def _export(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> ExportedProgram:
    cached = {"use_cache"} & inspect.signature(model.forward).parameters.keys()  # what it returns is no tensor
    given = dict.fromkeys(cached, False) | dict(kwargs or {})
    with _quiet(), torch.no_grad():  # a model's own no_grad then leaves no subgraph
        try:
            exported = torch.export.export(model, args, given, strict=False)
            if any(map(_writes, exported.graph.nodes)):  # in place: operations that return their results replace these
                for node in exported.graph.nodes:
                    node.target = _SAME_MOMENTS.get(node.target, node.target)
                exported = exported.run_decompositions(decomp_table={})
            return exported
        except Exception as error:
            why = f"cannot trace {type(model).__name__} with torch.export ({one_line(error)[:300]})"
            raise HessdiagError(f"{why}: measure it with hessdiag.diagnose instead") from error


def _writes(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    written = isinstance(node.target, OpOverload) and node.target._schema.is_mutable
    return written and isinstance(value, Tensor) and value.is_floating_point()


def _constants(exported: ExportedProgram) -> dict[str, Tensor]:
    """By graph name, what the model's Python made, and inputs that are no measurements, where they have numbers."""
    signature = exported.graph_signature
    made = {name: exported.constants[target] for name, target in signature.inputs_to_lifted_tensor_constants.items()}
    pairs = zip(signature.user_inputs, tree_leaves(exported.example_inputs), strict=True)
    given = {str(name): value for name, value in pairs if isinstance(value, Tensor) and not value.is_meta}
    return made | {name: value for name, value in given.items() if not value.is_floating_point()}


def _operation(node: torch.fx.Node) -> Operation:
    value, called = node.meta.get("val"), [("", "the model"), *(node.meta.get("nn_module_stack") or {}).values()]
    path, kind = called[-1]
    return Operation(
        name=node.name, target=_target(node.target), call=node.target, arguments=_arguments(node),
        refs=tuple(Ref(read.name) for read in node.all_input_nodes), place=str(path),
        layer=(kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2],
        shape=tuple(value.shape) if isinstance(value, Tensor) and {int}.issuperset(map(type, value.shape)) else None,
    )  # fmt: skip


def _target(target: Any) -> str:
    if isinstance(target, OpOverload):
        return str(target._schema.name).replace("::", ".")
    return getattr(target, "__name__", str(target))


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    args, kwargs = tree_map_only(torch.fx.Node, lambda read: Ref(read.name), (node.args, dict(node.kwargs)))
    if not isinstance(node.target, OpOverload):
        return {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    schema = node.target._schema.arguments
    bound = {a.name: a.default_value for a in schema if a.has_default_value()}
    bound |= dict(zip((a.name for a in schema), args, strict=False)) | kwargs
    return {a.name: bound[a.name] for a in schema if a.name in bound}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.ExitStack() as stack, warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        yield


KERNEL = "kernel"
MOMENTS = ("paper", KERNEL)

NOT_IN_PAPER = "the paper has no rule for it"  # in notes


class UnsupportedError(Exception):
    """No rule covers this use of an operation; the text says why."""


@dataclass(frozen=True)
class Unknown:
    """A value without moments: indices, masks, shapes."""

    drawn: bool = False  # whether it depends on what the user passes, as token ids do and positions do not
    broken: bool = False  # whether it comes from an operation without a rule


@dataclass(frozen=True)
class Pieces:
    """A tensor that an operation such as chunk took apart along a dimension; its pieces are taken by `getitem`."""

    source: Ref
    function: Callable[[Tensor], Any]
    along: int | None


@dataclass(frozen=True)
class Scores:
    """Products of all queries with all keys, before their softmax or, `normalised`, after it."""

    query: Ref  # (..., positions, n); `key_last`: the key is (..., n, positions), as a product of matrices takes it
    key: Ref
    key_last: bool = False
    factor: float = 1.0  # that they were multiplied by
    mask: Tensor | None = None  # which keys a query sees, (queries, keys); None for all
    shift: float = 0.0  # variance of a learnable bias that was added
    normalised: bool = False


@dataclass(frozen=True)
class Size:
    """(The mean of x² over the last dimension + eps) ^ power."""

    of: Ref
    eps: float = 0.0
    power: float = 1.0


Value = Activation | Unknown | Pieces | Scores | Size

Back = Callable[[Gradient], Gradient]


class Mixing(NamedTuple):
    """By how much ‖M‖² of queries, keys and values is larger than without what an attention makes alike."""

    heads: int  # of which each has weights of its own
    # factor on ‖M‖², and what the covariance of few keys adds to it, over its part along the identity
    query: tuple[float, float]
    # factor on both, what pairs of keys add, and what few queries add to single keys and to pairs
    key: tuple[float, float, float, float]
    value: float  # factor that one for all positions leaves out, where a mask lets some keys be seen more often


@dataclass(frozen=True)
class Step:
    """What a rule found."""

    out: Value  # moments of the result
    back: tuple[tuple[Ref, Back], ...] = ()  # for each argument that gets a gradient, the map of the gradient's moments
    weight: str = ""  # weight, bias, scalar: parameters that the operation applies
    bias: str = ""
    scalar: str = ""
    x: Activation | None = None  # the input of a layer, a multiplier or a nonlinearity
    source: Ref | None = None  # the argument that `x` is
    note: str = ""  # what the reader should know, such as that the paper has no such rule
    attention: Mixing | None = None  # where `back` goes to queries, keys and values
    kurtosis: float = 1.0  # E[f⁴] / E[f²]² of the factors f that `back` multiplies each entry with
    length: float = math.nan  # E|x|² of what one output position of a layer reads
    blind: str = ""  # of a normalisation: to the input's "size", or to that of each of its "channels" and their means


@dataclass(frozen=True)
class Call:
    """An operation, the values of its arguments, and whether the finer moment model is asked for."""

    operation: Operation
    values: Mapping[str, Value]
    numbers: dict[str, Tensor]
    kernel: bool
    batch: int

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Find the operation's arguments by name."""
        return self.operation.arguments

    @property
    def shape(self) -> tuple[int, ...]:
        """Find the shape of what the operation returns, as traced."""
        if self.operation.shape is None:
            raise UnsupportedError("it returns more than one tensor, or as many entries as the inputs tell")
        return self.operation.shape

    def ref(self, name: str) -> Ref:
        """Find the argument as the result of an earlier operation."""
        if not isinstance(value := self.arguments.get(name), Ref):
            raise UnsupportedError(f"its argument {name} is no tensor")
        return value

    def activation(self, name: str) -> Activation:
        """Find the moments of an argument."""
        return self.at(self.ref(name))

    def at(self, ref: Ref) -> Activation:
        """Find the moments of an earlier result."""
        if not isinstance(value := self.values[ref.name], Activation):
            raise UnsupportedError(f"{ref.name} has no second moment")
        return value

    def optional(self, name: str) -> Activation | None:
        """Find the moments of an argument that may be left out."""
        return self.activation(name) if isinstance(self.arguments.get(name), Ref) else None

    def number(self, name: str) -> float | None:
        """Read a Python number; None for anything else."""
        value = self.arguments.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def first(self) -> Ref:
        """Find the first argument that is the result of an earlier operation."""
        return self.operation.refs[0]

    def applied(self, tensor: Tensor) -> Any:
        """Run the operation itself with a tensor in place of its first one."""
        if self.operation.target in VIEWS:
            return tensor.reshape(self.shape)
        name = next(name for name, value in self.arguments.items() if value == self.first)
        return self.operation.run({name: tensor})


VIEWS = tuple(f"aten.{name}" for name in ("view", "_unsafe_view", "reshape", "flatten", "unflatten"))


def transposed(function: Callable[[Tensor], Tensor], like: Tensor, v: Tensor) -> Tensor:
    """Compute Aᵀ v for a linear function A of tensors shaped like `like`."""
    with torch.enable_grad():
        leaf = torch.zeros((), dtype=torch.float64).expand(like.shape).requires_grad_()
        (result,) = torch.autograd.grad(function(leaf), leaf, v)
    return result
