"""What a block of parameters is, in plain numbers; it needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

Kind = Literal["weight", "bias", "scalar"]


@dataclass(frozen=True, kw_only=True)
class BlockRecord:
    """One block of parameters: a weight matrix or kernel, a bias vector, or a learnable scalar.

    Attributes:
        name: the parameter's name in the model, as in `model.named_parameters()`.
        kind: `"weight"` (a matrix or kernel), `"bias"` or `"scalar"` (a learnable multiplier).
        layer: class name of the module that owns the parameter.
        shape, numel: shape of the parameter and its number of entries P.
        fan_in: input channels that one output channel reads (in_channels / groups).
        fan_out: output channels.
        kernel: spatial size of the kernel, `()` for a linear layer.
        groups: groups of a convolution, else 1.
    """

    name: str
    kind: Kind
    layer: str
    shape: tuple[int, ...]
    numel: int
    fan_in: int
    fan_out: int
    kernel: tuple[int, ...]
    groups: int

    @property
    def described(self) -> dict[str, Any]:
        """Return these fields by name, to hand on to another record of the same block."""
        return {f.name: getattr(self, f.name) for f in fields(BlockRecord)}
