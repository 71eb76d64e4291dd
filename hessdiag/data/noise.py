"""What holds while a model or a loss of the user's is called, in this thread: the noise that it draws.

What it draws is noted in a first pass and handed out again in later ones. A measurement may ask for more by `in_calls`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hessdiag.errors import HessdiagError

DRAWS = {
    torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.randint, torch.randint_like, torch.randperm,
    torch.normal, torch.bernoulli, torch.multinomial, torch.poisson, Tensor.normal_, Tensor.uniform_,
    Tensor.bernoulli_, Tensor.exponential_, Tensor.random_, Tensor.bernoulli, Tensor.multinomial,
}  # fmt: skip


_here = threading.local()


def user_code() -> AbstractContextManager[Any]:
    """The context in which a model or a loss is called."""
    return getattr(_here, "context", nullcontext())


@contextmanager
def in_calls(context: AbstractContextManager[Any]) -> Iterator[None]:
    """Let this be that context, entered anew for each call: being in a mode costs more than most operations."""
    before, _here.context = user_code(), context
    try:
        yield
    finally:
        _here.context = before


class Noise(TorchFunctionMode):
    """Note what is drawn in this context; or hand out what was drawn, in the same order."""

    def __init__(self, drawn: Sequence[Tensor] | None = None) -> None:
        super().__init__()
        self.noted: list[Tensor] = []
        self.handed_out = None if drawn is None else iter(drawn)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and note or replace its result where it draws."""
        if func is F.gumbel_softmax:
            with self:  # whose own draws PyTorch does not show
                return _gumbel_softmax(*args, **(kwargs or {}))
        made = func(*args, **(kwargs or {}))
        if func not in DRAWS:
            return made
        if self.handed_out is None:
            self.noted.append(made.detach().clone())
            return made
        value = next(self.handed_out, None)
        if value is None or value.shape != made.shape:
            raise HessdiagError(
                f"the model draws random numbers of shape {tuple(made.shape)} that do not run over its examples alike:"
                ' draw them with the examples first, or pass mode="eval" (--eval)'
            )
        return made.copy_(value) if func.__name__.endswith("_") else value


def _gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """`F.gumbel_softmax`, of operations."""
    noise = -torch.empty_like(logits).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    return torch.zeros_like(logits).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0) - soft.detach() + soft
