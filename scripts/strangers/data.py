"""Data without a network: scikit-learn's digits as images, Python's own documentation as text."""

from __future__ import annotations

import pydoc_data.topics
import re
from collections import Counter
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

other = 0  # 1 draws other examples: held-out data


@cache
def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits  # takes a second

    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(found.images, dtype=torch.float32)[order].unsqueeze(1) / 16
    return images, torch.tensor(found.target)[order]


def digits(size: int, channels: int = 1, *, count: int = 32, bytes_: bool = False) -> tuple[Tensor, Tensor]:
    """Draw images (count, channels, size, size) of digits, in random colours, and their classes.

    Pixels are standardised, or as a file has them, 0 to 255.
    """
    images, classes = (each[other * count : (other + 1) * count] for each in _digits())
    generator = torch.Generator().manual_seed(1 + other)
    ink = torch.rand(count, channels, 1, 1, generator=generator) if channels > 1 else torch.ones(count, 1, 1, 1)
    paper = torch.rand(count, channels, 1, 1, generator=generator) if channels > 1 else torch.zeros(count, 1, 1, 1)
    large = F.interpolate(images, size=(size, size), mode="bilinear")
    pixels = large * ink + (1 - large) * paper
    if bytes_:
        return 255 * pixels, classes
    return (pixels - pixels.mean()) / pixels.std(), classes


@cache
def _words() -> list[str]:
    whole = " ".join(pydoc_data.topics.topics.values())
    return re.findall(r"\w+|[^\w\s]", whole.lower())


@cache
def _tokens(vocabulary: int) -> Tensor:
    known = {word: i for i, (word, _) in enumerate(Counter(_words()).most_common(vocabulary - 1), 1)}
    return torch.tensor([known.get(word, 0) for word in _words()])


def text(count: int, length: int, vocabulary: int = 256, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw token sequences (count, length) and the tokens that follow each of them; rare words are token 0."""
    tokens = _tokens(vocabulary)
    starts = torch.randint(len(tokens) - length - 1, (count,), generator=torch.Generator().manual_seed(seed + other))
    rows = torch.stack([tokens[start : start + length + 1] for start in starts])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
