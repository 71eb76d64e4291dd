"""One forward pass, traced: the input of every layer and the places in the autograd graph to differentiate at.

The hooks keep gradient *edges*, not tensors: an edge stays valid when a following in-place ReLU overwrites the layer's
output. The layer's input is aliased, so that its gradient is the part that flows through this layer alone, and not
through a skip connection that reads the same tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.arguments import one_line
from hessdiag.data.batch import Batch
from hessdiag.data.memory import is_out_of_memory
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import looks_up


class BackwardError(HessdiagError):
    """The model's own backward pass fails."""


@dataclass(frozen=True)
class LayerCall:
    """One call of one layer on one batch.

    Attributes:
        owner: path of the module in the model.
        x: input of the layer, detached; of an embedding the numbers of the rows that it looks up.
        output: output of the layer, detached; a copy when outputs were asked for, else None.
        output_shape: its shape.
        input_edge, output_edge: where to differentiate; nothing flows to the input of an embedding.
        version: version counter of `x` when it was read.
    """

    owner: str
    x: Tensor
    output: Tensor | None
    output_shape: torch.Size
    input_edge: GradientEdge | None
    output_edge: GradientEdge
    version: int


@dataclass(frozen=True)
class Trace:
    """What hooks record in a forward pass.

    Attributes:
        y: outputs (B, *out).
        calls: of the traced layers, in execution order.
    """

    y: Tensor
    calls: tuple[LayerCall, ...]


def trace(
    model: nn.Module, batch: Batch, owners: Collection[str], *, keep_outputs: bool = False,
    in_common: Collection[str] = (),
) -> Trace:  # fmt: skip
    """Run the model forward on a batch, with hooks on the modules at the paths `owners`.

    Those `in_common` are embeddings that look (T,) rows up for all examples together.
    """
    calls: list[LayerCall] = []
    watches = [_Watch(owner, calls.append, keep_outputs, batch.rows or 1, owner in in_common) for owner in owners]
    with _watching(model, watches):
        y = batch.call(model)
    for call in calls:
        if call.x._version != call.version:
            raise HessdiagError(f"the input of {call.owner!r} is overwritten in place after the layer has read it")
    return Trace(y, tuple(calls))


def backpropagate(
    y: Tensor | GradientEdge, edges: Sequence[GradientEdge], cotangents: Tensor, *, at_once: int | None = None
) -> list[Tensor | None]:
    """Back-propagate cotangents (Q, B, *out) of the outputs, `at_once` together: (Q, *shape) gradients at each edge.

    None where the outputs do not depend on it. In place of the outputs y may stand a place before them.
    """
    if at_once is not None and len(cotangents) > at_once:
        return _in_pieces(y, edges, cotangents, at_once)
    if not edges or (isinstance(y, Tensor) and not y.requires_grad):
        return [None] * len(edges)
    if len(cotangents) == 1:
        return [None if g is None else _strided(g).unsqueeze(0) for g in _sent_back(y, edges, cotangents[0])]
    try:
        batched = torch.autograd.grad(y, edges, cotangents, retain_graph=True, allow_unused=True, is_grads_batched=True)
        return list(batched)
    except Exception:  # an operation without a batching rule, such as GroupNorm's backward, or of the user's
        rows = [_sent_back(y, edges, v) for v in cotangents]
        return [
            None if column[0] is None else torch.stack([_strided(g) for g in column])
            for column in zip(*rows, strict=True)
        ]


def _sent_back(y: Tensor | GradientEdge, edges: Sequence[GradientEdge], cotangent: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of one cotangent; refuse a model whose own backward pass fails."""
    try:
        return torch.autograd.grad(y, edges, cotangent, retain_graph=True, allow_unused=True)
    except Exception as error:
        if is_out_of_memory(error) or "heckpoint" in str(error):  # of which `preserve` knows more
            raise
        raise BackwardError(
            f"the model's backward pass fails ({one_line(error)}): make model(inputs).sum().backward() run"
        ) from error


def _in_pieces(
    y: Tensor | GradientEdge, edges: Sequence[GradientEdge], cotangents: Tensor, at_once: int
) -> list[Tensor | None]:
    """Some cotangents after the other; at the outputs themselves there is nothing to send back."""
    whole: list[Tensor | None] = [cotangents if writes_outputs(y, edge) else None for edge in edges]
    inner = [place for place, edge in enumerate(edges) if not writes_outputs(y, edge)]
    for start in range(0, len(cotangents), at_once):
        piece = backpropagate(y, [edges[place] for place in inner], cotangents[start : start + at_once])
        for place, found in zip(inner, piece, strict=True):
            if found is not None:
                every = whole[place]
                if every is None:
                    every = whole[place] = found.new_empty(len(cotangents), *found.shape[1:])
                every[start : start + at_once] = found
    return whole


def writes_outputs(y: Tensor | GradientEdge, edge: GradientEdge) -> bool:
    """Whether what is written at an edge is the outputs themselves."""
    if isinstance(y, GradientEdge):
        return y == edge
    return y.grad_fn is edge.node and y.output_nr == edge.output_nr


def _strided(gradient: Tensor) -> Tensor:
    """The gradient as a plain tensor: that of an embedding may be sparse."""
    return gradient.to_dense() if gradient.is_sparse else gradient


@contextmanager
def _watching(model: nn.Module, watches: Sequence[_Watch]) -> Iterator[None]:
    with ExitStack() as hooks:
        for watch in watches:
            module = model.get_submodule(watch.owner)
            hooks.enter_context(module.register_forward_pre_hook(watch.before, with_kwargs=True))
            # First of all hooks: one of the user's, such as a multiplier, may change what the layer itself wrote.
            hooks.enter_context(module.register_forward_hook(watch.after, with_kwargs=True, prepend=True))
        yield


class _Watch:
    """The pair of hooks of one module; the first hands the aliased input over to the second."""

    def __init__(
        self, owner: str, record: Callable[[LayerCall], None], keep_outputs: bool, examples: int, in_common: bool
    ) -> None:
        self.owner, self.record, self.keep_outputs = owner, record, keep_outputs
        self.examples, self.in_common = examples, in_common
        self.entered: Tensor | None = None
        self.edge: GradientEdge | None = None

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hand the layer an alias of its input, whose gradient is that of this call alone."""
        key = 0 if args else next(iter(kwargs), None)
        x = args[0] if args else kwargs.get(str(key))
        self.entered = self.edge = None
        if not torch.is_grad_enabled() or not isinstance(x, Tensor):
            return None
        if is_functorch_wrapped_tensor(x):  # the layer is called by torch.vmap: no edge to differentiate at
            return None
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
        if numbers.dim() == 1 and self.in_common:
            return numbers.expand(self.examples, -1)
        return numbers

    def after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Record the call, if gradients flow through it."""
        if self.entered is None or not isinstance(output, Tensor) or not output.requires_grad:
            return
        call = LayerCall(
            owner=self.owner,
            x=self.entered.detach(),
            output=output.detach().clone() if self.keep_outputs else None,
            output_shape=output.shape,
            input_edge=self.edge,
            output_edge=get_gradient_edge(output),
            version=self.entered._version,
        )
        self.entered = self.edge = None
        self.record(call)
