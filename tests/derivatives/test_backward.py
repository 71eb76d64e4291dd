"""Jacobians of all blocks from passes back through a network, at once or a few at a time."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import block_vjps, trace_blocks, unit_cotangents
from hessdiag.network.blocks import find_blocks
from tests.networks import Multiplier, Net


def with_token() -> nn.Module:
    """A parameter that no layer reads is put before the sites, as a class token is."""
    seen = lambda m, x: torch.cat([m.token.expand(len(x), -1, -1), x], dim=1)  # noqa: E731
    rule = lambda m, x: m.head(torch.tanh(m.mix(seen(m, x))).mean(dim=1))  # noqa: E731
    return Net(rule, token=nn.Parameter(torch.randn(1, 1, 4)), mix=nn.Linear(4, 4), head=nn.Linear(4, 6))


def scaled_twice() -> nn.Module:
    """Its scalar multiplies in two places, and so does its layer."""
    rule = lambda m, x: m.scale(m.layer(torch.tanh(m.scale(m.layer(x)))))  # noqa: E731
    return Net(rule, layer=nn.Linear(3, 3), scale=Multiplier(1.5))


@pytest.mark.parametrize("examples", [1, 2, 3])
@pytest.mark.parametrize(
    ("make", "size", "structured"),
    [(with_token, (3, 4), [False, True, True, True, True]), (scaled_twice, (3,), None)],
)
def test_rows_are_those_that_autograd_gives(make, size, structured, examples: int) -> None:
    """Of parameters without a layer, and of a scalar that multiplies twice."""
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(examples, *size, dtype=torch.float64)
    blocks, _ = find_blocks(model)
    assert structured in (None, [block.structured for block in blocks])
    part = Batch.of(x, None)
    seen = trace_blocks(model, part, blocks)
    unit = unit_cotangents(seen.y.detach())
    for cotangents in (unit, torch.randn(5, *unit.shape[1:], dtype=torch.float64)):
        found = block_vjps(model, part, blocks, trace_blocks(model, part, blocks), cotangents)
        for block, jacobian in zip(blocks, found, strict=True):
            rows = jacobian.dense()
            for b, phi in product(range(examples), range(len(cotangents))):
                y = model(x[b : b + 1])[0]
                (want,) = torch.autograd.grad(y @ cotangents[phi, b], model.get_parameter(block.name))
                torch.testing.assert_close(rows.J[b, phi] * rows.size, want.flatten(), rtol=1e-12, atol=1e-14)


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
    torch.manual_seed(0)
    model, numbers = Residual(tied).double(), torch.randint(7, (3, 5))
    blocks = [block for block in find_blocks(model)[0] if not block.name.startswith("norms")]
    assert all(block.structured for block in blocks if block.kind != "scalar")
    part = Batch.of(numbers, None)
    cotangents = torch.randn(4, 3, 5, 7, dtype=torch.float64)
    seen = trace_blocks(model, part, blocks)
    whole = block_vjps(model, part, blocks, seen, cotangents)
    for jacobian, want in zip(block_vjps(model, part, blocks, seen, cotangents, at_once=3), whole, strict=True):
        torch.testing.assert_close(jacobian.gram(), want.gram())
