"""Random numbers: independent streams from one seed, and what a model or a loss of the user's draws when it is called.

What it draws is noted in a first pass and handed out again in later ones. A measurement may ask for more by `in_calls`.
"""

import hashlib
import math
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hessdiag.errors import HessdiagError

SHARED = 2**12  # numbers of a stream that several examples share
DRAWS = {
    torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.randint, torch.randint_like, torch.randperm,
    torch.normal, torch.bernoulli, torch.multinomial, torch.poisson, Tensor.normal_, Tensor.uniform_,
    Tensor.bernoulli_, Tensor.exponential_, Tensor.random_, Tensor.bernoulli, Tensor.multinomial,
}  # fmt: skip
_here = threading.local()


def stream(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator for one purpose, such as `"loss"` or `"inputs"`: weights and inputs of one stream would be
    correlated. The pair is hashed to 32 bits, as torch's CPU generator ignores the higher bits of its seed.
    """
    return torch.Generator().manual_seed(_number(seed, purpose))


def _number(seed: int, purpose: str) -> int:
    return int.from_bytes(hashlib.blake2s(f"{seed}/{purpose}".encode(), digest_size=4).digest(), "little")


def gaussians(seed: int, purpose: str, examples: Collection[int], shape: tuple[int, ...]) -> Tensor:
    """N(0, 1) numbers for each example, (shape[0], B, *shape[1:]), on the CPU, whatever other examples are measured
    with it: it has a stream of its own, or where that would give few numbers, a place in one that neighbours share.
    """
    generator = torch.Generator()  # one for all: to make one takes as long as to draw
    count, *rest = shape
    held = torch.empty(count, len(examples), *rest)
    neighbours = max(1, SHARED // max(1, math.prod(shape)))
    for first, members in groupby(enumerate(examples), key=lambda each: each[1] // neighbours * neighbours):
        whose = f"example {first}" if neighbours == 1 else f"{neighbours} examples from {first}"
        generator.manual_seed(_number(seed, f"{purpose} of {whose}"))
        if neighbours == len(examples) == 1:  # many numbers, of which no copy is made
            return held.normal_(generator=generator)
        drawn = torch.randn((neighbours, *shape), generator=generator)
        places, rows = zip(*((place, number - first) for place, number in members), strict=True)
        held[:, list(places)] = drawn[list(rows)].transpose(0, 1)
    return held


def user_code() -> AbstractContextManager[Any]:
    """The context in which a model or a loss is called."""
    return getattr(_here, "context", nullcontext())


def calls_here() -> Any:
    """What a measurement keeps of the calls of its model and loss; None outside of one."""
    return getattr(user_code(), "calls", None)


def draws_outside() -> bool:
    """Whether calls of the model draw from generators of Python or NumPy."""
    return getattr(calls_here(), "draws", False)


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
        if func is F.gumbel_softmax:
            with self:  # whose own draws PyTorch does not show
                return _gumbel_softmax(*args, **(kwargs or {}))
        made = func(*args, **(kwargs or {}))
        if func not in DRAWS:
            return made
        if self.handed_out is None:
            self.noted.append(made.detach().clone())
            return made
        if (value := next(self.handed_out, None)) is None or value.shape != made.shape:
            drawn = f"the model draws random numbers of shape {tuple(made.shape)} that do not run over its examples"
            raise HessdiagError(f'{drawn} alike: draw them with the examples first, or pass mode="eval" (--eval)')
        value = value.argsort().argsort() if func is torch.randperm else value  # of fewer, their order
        return made.copy_(value) if func.__name__.endswith("_") else value.detach().clone()


def _gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    soft = ((logits - torch.empty_like(logits).exponential_().log()) / tau).softmax(dim)
    if not hard:
        return soft
    return torch.zeros_like(logits).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0) - soft.detach() + soft
