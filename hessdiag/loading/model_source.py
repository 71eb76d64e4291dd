"""A network that can be built afresh, and what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hessdiag.errors import HessdiagError


class RandomInputs(Protocol):
    """Draws what a network reads."""

    @property
    def description(self) -> str:
        """As a report has it, such as `"random normal"`."""
        ...

    def __call__(self, count: int, generator: torch.Generator) -> Tensor | dict[str, Tensor]:
        """Inputs for `count` examples, on the CPU."""
        ...


@dataclass(frozen=True)
class NormalInputs:
    """Numbers from N(0, 1): one tensor (B, *size), or the keyword argument `keyword`.

    Attributes:
        size: shape of one example.
        keyword: name of the network's argument; empty for the first one.
    """

    size: tuple[int, ...]
    keyword: str = ""
    description: str = "random normal"

    def __call__(self, count: int, generator: torch.Generator) -> Tensor | dict[str, Tensor]:
        """(B, *size) in float32.

        >>> NormalInputs((3, 8))(2, torch.Generator()).shape
        torch.Size([2, 3, 8])
        """
        x = torch.randn(count, *self.size, generator=generator)
        return {self.keyword: x} if self.keyword else x


@dataclass(frozen=True)
class TokenInputs:
    """Token ids, all equally likely apart from the padding, (B, length), as keyword arguments.

    Attributes:
        vocabulary: ids run from 0 to this, exclusive.
        length: tokens of one example.
        keywords: names of the network's arguments, each drawn anew.
        padding: id that is never drawn, because networks leave such positions out.
    """

    vocabulary: int
    length: int
    keywords: tuple[str, ...] = ("input_ids",)
    padding: int | None = None
    description: str = "random tokens"

    def __call__(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """(B, length) integers.

        >>> sorted(set(TokenInputs(3, 50, padding=1)(2, torch.Generator())["input_ids"].flatten().tolist()))
        [0, 2]
        """
        padding = self.vocabulary if self.padding is None or self.vocabulary < 2 else self.padding
        allowed = self.vocabulary - (0 <= padding < self.vocabulary)

        def draw() -> Tensor:
            ids = torch.randint(allowed, (count, self.length), generator=generator)
            return ids + (ids >= padding) if allowed < self.vocabulary else ids

        return {keyword: draw() for keyword in self.keywords}


@dataclass(frozen=True)
class Network:
    """A network and how to draw its inputs; None where nothing says what it reads."""

    module: nn.Module
    inputs: RandomInputs | None

    @property
    def input_size(self) -> tuple[int, ...] | None:
        """Shape of one example, for a network that reads numbers."""
        return self.inputs.size if isinstance(self.inputs, NormalInputs) else None


@dataclass(frozen=True)
class ModelSource:
    """A named network that can be built afresh.

    Attributes:
        name: as typed.
        build: makes a new network, with weights from torch's global random state.
    """

    name: str
    build: Callable[[], Network]


def check_module(module: Any, label: str) -> nn.Module:
    """Refuse what is not a network that holds numbers; without numbers only where the default device is meta.

    Raises:
        HessdiagError: it is no `nn.Module`, or has parameters without values.
    """
    if not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise HessdiagError(f"{label} returned {what}: return a torch.nn.Module, or (module, input_size)")
    for name, parameter in module.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise HessdiagError(f"{label} has a lazy parameter {name!r}: run the network once before returning it")
        if parameter.is_meta and torch.get_default_device().type != "meta":
            raise HessdiagError(f"{label} has {name!r} on the meta device: build it with numbers, on the CPU")
    return module
