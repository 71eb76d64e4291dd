"""What displacements of rank one move, by hooks and by the weights' tangents."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from hessdiag.curvature import range_finder
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import trace_blocks
from hessdiag.derivatives.losses import MeanSquaredError
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks
from hessdiag.network.preserve import preserve_state
from hessdiag.network.trace import trace
from tests.networks import BUILDERS, build


def grouped() -> tuple[nn.Module, Tensor]:
    layers = (nn.Conv2d(4, 6, 3, groups=2, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2), nn.Flatten())
    return nn.Sequential(*layers).double(), torch.randn(3, 4, 5, 5, dtype=torch.float64)


def tied() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Embedding(11, 4), nn.Tanh(), nn.Linear(4, 11, bias=False)).double()
    model[2].weight = model[0].weight
    return model, torch.randint(11, (3, 5))


def normalised() -> tuple[nn.Module, Tensor]:
    """Of a few channels, with statistics and scales of its own, in evaluation mode."""
    layers = (nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.BatchNorm2d(6, affine=False))
    model = nn.Sequential(*layers, nn.Conv2d(6, 2, 3), nn.Flatten()).double()
    model(2 * torch.randn(20, 3, 7, 7, dtype=torch.float64) + 1)
    nn.init.normal_(model[1].weight)
    return model.eval(), torch.randn(2, 3, 7, 7, dtype=torch.float64)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "grouped": grouped,
    "tied": tied,
    "normalised": normalised,
}


def samples(model: nn.Module, x: Tensor, count: int) -> Tensor:
    torch.manual_seed(0)
    batch = Batch.of(x, None)
    called = {call.owner for call in trace(model, batch, [path for path, _ in model.named_modules()]).calls}
    ruled = [replace(b, structured=b.structured and called.issuperset(b.owners)) for b in find_blocks(model)[0]]
    blocks = [replace(b, structured=True) if b.kind == "scalar" else b for b in ruled]  # attention calls no projection
    problem = Problem(model, batch, MeanSquaredError(), blocks)
    scales = [1.0 + i for i in range(len(blocks))]
    generator = torch.Generator().manual_seed(0)
    with preserve_state(model, seed=0):
        moved = range_finder._samples(problem, batch, trace_blocks(model, batch, blocks), count, scales, generator)
        return torch.stack(list(moved))


@pytest.mark.parametrize("name", [*BUILDERS, *NETWORKS])
def test_what_layers_write_more_moves_the_outputs_as_their_weights_do(name: str, monkeypatch) -> None:
    model, x = NETWORKS[name]() if name in NETWORKS else build(name)
    moved_outputs, by_hooks = range_finder.moved_outputs, []

    def noted(*args):
        by_hooks.append(moved_outputs(*args))
        return by_hooks[-1]

    monkeypatch.setattr(range_finder, "moved_outputs", noted)
    found = samples(model, x, 5)
    assert len(by_hooks) == 1
    assert by_hooks[0] is not None
    monkeypatch.setattr(range_finder, "moved_outputs", lambda *_: None)
    expected = samples(model, x, 5)
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


def test_the_hooks_are_gone_afterwards() -> None:
    model, x = grouped()
    samples(model, x, 2)
    assert not any(module._forward_hooks for module in model.modules())
