"""Gradients through activations that are written in several operations, as one product with their derivative.

Transformers write GPT-2's GELU in eight operations. What is sent back through them, for every cotangent, reads and
writes the hidden units some twenty times, which took as long as all matrix products together. Such a module's Jacobian
is diagonal: its derivative is formed once and multiplied by what arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import Node, saved_tensors_hooks

# Operations whose result at a place depends on their operands at this place alone, as autograd calls them.
# fmt: off
BY_PLACE = frozenset((
    "Abs", "Add", "Addcdiv", "Addcmul", "Clamp", "ClampMax", "ClampMin", "Clone", "Cos", "Div", "Elu", "Erf", "Exp",
    "Expm1", "Gelu", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyRelu", "Log", "Log1P", "LogSigmoid", "Maximum",
    "Minimum", "Mish", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Rsqrt", "Rsub", "Sigmoid", "Silu", "Sin",
    "Softplus", "Sqrt", "Sub", "Tanh", "Threshold", "ToCopy", "Where",
))
# fmt: on
FEWEST = 2  # operations: autograd sends a gradient through one about as fast


@contextmanager
def by_derivative(model: nn.Module) -> Iterator[None]:
    """Call the model in this context with such activations attached by their derivative."""
    handles = [
        module.register_forward_hook(_attached, prepend=True)
        for module in model.modules()
        if not isinstance(module, torch.jit.ScriptModule)
        and not type(module).__module__.startswith("torch.nn.")  # activations there are one operation
        and next(module.children(), None) is None
        and next(chain(module.parameters(), module.buffers()), None) is None
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _attached(module: nn.Module, args: tuple[Any, ...], written: Any) -> Any:
    """What a module wrote, attached by its derivative; None for as it is, where it is no such activation."""
    if len(args) != 1 or not torch.is_grad_enabled():
        return None
    (x,) = args
    if not (isinstance(x, Tensor) and isinstance(written, Tensor) and x.requires_grad and x.shape == written.shape):
        return None
    if is_functorch_wrapped_tensor(x) or len(_operations(written.grad_fn, x.grad_fn)) < FEWEST:
        return None
    again = _again(module, x, written)
    return None if again is None else _Scaled.apply(x, *again)  # type: ignore[no-untyped-call]


def _operations(last: Node | None, before: Node | None) -> set[Node]:
    """Those between the node that made the input and the last one; empty where one is not by place.

    >>> x = torch.ones(2, 3, requires_grad=True).view_as(torch.ones(2, 3))
    >>> y = 0.5 * x * (1 + torch.tanh(x))
    >>> len(_operations(y.grad_fn, x.grad_fn)), len(_operations(y.cumsum(0).grad_fn, x.grad_fn))
    (4, 0)
    """
    seen: set[Node] = set()
    stack = [last]
    while stack:
        node = stack.pop()
        if node is None or node in seen or node is before:
            continue
        if node.name().rstrip("0123456789").removesuffix("Backward") not in BY_PLACE:
            return set()
        seen.add(node)
        stack += [below for below, _ in node.next_functions]
    return seen


def _again(module: nn.Module, x: Tensor, written: Tensor) -> tuple[Tensor, Tensor] | None:
    """What a second call writes, and its derivative at x; None where that is something else, as of random numbers."""
    leaf, attributes = x.detach().requires_grad_(), dict(vars(module))
    with saved_tensors_hooks(lambda kept: kept, lambda kept: kept):  # not those of a checkpoint
        again = module.forward(leaf.clone())  # it may be written to
        vars(module).update(attributes)  # what it keeps of a call is that of the first
        if not torch.equal(again, written):
            return None
        (derivative,) = torch.autograd.grad(again, leaf, torch.ones_like(again))
    return again.detach(), derivative


class _Scaled(torch.autograd.Function):
    """What an activation wrote; to its input goes the gradient times the derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, written: Tensor, derivative: Tensor) -> Tensor:
        """`written`, as it is. Nothing is saved by autograd's own means, which a checkpoint would count."""
        ctx.derivative = derivative
        ctx.mark_dirty(written)
        return written

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The gradient in x."""
        (gradient,) = gradients
        return gradient * ctx.derivative, None, None
