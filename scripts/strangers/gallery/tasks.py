"""A small real task for every case of the gallery: what its networks are trained on, and at which size.

Texts and the photograph are at hand wherever Python and matplotlib are; CIFAR-10 (binary layout) and LIBSVM's
`letter.scale` are read from files.
"""

from __future__ import annotations

import bz2
import pydoc_data.topics
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib import cbook, image
from torch import Tensor, nn

from strangers.gallery.case import Variant
from strangers.gallery.convolutional import conv_xavier, depthwise_fan_out, zero_module
from strangers.gallery.data import VOCABULARY, number_words, text
from strangers.gallery.language import gpt2_cproj, lora_model, lora_zero, t5_head, trunc_normal
from strangers.gallery.plain import linear_default, selu_gain, siren_first

LENGTH = 64  # tokens of a sequence
SIDE = 128  # pixels of the photograph's side
PRETRAINING = 300  # steps of the model that LoRA is applied to

Draw = Callable[[int], tuple[Any, Tensor]]  # seed of a batch -> inputs, targets


@dataclass(frozen=True)
class Files:
    """Where the data is that is not generated: CIFAR-10's `data_batch_1.bin`, LIBSVM's `letter.scale.bz2`."""

    cifar: Path
    letter: Path


@dataclass(frozen=True)
class Task:
    """What the networks of a case are trained on.

    Attributes:
        network: its size, in words.
        data: what it is trained on, in words.
        make: variant -> network, from torch's global random state.
        draw: seed -> a batch.
        steps: of training, each on a batch of its own.
        optimizers: names, the first being the one that is drawn.
    """

    network: str
    data: str
    make: Callable[[Variant], nn.Module]
    draw: Draw
    steps: int
    optimizers: tuple[str, ...] = ("adam",)
    loss: str = "cross-entropy"


def tasks(files: Files) -> Mapping[str, Task]:
    """One task a case, by the case's name."""
    library = "6 files of Python's standard library, 1,024 words"
    pictures = "CIFAR-10 at 16 × 16 pixels, batches of 32"
    letters = "letter (LIBSVM), batches of 128"
    images = partial(_pictures, files.cifar)
    points = partial(_letters, files.letter)
    both = ("adam", "sgd")
    dense = {"inputs": 16, "classes": 26}
    gpt2 = "GPT-2, 8 layers of width 128"
    return {
        "gpt2-cproj": Task(gpt2, f"{library}, 4 sequences of 64", lambda v: gpt2_cproj(v, 128), _few, 100),
        "trunc-normal": Task(gpt2, f"{library}, 4 sequences of 64", lambda v: trunc_normal(v, 128), _few, 100),
        "t5-head": Task("T5, 4 + 4 layers of width 128", f"{library}, 8 sequences of 64, half read, half written",
                        lambda v: t5_head(v, 128), _halves, 120),
        "depthwise-fan-out": Task("MobileNetV2, 5 blocks from width 16, batch normalisation in training mode",
                                  pictures, lambda v: depthwise_fan_out(v, 16), images, 300),
        "conv-xavier": Task("6 convolutions of width 32", pictures, lambda v: conv_xavier(v, 32), images, 300, both),
        "siren-first": Task("SIREN, 4 hidden layers of width 128", "a photograph of 128 × 128 pixels, 1,024 a batch",
                            lambda v: siren_first(v, 128), _photograph, 400, loss="mse"),
        "lora-zero": Task(f"4 layers of width 128, pretrained for {PRETRAINING} steps on source code, rank 8",
                          "documentation of Python, 8 sequences of 64", _lora, _prose, 150),
        "selu-gain": Task("20 layers of width 128", letters,
                          lambda v: selu_gain(v, 128, **dense), points, 600, both),
        "linear-default": Task("13 layers of width 128", letters,
                               lambda v: linear_default(v, 128, **dense), points, 600, both),
        "zero-module": Task("10 residual blocks of width 16", pictures,
                            lambda v: zero_module(v, 16), images, 300, both),
    }  # fmt: skip


def mean_loss(task: Task, model: nn.Module, inputs: Any, targets: Tensor) -> Tensor:
    """The loss that is trained on: its mean over examples and positions."""
    y = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    if task.loss == "mse":
        return F.mse_loss(y, targets)
    return F.cross_entropy(y.reshape(-1, y.shape[-1]), targets.reshape(-1))


def _library(seed: int) -> tuple[Tensor, Tensor]:
    return text(seed, batch=8, length=LENGTH)


def _few(seed: int) -> tuple[Tensor, Tensor]:
    return text(seed, batch=4, length=LENGTH)


def _halves(seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Half a sequence to read, and the other half to be written, one token after the other."""
    tokens, _ = text(seed, batch=8, length=LENGTH)
    read, write = tokens.chunk(2, 1)
    return {"input_ids": read, "decoder_input_ids": F.pad(write[:, :-1], (1, 0))}, write


def _prose(seed: int) -> tuple[Tensor, Tensor]:
    tokens = _topics()
    starts = torch.randint(len(tokens) - LENGTH - 1, (8,), generator=torch.Generator().manual_seed(seed))
    rows = torch.stack([tokens[start : start + LENGTH + 1] for start in starts])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


@cache
def _topics() -> Tensor:
    words = re.findall(r"\w+|[^\w ]", "\n".join(pydoc_data.topics.topics.values()))
    return number_words(words)


@cache
def _pretrained() -> dict[str, Tensor]:
    """A small language model of source code, without low-rank updates."""
    torch.manual_seed(1000)
    model = lora_model(128).requires_grad_(True)
    weights = [p for name, p in model.named_parameters() if "lora" not in name]
    optimizer = torch.optim.Adam(weights, lr=4**-4.5)
    for step in range(PRETRAINING):
        inputs, targets = _library(10_000 + step)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).reshape(-1, VOCABULARY), targets.reshape(-1)).backward()
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters() if "lora" not in name}


def _lora(variant: Variant) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        pretrained = _pretrained()
    model = lora_zero(variant, 128)
    model.load_state_dict(pretrained, strict=False)
    return model


def _pictures(file: Path, seed: int) -> tuple[Tensor, Tensor]:
    pictures, labels = _cifar(file)
    chosen = torch.randint(len(labels), (32,), generator=torch.Generator().manual_seed(seed))
    return pictures[chosen], labels[chosen]


@cache
def _cifar(file: Path) -> tuple[Tensor, Tensor]:
    rows = torch.from_numpy(np.fromfile(file, np.uint8).reshape(-1, 3073))
    pictures = F.avg_pool2d(rows[:, 1:].float().view(-1, 3, 32, 32), 2)
    return (pictures - pictures.mean()) / pictures.std(), rows[:, 0].long()


def _letters(file: Path, seed: int) -> tuple[Tensor, Tensor]:
    x, labels = _letter(file)
    chosen = torch.randint(len(labels), (128,), generator=torch.Generator().manual_seed(seed))
    return x[chosen], labels[chosen]


@cache
def _letter(file: Path) -> tuple[Tensor, Tensor]:
    lines = bz2.decompress(file.read_bytes()).decode().splitlines()
    x, labels = torch.zeros(len(lines), 16), torch.zeros(len(lines), dtype=torch.long)
    for row, line in enumerate(lines):
        label, *entries = line.split()
        labels[row] = int(label) - 1
        for entry in entries:
            column, value = entry.split(":")
            x[row, int(column) - 1] = float(value)
    return (x - x.mean(0)) / x.std(0), labels


def _photograph(seed: int) -> tuple[Tensor, Tensor]:
    chosen = torch.randint(SIDE * SIDE, (1024,), generator=torch.Generator().manual_seed(seed))
    places = torch.stack([chosen // SIDE, chosen % SIDE], 1) / (SIDE - 1) * 2 - 1
    return places, _hopper().view(-1, 1)[chosen]


@cache
def _hopper() -> Tensor:
    """The photograph that matplotlib's examples use, grey, standardised."""
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        grey = torch.from_numpy(image.imread(file, format="jpg").copy()).float().mean(-1)
    square = grey[: min(grey.shape), : min(grey.shape)]
    small = F.interpolate(square[None, None], (SIDE, SIDE), mode="area")[0, 0]
    return (small - small.mean()) / small.std()
