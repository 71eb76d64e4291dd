"""Random networks: a description, names and numbers that print as one line and can be kept, and the strategy for it."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.random_layers import MIXING, OPERATIONS, Recall, Remember, Site, home, plain

STARTS = ("rows", "sequence", "signal", "image", "tokens")
ENDS = ("linear", "as it is", "one number", "zero head")
DATA = ("random", "random", "random", "random", "same", "zero")
LOSSES = ("random-quadratic", "cross-entropy", "mse", "mse at its optimum", "huber", "fourth power", "logsumexp")
MAX_ENTRIES = 40  # entries of a tensor for one example


@dataclass(frozen=True)
class RandomNetwork:
    """A network, its data and how it is measured."""

    start: str = "rows"  # what it reads
    operations: tuple[str, ...] = ()  # names from `random_layers`; those that do not fit where they come are left out
    seed: int = 0  # of all sizes, weights and data
    examples: int = 2
    end: str = "linear"  # after the operations
    data: str = "random"  # or the same for all examples, or zero
    loss: str = "random-quadratic"  # as `diagnose` has it, or one of `LOSSES`
    matrix: str = "ggn"
    per: str = "example"

    def build(self) -> tuple[nn.Module, Tensor]:
        torch.manual_seed(self.seed)
        draw = random.Random(self.seed)
        x = _inputs(self.start, self.examples, draw)
        if self.data == "same":
            x = x[:1].expand_as(x).clone()
        elif self.data == "zero":
            x = torch.zeros_like(x)
        site = Site(x, "sequence" if self.start == "tokens" else self.start, self.examples, draw)
        if self.start == "tokens":
            _extend(site, nn.Embedding(4, draw.randint(2, 3)))
        for name in self.operations:
            _append(site, name)
        _end(site, self.end)
        return Steps(site.made), x


class Steps(nn.Module):
    """Modules one after the other, with skip connections between some of them."""

    def __init__(self, steps: list[nn.Module]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)

    def forward(self, x: Tensor) -> Tensor:
        kept: Tensor | None = None
        for step in self.steps:
            if isinstance(step, Remember):
                kept = x
            elif isinstance(step, Recall):
                x = x + kept if kept is not None and kept.shape == x.shape else x
            else:
                x = step(x)
        return x


def _inputs(start: str, examples: int, draw: random.Random) -> Tensor:
    if start == "tokens":
        return torch.randint(4, (examples, draw.randint(2, 3)))
    dims = {"rows": 1, "sequence": 2, "signal": 2, "image": 3}[start]
    return torch.randn(examples, *(draw.randint(2, 3) for _ in range(dims)), dtype=torch.float64)


def _append(site: Site, name: str) -> None:
    """Append an operation, if it fits; some that mix examples need an even number of them, or more than one."""
    module = (OPERATIONS | MIXING)[name](site)
    if module is None:
        return
    try:
        _extend(site, module)
    except (RuntimeError, ValueError):
        if name not in MIXING:
            raise
        site.made.pop()


def _extend(site: Site, module: nn.Module) -> None:
    module.double()
    site.made.append(module)
    with torch.no_grad():
        if not isinstance(module, (Remember, Recall)):
            site.h = module(site.h)
    if site.h.numel() > MAX_ENTRIES * site.examples and site.layout == "image":
        small = site.h[0, 0].numel() <= 4
        _extend(site, nn.Conv2d(site.channels, 2, 1) if small else nn.AdaptiveAvgPool2d(2))
    elif site.h.numel() > MAX_ENTRIES * site.examples:
        _extend(site, nn.Linear(site.width, 1))


def _end(site: Site, end: str) -> None:
    if site.layout in ("time", "folded", "interleaved", "doubled"):
        _extend(site, home(site))
    outputs = site.h[0].numel()
    if end != "as it is" or outputs > 12 or not any(p.requires_grad for m in site.made for p in m.parameters()):
        _extend(site, nn.Sequential(nn.Flatten(), nn.Linear(outputs, 3)))
    if end == "zero head":
        _extend(site, nn.Linear(site.width, site.width))
        nn.init.zeros_(site.made[-1].weight)
    if end == "one number":
        _extend(site, plain(lambda h: h.sin().sum(1))(site))


@st.composite
def random_networks(draw: Any) -> RandomNetwork:
    """Most keep examples apart; in some an operation that mixes them stands somewhere."""
    operations = draw(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=7))
    if draw(st.integers(0, 4)) == 4:
        operations.insert(draw(st.integers(0, len(operations))), draw(st.sampled_from(sorted(MIXING))))
    return RandomNetwork(
        start=draw(st.sampled_from(STARTS)), operations=tuple(operations), seed=draw(st.integers(0, 99)),
        examples=draw(st.sampled_from([2, 3, 4, 1, 7])), end=draw(st.sampled_from(ENDS)),
        data=draw(st.sampled_from(DATA)), loss=draw(st.sampled_from(LOSSES)),
        matrix=draw(st.sampled_from(["ggn", "ggn", "hessian"])),
        per=draw(st.sampled_from(["example", "example", "batch"])),
    )  # fmt: skip
