"""Multi-layer perceptrons by their widths."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from hessdiag.arguments import check_kind, check_whole


def mlp(widths: Sequence[int], *, bias: bool = True) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them; the first width is that of the flattened input.

    >>> [tuple(p.shape) for p in mlp([4, 3, 2]).parameters()]
    [(3, 4), (3,), (2, 3), (2,)]
    """
    check_kind("widths", widths, (list, tuple), "pass a list of widths, such as [784, 384, 64, 10]")
    for width in widths:
        check_whole("width", width, least=1)
    model = nn.Sequential(nn.Flatten())
    for number, (fan_in, fan_out) in enumerate(pairwise(widths), start=1):
        model.add_module(f"fc{number}", nn.Linear(fan_in, fan_out, bias=bias))
        if number < len(widths) - 1:
            model.add_module(f"relu{number}", nn.ReLU())
    return model
