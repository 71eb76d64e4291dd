"""Independent random streams from one seed."""

import hashlib
import math
from collections.abc import Collection
from itertools import groupby

import torch
from torch import Tensor

SHARED = 2**12  # numbers of a stream that several examples share


def stream(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator for one purpose, such as `"loss"` or `"inputs"`.

    Two purposes must never share a stream: weights and inputs drawn from the same numbers would be correlated. The
    pair is hashed to 32 bits because torch's CPU generator ignores the higher bits of its seed.
    """
    return torch.Generator().manual_seed(_number(seed, purpose))


def _number(seed: int, purpose: str) -> int:
    return int.from_bytes(hashlib.blake2s(f"{seed}/{purpose}".encode(), digest_size=4).digest(), "little")


def gaussians(seed: int, purpose: str, examples: Collection[int], shape: tuple[int, ...]) -> Tensor:
    """N(0, 1) numbers for each example, (shape[0], B, *shape[1:]), on the CPU.

    What an example is given does not depend on the examples that are measured together with it: it has a stream of its
    own, or where that would give few numbers, its place in one that neighbours share.
    """
    generator = torch.Generator()  # one for all: to make one takes as long as to draw
    count, *rest = shape
    held = torch.empty(count, len(examples), *rest)
    neighbours = max(1, SHARED // max(1, math.prod(shape)))
    for first, members in groupby(enumerate(examples), key=lambda each: each[1] // neighbours * neighbours):
        if neighbours == 1:
            generator.manual_seed(_number(seed, f"{purpose} of example {first}"))
            place, _ = next(members)
            if len(examples) == 1:  # many numbers, of which no copy is made
                held.normal_(generator=generator)
            else:
                held[:, place] = torch.randn(shape, generator=generator)
            continue
        generator.manual_seed(_number(seed, f"{purpose} of {neighbours} examples from {first}"))
        drawn = torch.randn((neighbours, *shape), generator=generator)
        for_whom = list(members)
        rows = drawn[[number - first for _, number in for_whom]]
        held[:, [place for place, _ in for_whom]] = rows.transpose(0, 1)
    return held
