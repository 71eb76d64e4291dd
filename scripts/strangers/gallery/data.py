"""Data without a network: the source files of Python's standard library as text, and generated images."""

import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

VOCABULARY = 1024
SOURCES = ("argparse.py", "ast.py", "inspect.py", "typing.py", "tarfile.py", "subprocess.py")


def text(seed: int, *, batch: int = 4, length: int = 64) -> tuple[Tensor, Tensor]:
    """Draw token sequences (batch, length) and the tokens that follow each of them."""
    tokens = _tokens()
    starts = torch.randint(len(tokens) - length - 1, (batch,), generator=torch.Generator().manual_seed(seed))
    rows = torch.stack([tokens[start : start + length + 1] for start in starts])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def masked_text(seed: int, *, batch: int = 4, length: int = 64) -> tuple[Tensor, Tensor]:
    """Draw token sequences with every seventh token masked (as 0), and targets that are -100 elsewhere."""
    tokens, _ = text(seed, batch=batch, length=length)
    masked = torch.arange(length) % 7 == 3
    return torch.where(masked, 0, tokens), torch.where(masked, tokens, -100)


def pairs(seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Draw text to read and to continue; the decoder reads it shifted."""
    read, follow = text(seed)
    return {"input_ids": read, "decoder_input_ids": read.roll(1, 1)}, follow


def topics(seed: int) -> tuple[Tensor, Tensor]:
    """Draw text and a class that its first word decides."""
    tokens, _ = text(seed, batch=16, length=32)
    return tokens, tokens[:, 0] % 10


def images(seed: int, *, batch: int = 16, size: int = 32, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Draw standardised images (batch, 3, size, size) of gratings on blobs; the class is the grating's direction."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (batch,), generator=draw)
    grid = torch.linspace(-1, 1, size)
    row, column = torch.meshgrid(grid, grid, indexing="ij")
    angle = (labels * math.pi / classes).view(-1, 1, 1)
    phase, frequency, cx, cy = torch.rand(4, batch, 1, 1, generator=draw).unbind()
    wave = torch.sin(2 * math.pi * (1 + 3 * frequency) * (row * angle.cos() + column * angle.sin()) + 6.3 * phase)
    blob = torch.exp(-4 * ((row - 2 * cx + 1) ** 2 + (column - 2 * cy + 1) ** 2))
    tint = torch.rand(2, batch, 3, 1, 1, generator=draw)
    picture = tint[0] * wave.unsqueeze(1) + 2 * tint[1] * blob.unsqueeze(1)
    picture = picture + 0.2 * torch.randn(batch, 3, size, size, generator=draw)
    return (picture - picture.mean()) / picture.std(), labels


def points(seed: int, *, inputs: int = 32, batch: int = 64, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Draw standardised vectors around a mean for each class, and the classes."""
    means = torch.randn(classes, inputs, generator=torch.Generator().manual_seed(12))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (batch,), generator=draw)
    return (means[labels] + torch.randn(batch, inputs, generator=draw)) / math.sqrt(2), labels


def regression(seed: int, *, inputs: int = 64, batch: int = 64) -> tuple[Tensor, Tensor]:
    """Draw Gaussian inputs and a smooth function of them, of variance near 1."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, inputs, generator=draw)
    directions = torch.randn(inputs, 4, generator=torch.Generator().manual_seed(12)) / math.sqrt(inputs)
    return x, math.sqrt(2) * torch.sin(2 * x @ directions)


def pixels(seed: int, *, batch: int = 256) -> tuple[Tensor, Tensor]:
    """Draw points of the square [-1, 1]² and the brightness of a detailed image there."""
    draw = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(batch, 2, generator=draw) - 1
    wave = torch.sin(25 * x[:, :1] + 3 * x[:, 1:]) * torch.cos(17 * x[:, 1:]) + torch.sin(9 * x.sum(1, keepdim=True))
    return x, wave


def rare(seed: int, *, batch: int = 16, size: int = 32) -> tuple[Tensor, Tensor]:
    """Draw images with a label (0 or 1) at every pixel; one pixel in a hundred is a 1."""
    pictures, _ = images(seed, batch=batch, size=size)
    draw = torch.Generator().manual_seed(seed + 1)
    return pictures, (torch.rand(batch, size, size, generator=draw) < 0.01).long()


def noise(seed: int) -> tuple[Tensor, Tensor]:
    """Draw noisy images and their noise."""
    pictures, _ = images(seed, batch=8)
    added = torch.randn(pictures.shape, generator=torch.Generator().manual_seed(seed + 7))
    return (pictures + added) / math.sqrt(2), added


def number_words(words: list[str]) -> Tensor:
    """Number words by their rank in the standard library; 1 stands for all that are rare there, 0 for a mask."""
    number = {word: i + 2 for i, word in enumerate(_common())}
    return torch.tensor([number.get(word, 1) for word in words])


@cache
def _tokens() -> Tensor:
    return number_words(_words())


@cache
def _common() -> list[str]:
    return [word for word, _ in Counter(_words()).most_common(VOCABULARY - 2)]


@cache
def _words() -> list[str]:
    """The standard library, word by word."""
    folder = Path(re.__file__).parent.parent
    return [w for name in SOURCES for w in re.findall(r"\w+|[^\w ]", (folder / name).read_text(encoding="utf-8"))]
