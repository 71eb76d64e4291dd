"""One case of the gallery: a network that was repaired in public, and a healthy network to stay silent about."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

MODE = "eval"  # that all are measured in: some faults show there alone
Variant = Literal["before", "after"]
Batch = tuple[Any, Tensor]  # inputs as `hessdiag.diagnose` takes them, and targets
Build = Callable[[Variant, int], nn.Module]  # variant, width
Draw = Callable[[int], Batch]  # seed


@dataclass(frozen=True)
class Case:
    """A bug with its repair; the repair is the only difference between the two variants.

    Attributes:
        name: short, as in tables.
        make: (variant, width) -> network, from torch's global random state.
        draw: seed -> inputs and targets.
        guilty: patterns (fnmatch) of the parameters that the repair changes.
        source: address of the report.
        loss: as `hessdiag.diagnose` takes it.
        widths: three sizes to build it at.
    """

    name: str
    make: Build
    draw: Draw
    guilty: tuple[str, ...]
    source: str = ""
    loss: str = "cross-entropy"
    widths: tuple[int, int, int] = (256, 320, 384)

    def build(self, variant: Variant, *, seed: int = 0, width: int | None = None) -> nn.Module:
        """Build the network before or after the repair, in evaluation mode."""
        torch.manual_seed(seed)
        return self.make(variant, width or self.widths[0]).eval()

    def batch(self, *, seed: int = 0) -> Batch:
        """Draw inputs and targets."""
        return self.draw(seed)


@dataclass(frozen=True)
class Healthy:
    """A network that trains well.

    Attributes:
        name: short, as in tables.
        make: builds it from torch's global random state.
        draw: seed -> inputs and targets.
        loss: as `hessdiag.diagnose` takes it.
        note: what about it looks odd on purpose.
    """

    name: str
    make: Callable[[], nn.Module]
    draw: Draw
    loss: str = "cross-entropy"
    note: str = ""

    def build(self, *, seed: int = 0) -> nn.Module:
        """Build the network in evaluation mode."""
        torch.manual_seed(seed)
        return self.make().eval()

    def batch(self, *, seed: int = 0) -> Batch:
        """Draw inputs and targets."""
        return self.draw(seed)


def match(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a parameter's name is one of the guilty."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
