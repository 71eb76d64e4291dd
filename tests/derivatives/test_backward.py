"""Jacobians of all blocks from passes back through a network, at once or a few at a time."""

import pytest
import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import block_vjps
from hessdiag.network.blocks import find_blocks
from hessdiag.network.trace import owners_of, trace


class Residual(nn.Module):
    """Blocks on a sum, one of them called twice, and an embedding that also writes the outputs."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(4) for _ in range(3))
        self.wide = nn.ModuleList(nn.Linear(4, 6) for _ in range(3))
        self.back = nn.ModuleList(nn.Linear(6, 4) for _ in range(3))
        self.head = nn.Linear(4, 7, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.5))
        if tied:
            self.head.weight = self.words.weight
        self.again = tied

    def forward(self, numbers: Tensor) -> Tensor:
        h = self.words(numbers)
        for norm, wide, back in zip(self.norms, self.wide, self.back, strict=True):
            h = h + back(torch.tanh(wide(norm(h))))
        if self.again:
            h = h + self.back[0](torch.tanh(self.wide[1](h)))
        return self.head(self.scale * h)


@pytest.mark.parametrize("tied", [False, True])
def test_a_few_at_a_time_the_jacobians_are_those_of_one_pass(tied: bool) -> None:
    model, numbers = Residual(tied).double(), torch.randint(7, (3, 5))
    blocks = [block for block in find_blocks(model)[0] if not block.name.startswith("norms")]
    assert all(block.structured for block in blocks if block.kind != "scalar")
    part = Batch.of(numbers, None)
    cotangents = torch.randn(4, 3, 5, 7, dtype=torch.float64)
    seen = trace(model, part, owners_of(block for block in blocks if block.structured))
    whole = block_vjps(model, part, blocks, seen, cotangents)
    for jacobian, want in zip(block_vjps(model, part, blocks, seen, cotangents, at_once=3), whole, strict=True):
        torch.testing.assert_close(jacobian.gram(), want.gram())
