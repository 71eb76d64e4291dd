"""What each layer reads and writes in one hooked pass, in which order, and the sizes of it per example."""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, isinf, isnan, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hessdiag.arguments import one_line
from hessdiag.data.batch import Batch, Outputs
from hessdiag.data.memory import is_out_of_memory
from hessdiag.errors import REFUSALS, CoupledError, HessdiagError
from hessdiag.network.blocks import CONVOLUTIONS, Block, block_parameter, initialised_layers, is_linear, looks_up
from hessdiag.results.numbers import short

SENT_AT_ONCE = 4  # cotangents at a time where all do not fit into memory together
BATCHED = "pass a batch (B, ...) of what the model reads, in its dtype; images are (B, channels, height, width)"
HERE, TORCH = Path(__file__).parents[1], Path(torch.__file__).parent
APART = "pass inputs and targets apart, diagnose(model, inputs, targets), or ((x, y) for x, y, *_ in loader), and"
APART += " arguments by name as one dict; a list that is one of them, as (inputs,); what a training step makes of a"
APART += " batch as a module whose forward returns the loss, loss='model' (--loss model)"


def owners_of(blocks: Iterable[Block]) -> list[str]:
    """Paths of all modules that own one of the blocks, each once."""
    return list(dict.fromkeys(owner for block in blocks for owner in block.owners))


def measured_layers(model: nn.Module, blocks: Sequence[Block]) -> list[str]:
    """Paths of the layers whose surroundings are measured: also of those whose weight has no rule but is a matrix."""
    ruled = owners_of(block for block in blocks if block.structured)
    matrices = {path for path, _ in initialised_layers(model)}
    others = owners_of(block for block in blocks if not block.structured and block.kind == "weight")
    return [*ruled, *(owner for owner in others if owner in matrices and owner not in ruled)]


def looked_up_in_common(blocks: Iterable[Block]) -> frozenset[str]:
    """Paths of all embeddings that look rows up for all examples together."""
    return frozenset(owner for block in blocks for owner in block.in_common)


Node = Any  # of torch's autograd graph, which has no public type for it
Place = Tensor | GradientEdge  # to send cotangents back from


class BackwardError(HessdiagError):
    """The model's own backward pass fails."""


@dataclass(frozen=True)
class LayerCall:
    """One call of one layer on one batch."""

    owner: str  # path of the module in the model
    x: Tensor  # its input, detached; of an embedding the numbers of the rows that it looks up
    output: Tensor | None  # a detached copy, when outputs were asked for
    output_shape: torch.Size
    input_edge: GradientEdge | None  # where to differentiate; nothing flows to the input of an embedding
    output_edge: GradientEdge
    version: int  # version counter of `x` when it was read


@dataclass(frozen=True)
class Trace:
    """What hooks record in a forward pass."""

    y: Tensor  # outputs (B, *out)
    calls: tuple[LayerCall, ...]  # of the traced layers, in execution order
    outputs: Outputs  # of the whole pass, with what is known of their dimensions


def trace(
    model: nn.Module, batch: Batch, owners: Iterable[str], *, keep_outputs: bool = False, in_common: Container[str] = ()
) -> Trace:
    """Run the model forward on a batch, with hooks on the modules at the paths `owners`. Those `in_common` are
    embeddings that look (T,) rows up for all examples together.
    """
    calls: list[LayerCall] = []
    with ExitStack() as hooks:
        for owner in owners:
            watch = _Watch(owner, calls, keep_outputs, batch.rows or 1, owner in in_common)
            module = model.get_submodule(owner)
            hooks.enter_context(module.register_forward_pre_hook(watch.before, with_kwargs=True))
            # First of all hooks: one of the user's, such as a multiplier, may change what the layer itself wrote.
            hooks.enter_context(module.register_forward_hook(watch.after, with_kwargs=True, prepend=True))
        outputs = batch.read(batch.run(model))
    for call in calls:
        if call.x._version != call.version:
            raise HessdiagError(f"the input of {call.owner!r} is overwritten in place after the layer has read it")
    return Trace(outputs.y, tuple(calls), outputs)


def backpropagate(
    y: Place, edges: Sequence[GradientEdge], cotangents: Tensor, *, at_once: int | None = None
) -> list[Tensor | None]:
    """Back-propagate cotangents (Q, B, *out) of the outputs, `at_once` together: (Q, *shape) gradients at each edge.
    None where the outputs do not depend on it. In place of the outputs y may stand a place before them.
    """
    if at_once is not None and len(cotangents) > at_once:
        return _in_pieces(y, edges, cotangents, at_once)
    if not edges or (isinstance(y, Tensor) and not y.requires_grad):
        return [None] * len(edges)
    if len(cotangents) == 1:
        return [None if g is None else g.to_dense().unsqueeze(0) for g in _sent_back(y, edges, cotangents[0])]
    try:
        return [*gradients_of(y, edges, cotangents, is_grads_batched=True)]
    except Exception:  # an operation without a batching rule, such as GroupNorm's backward, or of the user's
        columns = zip(*(_sent_back(y, edges, v) for v in cotangents), strict=True)
        return [None if column[0] is None else torch.stack([g.to_dense() for g in column]) for column in columns]


def gradients_of(y: Place, at: Sequence[Any], v: Tensor | None, **how: bool) -> tuple[Any, ...]:
    """`torch.autograd.grad`, after which functions of the user's hold again what their backward pass deleted. As that
    of the checkpoints in guided-diffusion does, and in many models after it.
    """
    root = y.node if isinstance(y, GradientEdge) else y.grad_fn
    held = [(now, dict(now)) for node in walk(root, parents_of) if (now := getattr(node, "__dict__", None)) is not None]
    try:
        return torch.autograd.grad(y, at, v, retain_graph=True, allow_unused=True, **how)
    finally:
        for now, before in held:
            now.update(before)


def walk(start: Node | None, onwards: Callable[[Node], list[Node]]) -> Iterator[Node]:
    """All nodes that are reached from one by steps `onwards`, each once, the first one too; of no node none."""
    seen, stack = {start}, [] if start is None else [start]
    while stack:
        node = stack.pop()
        yield node
        for each in onwards(node):
            if each not in seen:
                seen.add(each)
                stack.append(each)


def parents_of(node: Node) -> list[Node]:
    """The nodes whose results a node reads."""
    return [parent for parent, _ in node.next_functions if parent is not None]


def leaves_of(root: Node | None) -> Iterator[Tensor]:
    """The tensors that require a gradient of which a node's numbers were made."""
    return (node.variable for node in walk(root, parents_of) if hasattr(node, "variable"))


def kept_aside(model: nn.Module) -> dict[int, str]:
    """Where modules keep tensors to be trained that they have not registered, as `blocks[0].weight`, by the id of these
    or of what these were made of: `nn.Parameter(...).to(device)` is none. What parameters made is an activation.
    """
    names, registered = dict[int, str](), set(map(id, model.parameters()))
    for path, attribute, value in attributes_of(model):
        for name, tensor in _held_in(value, f"{path}.{attribute}".lstrip(".")):
            leaves = set(map(id, leaves_of(get_gradient_edge(tensor).node)))
            for key in leaves if leaves.isdisjoint(registered) else ():
                names.setdefault(key, name)
    return names


def attributes_of(model: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """What modules keep besides parameters, buffers and modules: path, attribute and value."""
    for path, module in model.named_modules():
        for name, value in [*vars(module).items()]:
            if name not in ("_parameters", "_buffers", "_modules"):
                yield path, name, value


def _held_in(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Tensors to be trained that a value is or holds, each with where."""
    if isinstance(value, nn.Module):
        yield from ((f"{name}.{inner}", p) for inner, p in value.named_parameters() if p.requires_grad)
    elif isinstance(value, (list, tuple, dict)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _held_in(each, f"{name}[{key!r}]")
    elif isinstance(value, Tensor):
        yield from [(name, value)] * value.requires_grad
    else:  # a layer that is no module
        for key, each in getattr(value, "__dict__", {}).items():
            yield from _held_in(each, f"{name}.{key}") if isinstance(each, Tensor | nn.Module) else ()


def numbers_written(value: Tensor) -> int:
    """How many numbers the operations behind a value wrote, those of convolutions times how many each one sums."""
    nodes = [node for node in walk(value.grad_fn, parents_of) if node._input_metadata]
    kernels = [(node, getattr(node, "_saved_weight", None)) for node in nodes]
    return sum(math.prod(n._input_metadata[0].shape) * (1 if w is None else w[0].numel()) for n, w in kernels)


def _sent_back(y: Place, edges: Sequence[GradientEdge], cotangent: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of one cotangent; refuse a model whose own backward pass fails."""
    try:
        return gradients_of(y, edges, cotangent)
    except Exception as error:
        if is_out_of_memory(error) or "heckpoint" in str(error):  # of which `preserve` knows more
            raise
        what = f"the model's backward pass fails ({one_line(error)})"
        raise BackwardError(f"{what}: make model(inputs).sum().backward() run") from error


def _in_pieces(y: Place, edges: Sequence[GradientEdge], cotangents: Tensor, at_once: int) -> list[Tensor | None]:
    """Some cotangents after the other; at the outputs themselves there is nothing to send back."""
    whole: list[Tensor | None] = [cotangents if writes_outputs(y, edge) else None for edge in edges]
    inner = [place for place, edge in enumerate(edges) if not writes_outputs(y, edge)]
    for start in range(0, len(cotangents), at_once):
        piece = backpropagate(y, [edges[place] for place in inner], cotangents[start : start + at_once])
        for place, found in zip(inner, piece, strict=True):
            if found is not None:
                if (every := whole[place]) is None:
                    every = whole[place] = found.new_empty(len(cotangents), *found.shape[1:])
                every[start : start + at_once] = found
    return whole


def writes_outputs(y: Place, edge: GradientEdge) -> bool:
    """Whether what is written at an edge is the outputs themselves."""
    return y == edge if isinstance(y, GradientEdge) else y.grad_fn is edge.node and y.output_nr == edge.output_nr


class _Watch:
    """The pair of hooks of one module; the first hands the aliased input over to the second."""

    def __init__(self, owner: str, calls: list[LayerCall], keep_outputs: bool, examples: int, in_common: bool) -> None:
        self.owner, self.calls, self.keep_outputs = owner, calls, keep_outputs
        self.examples, self.in_common = examples, in_common
        self.entered: Tensor | None = None
        self.edge: GradientEdge | None = None

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hand the layer an alias of its input, whose gradient is that of this call alone."""
        key = 0 if args else next(iter(kwargs), None)
        x = args[0] if args else kwargs.get(str(key))
        self.entered = self.edge = None
        if not torch.is_grad_enabled() or not isinstance(x, Tensor) or is_functorch_wrapped_tensor(x):
            return None  # under torch.vmap there is no edge to differentiate at
        if x.layout is not torch.strided:
            raise HessdiagError(f"{type(module).__name__} reads a sparse tensor: hand it a dense one, as of `to_dense`")
        if looks_up(module):
            self.entered = handed = self._numbers(x)
        elif x.is_floating_point():
            handed = x.view_as(x) if x.requires_grad else x.detach().requires_grad_().view_as(x)
            self.entered, self.edge = handed, get_gradient_edge(handed)
        else:
            return None
        return ((handed, *args[1:]), kwargs) if args else (args, kwargs | {str(key): handed})

    def _numbers(self, numbers: Tensor) -> Tensor:
        """Those that an embedding looks up; what it looks up once for all examples, as positions, for each of them.
        Else its gradient would be the sum over the examples. That the model computes the same is checked with all else.
        """
        if numbers.dim() > 1 and len(numbers) == 1:
            return numbers.expand(self.examples, *numbers.shape[1:])
        return numbers.expand(self.examples, -1) if numbers.dim() == 1 and self.in_common else numbers

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Record the call, if gradients flow through it."""
        if self.entered is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        call = LayerCall(
            owner=self.owner, x=self.entered.detach(), output=output.detach().clone() if self.keep_outputs else None,
            output_shape=output.shape, input_edge=self.edge, output_edge=get_gradient_edge(output),
            version=self.entered._version,
        )  # fmt: skip
        self.entered = self.edge = None
        self.calls.append(call)


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer per example."""

    inputs: int  # elements that it reads
    outputs: int  # elements that it writes
    sites_in: int  # positions at which it reads
    sites: int  # positions at which it writes
    patches: int  # elements of its unfolded input
    forward_macs: int  # multiply-adds of its forward pass
    channels_in: int

    def __add__(self, other: LayerShape) -> LayerShape:
        """Both calls of a layer that is called twice."""
        summed = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return LayerShape(**summed | {"channels_in": self.channels_in})

    @classmethod
    def of(cls, module: nn.Module, call: LayerCall, examples: int) -> LayerShape:
        """Of one call on some examples."""
        reads, writes = call.x.numel() // examples, math.prod(call.output_shape) // examples
        c_in, c_out = _channels(module, call.x.shape), _channels(module, call.output_shape)
        patch, groups = c_in if is_linear(module) else 1, 1
        if isinstance(module, CONVOLUTIONS):
            patch, groups = module.in_channels * math.prod(module.kernel_size), module.groups
        sites = writes // max(c_out, 1)
        return cls(reads, writes, reads // max(c_in, 1), sites, patch * sites, writes * patch // groups, c_in)


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of a network."""

    layers: dict[str, LayerShape]  # by path
    outputs: int  # N, per example
    element_size: int  # bytes of one number
    dense: int = 0  # entries of the blocks whose Jacobians are formed whole
    looked_up: int = 0  # elements that embeddings write, per example
    returned: int = 0  # outputs that a layer itself writes, not what is computed of that
    parameters: int = 0  # bytes of all of them

    def bytes_per_example(self, cotangents: int) -> int:
        """Memory of one example when `cotangents` are back-propagated at once to every layer."""
        layers = sum(layer.inputs + layer.patches for layer in self.layers.values())
        return self.element_size * (layers + (2 * cotangents + 2) * self.written + cotangents * self.dense)

    @property
    def written(self) -> int:
        """Elements that layers write, and the network: where gradients arrive."""
        return sum(layer.outputs for layer in self.layers.values()) + self.looked_up + self.outputs

    def most_cotangents(self, memory: int) -> int:
        """Cotangents of one example that can be back-propagated at once in `memory` bytes."""
        more = self.bytes_per_example(1) - self.bytes_per_example(0)
        return max(0, memory * 3 // 4 - self.bytes_per_example(0)) // max(more, 1)  # the rest is for what is passing

    def most_in_pieces(self, memory: int) -> int:
        """Cotangents of one example that can be sent back `SENT_AT_ONCE` at a time."""
        held = self.written - self.returned + self.dense
        return max(0, memory * 7 // 8 - self.bytes_per_example(SENT_AT_ONCE)) // max(self.element_size * held, 1)

    def chunk(self, cotangents: int, *, memory: int) -> int:
        """Examples that fit into `memory` bytes at once, at least 1."""
        return max(1, memory // max(self.bytes_per_example(cotangents), 1))


@dataclass(frozen=True)
class DryRun:
    """What one run of a few examples shows."""

    outputs: Outputs  # of these examples, outside of any graph
    shape: NetworkShape  # sizes of the network and of its layers, in execution order
    blocks: tuple[Block, ...]  # in execution order, those never called last, with what is known of how they are read


def run_dry(model: nn.Module, few: Batch, blocks: Sequence[Block]) -> DryRun:
    """Run examples forward, once where no embedding asks for more, and note what every layer reads and writes."""
    order: list[str] = []
    with ExitStack() as hooks:
        for owner in owners_of(blocks):
            layer = model.get_submodule(owner)
            hooks.enter_context(layer.register_forward_pre_hook(lambda *_, owner=owner: order.append(owner)))
        seen, unread, in_common = _trace(model, few, blocks)
    if torch.is_grad_enabled() and seen.y.grad_fn is None and any(p.requires_grad for p in model.parameters()):
        why = "forward runs under torch.no_grad(), detaches them, compares or takes an argmax; measure it without"
        raise HessdiagError(f"the outputs have no gradient: {why}")
    uncalled = [block for block in blocks if block.structured and not {*block.owners} & {*order}]
    unread |= _read_uncalled(model, seen.y, uncalled)
    layers: dict[str, LayerShape] = {}
    for call in seen.calls:
        if call.input_edge is not None:
            new = LayerShape.of(model.get_submodule(call.owner), call, few.size)
            layers[call.owner] = layers[call.owner] + new if call.owner in layers else new
    writing = [call.output_shape for call in seen.calls if writes_outputs(seen.y, call.output_edge)]
    shape = NetworkShape(
        layers, outputs=math.prod(seen.y.shape[1:]), element_size=seen.y.element_size(),
        dense=sum(block.numel for block in blocks if not block.structured or block.name in unread),
        looked_up=sum(math.prod(call.output_shape) // few.size for call in seen.calls if call.input_edge is None),
        returned=sum(math.prod(shape) // few.size for shape in writing),
        parameters=sum(parameter.nbytes for parameter in model.parameters()),
    )  # fmt: skip
    read = [replace(block, structured=False) if block.name in unread else block for block in blocks]
    read = [replace(block, in_common=tuple(in_common & {*block.owners})) for block in read]
    place = {owner: number for number, owner in enumerate(dict.fromkeys(order))}
    read.sort(key=lambda block: min(place.get(owner, len(place)) for owner in block.owners))
    return DryRun(replace(seen.outputs, y=seen.y.detach()), shape, tuple(read))


def try_model(
    model: nn.Module, batch: Batch, blocks: Sequence[Block] = (), *, name: str = "", examples: int = 2
) -> DryRun:
    """Run the model dry on the first examples: their outputs, and sizes and order of the layers that hold `blocks`."""
    tried = batch.narrow(0, examples)
    try:
        return run_dry(model, tried, blocks)
    except Exception as error:
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        own = error
    if (theirs := _failure(partial(tried.run, model))) is None:  # what the model has against these inputs, unwatched
        raise own
    if isinstance(theirs, HessdiagError) or is_out_of_memory(theirs) or not (name or isinstance(theirs, REFUSALS)):
        raise theirs
    more = tried.size < batch.size and any(v.dim() > 1 for v in batch.tensors)  # else it may be one example
    if (whole := _failure(partial(batch.run, model)) if more else theirs) is None:
        what = f"the model runs with {batch.size} examples and not with {tried.size} of them ({one_line(theirs)})"
        raise CoupledError(f"{what}: keep examples apart, or pass examples='one'") from theirs
    shapes = ", ".join("×".join(map(str, value.shape)) for value in batch.tensors)
    ids = [int(x.max()) for x in batch.tensors if isinstance(theirs, IndexError) and not x.is_floating_point()]
    largest = f", indices up to {max(ids)}" if ids else ""
    why = f"{one_line(whole)}{_raised_in(model, whole)}"
    read = f"{name or 'the model'} cannot read inputs of shape {shapes}{largest} ({why})"
    raise HessdiagError(f"{read}{_advice(model, batch)}") from theirs


def _raised_in(model: nn.Module, error: BaseException | None) -> str:
    """The module, and the line outside of torch and hessdiag, that raised an error in a call of the model."""
    named, module, line = {id(m): name for name, m in model.named_modules()}, "", ""
    for frame, number in traceback.walk_tb(error.__traceback__ if error else None):
        if name := named.get(id(owner := frame.f_locals.get("self")), ""):
            module = f", in {name} ({type(owner).__name__})"
        if not (path := Path(frame.f_code.co_filename)).is_relative_to(HERE) and not path.is_relative_to(TORCH):
            line = f", {path.name} line {number}"
    return module + line


def _failure(call: Callable[[], object]) -> Exception | None:
    """What a call of the user's code fails by; None where it comes to its end."""
    try:
        call()
    except Exception as error:
        return error
    return None


def _advice(model: nn.Module, batch: Batch) -> str:
    try:
        taken = inspect.signature(model.forward)
        taken.bind(*batch.args, **batch.kwargs)
    except ValueError:  # compiled code tells nothing
        return ""
    except TypeError:
        return f": forward takes {', '.join(taken.parameters)}" if batch.kwargs else f": {APART}"
    if isinstance(held := next(iter(batch.args), None), Mapping) and len(held) > 1:
        first, second, *_ = held
        pairs = f"((b[{first!r}], b[{second!r}]) for b in loader)"
        return f": forward takes {', '.join(taken.parameters)}; pass that and targets, as {pairs}"
    return f": {BATCHED}"


def _read_uncalled(model: nn.Module, y: Tensor, blocks: Sequence[Block]) -> frozenset[str]:
    """Names of the blocks that the outputs depend on although no layer that owns them is called, as in attention."""
    edges = [get_gradient_edge(block_parameter(model, block)) for block in blocks]
    found = _sent_back(y, edges, torch.ones_like(y)) if edges and y.requires_grad else ()
    return frozenset(block.name for block, g in zip(blocks, found, strict=False) if g is not None)


def _trace(model: nn.Module, few: Batch, blocks: Sequence[Block]) -> tuple[Trace, frozenset[str], frozenset[str]]:
    """A traced pass of a few examples, and how embeddings are read. Those are names of blocks that one reads in some
    other way than row by row of an example, and paths of embeddings that look (T,) rows up for all examples: while
    traced, they write them for each; a model may be traced without.
    """
    ruled = [block for block in blocks if block.structured]
    lookups = [block for block in ruled if block.looked_up]
    others = owners_of(block for block in ruled if not block.looked_up)
    in_common = looked_up_in_common(lookups)
    for _ in range(2):
        try:
            seen = trace(model, few, owners_of(ruled), in_common=in_common)
        except Exception:
            break
        strange = [call for call in seen.calls if call.input_edge is None and call.x.shape[:1] != (few.size,)]
        if not (rows := {call.owner for call in strange if call.x.dim() == 1 and not few.as_one}) or in_common:
            owners = {call.owner for call in strange}
            return seen, frozenset(block.name for block in lookups if owners & {*block.owners}), in_common
        in_common = frozenset(rows)
    return trace(model, few, others), frozenset(block.name for block in lookups), frozenset()


CONSTANTS = re.compile(r"(new_)?(empty|full)|masked_fill|fill|where|scalar_tensor|lift_fresh|resize")
SCALE = "these are too large, or out of its range: scale or clamp them"
HINTS = {
    "div": "add a small number to what it divides by", "softmax": "leave an entry of every row unmasked",
    "log": "take it of a softmax or sigmoid, or add a small number to what is above zero",
    "nll_loss_forward": "look for labels that are all left out (-100)",
    "xlogy": "hand kl_div targets from 0 to 1, or logarithms and `log_target=True`",
}  # fmt: skip


class _FirstBroken(TorchDispatchMode):
    """Notes the first operation that makes NaN or, of finite numbers, an infinity, which is no constant of a mask."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.within: list[str] = []  # paths of the modules that are being called
        self.behind, self.found = "", ""  # path of the last one; what is told

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__.strip("_")
        if self.found or CONSTANTS.match(name):
            return result
        tensors = ([v for v in tree_leaves(each) if isinstance(v, Tensor)] for each in ((args, kwargs), result))
        read, made = ([v for v in each if v.is_floating_point() and v.numel()] for each in tensors)
        nan, infinite = ([any(bool(of(v).any()) for v in each) for each in (read, made)] for of in (isnan, isinf))
        if not nan[0] and (nan[1] or (infinite[1] and not infinite[0])):
            if node := torch._C._current_autograd_node():
                what = re.sub(r"Backward[0-9]*$", "", node.name()).lower()
                clamp = "clamp what it reads to 1 - 1e-6"
                how = clamp if what in ("acos", "asin") else "add a small number to what it reads"
                self.found = f"the slope of {what} makes the first; {how}"
                return result
            inner = "".join(self.within[-1:])
            where = f" in {inner!r}" if inner else f" behind {self.behind!r}" if self.behind else ""
            numbers = " and ".join(" to ".join(short(float(end)) for end in v.aminmax()) for v in read[:2])
            self.found = f"{name}{where} makes the first, of numbers from {numbers}; {HINTS.get(name, SCALE)}"
        return result


def first_broken(call: Callable[[], object], model: nn.Module | None = None) -> str:
    """Which operation of a call first makes NaN or an infinity, in which module of a model, of which numbers."""
    mode = _FirstBroken()

    def leave(*_: Any) -> None:
        mode.behind = mode.within.pop()

    with ExitStack() as hooks, suppress(Exception):
        for path, module in () if model is None else model.named_modules():
            hooks.enter_context(module.register_forward_pre_hook(lambda *_, path=path: mode.within.append(path)))
            hooks.enter_context(module.register_forward_hook(leave, always_call=True))
        hooks.enter_context(mode)
        call()
    return mode.found or "look for a division by zero, or for weights or inputs that are too large"


def _channels(module: nn.Module, shape: torch.Size) -> int:
    """Size of the channel dimension: the last one of a linear layer's activations, else the second."""
    return shape[-1 if is_linear(module) or len(shape) < 2 else 1] if shape else 1  # a loss that the model computes
