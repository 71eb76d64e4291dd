"""Jacobians of all blocks from passes back through a network, at once or a few at a time."""

import pytest
import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import block_vjps, trace_blocks, unit_cotangents
from hessdiag.network.blocks import find_blocks


class WithToken(nn.Module):
    """A parameter that no layer reads is put before the sites, as a class token is."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 6)

    def forward(self, x):
        seen = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        return self.head(torch.tanh(self.mix(seen)).mean(dim=1))


@pytest.mark.parametrize("examples", [1, 2, 3])
def test_parameters_without_a_layer_have_the_rows_that_autograd_gives(examples: int) -> None:
    model, x = WithToken().double(), torch.randn(examples, 3, 4, dtype=torch.float64)
    blocks, _ = find_blocks(model)
    assert [block.structured for block in blocks] == [False, True, True, True, True]
    cotangents = torch.randn(5, examples, 6, dtype=torch.float64)
    part = Batch.of(x, None)
    found = block_vjps(model, part, blocks, trace_blocks(model, part, blocks), cotangents)
    for block, jacobian in zip(blocks, found, strict=True):
        for b in range(examples):
            for c in range(5):
                y = model(x[b : b + 1])[0]
                (want,) = torch.autograd.grad(y @ cotangents[c, b], model.get_parameter(block.name))
                rows = jacobian.dense()
                torch.testing.assert_close(rows.J[b, c] * rows.size, want.flatten(), rtol=1e-12, atol=1e-14)


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


class Scale(nn.Module):
    """Multiplies by a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class ScaledTwice(nn.Module):
    """Its scalar multiplies in two places, and so does its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 3), Scale()

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(self.layer(torch.tanh(self.scale(self.layer(x)))))


@pytest.mark.parametrize("examples", [1, 3])
def test_a_scalar_that_multiplies_twice_has_the_rows_that_autograd_gives(examples: int) -> None:
    torch.manual_seed(0)
    model, x = ScaledTwice().double(), torch.randn(examples, 3, dtype=torch.float64)
    blocks, _ = find_blocks(model)
    assert [block.kind for block in blocks] == ["weight", "bias", "scalar"]
    part = Batch.of(x, None)
    seen = trace_blocks(model, part, blocks)
    found = block_vjps(model, part, blocks, seen, unit_cotangents(seen.y.detach()))
    for block, jacobian in zip(blocks, found, strict=True):
        rows = jacobian.dense()
        for b in range(examples):
            y = model(x[b : b + 1])[0]
            for c in range(3):
                (want,) = torch.autograd.grad(y[c], model.get_parameter(block.name), retain_graph=True)
                torch.testing.assert_close(rows.J[b, c] * rows.size, want.flatten())
