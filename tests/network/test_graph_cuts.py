"""Where the way back through a network can rest."""

from itertools import chain

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.network.graph_cuts import cut, gradients_by_cut
from hessdiag.network.trace import Trace, backpropagate, trace


class Residual(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4)) for _ in range(blocks))
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return self.last(h)


class Dense(Residual):
    """Each block reads what all before it wrote."""

    def forward(self, x: Tensor) -> Tensor:
        written = [self.first(x)]
        for block in self.blocks:
            written.append(block(sum(written[1:], start=written[0])))
        return self.last(torch.stack(written).sum(dim=0))


def watched(model: nn.Module, x: Tensor) -> Trace:
    owners = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    return trace(model, Batch.of(x, None), owners)


def test_a_residual_network_is_cut_at_its_sums() -> None:
    torch.manual_seed(0)
    seen = watched(Residual(3), torch.randn(6, 3))
    found = cut(seen.y, [call.output_edge for call in seen.calls], [1] * len(seen.calls))
    names = [[seen.calls[place].owner for place in segment.places] for segment in found]
    assert sorted(chain(*names)) == sorted(call.owner for call in seen.calls)
    assert [segment.stop is None for segment in found] == [False] * (len(found) - 1) + [True]
    assert len(found) == 4  # the last layer, two blocks, and the first block with what is before


def test_where_all_is_read_later_there_is_no_cut_in_between() -> None:
    torch.manual_seed(0)
    seen = watched(Dense(3), torch.randn(6, 3))
    found = cut(seen.y, [call.output_edge for call in seen.calls], [1] * len(seen.calls))
    assert max(len(segment.places) for segment in found) >= 6


def test_stretches_are_no_smaller_than_asked() -> None:
    seen = watched(Residual(4), torch.randn(6, 3))
    sizes = [call.output_shape.numel() for call in seen.calls]
    found = cut(seen.y, [call.output_edge for call in seen.calls], sizes, least=100)
    assert all(sum(sizes[place] for place in segment.places) >= 100 for segment in found[:-1])
    assert 2 <= len(found) < 6


@pytest.mark.parametrize(("layer", "cuts"), [("last", 0), ("blocks.1.0", 2), ("first", 4)])
def test_where_a_parameter_is_read_no_more_is_cut(layer: str, cuts: int) -> None:
    model = Residual(3)
    seen = watched(model, torch.randn(6, 3))
    weight = get_gradient_edge(model.get_submodule(layer).weight)
    found = cut(seen.y, [weight, *(call.output_edge for call in seen.calls)], [0, *[1] * len(seen.calls)])
    assert len(found) == cuts + 1
    assert 0 in found[-1].places


@pytest.mark.parametrize("network", [Residual, Dense])
@pytest.mark.parametrize("at_once", [1, 3, 9])
def test_the_gradients_are_those_of_one_pass(
    network: type[Residual], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hessdiag.network.graph_cuts.LEAST", 1)
    torch.manual_seed(0)
    seen = watched(network(3).double(), torch.randn(6, 3, dtype=torch.float64))
    edges = {place: call.output_edge for place, call in enumerate(seen.calls)}
    v = torch.randn(7, 6, 2, dtype=torch.float64)
    whole, count = backpropagate(seen.y, [*edges.values()], v), 0
    for found in gradients_by_cut(seen.y, edges, dict.fromkeys(edges, 1), v, at_once=at_once):
        for place, gradient in found.items():
            torch.testing.assert_close(gradient, whole[place])
            count += 1
    assert count == len(edges)


def test_what_no_gradient_reaches_gets_none() -> None:
    y = torch.ones(2, 3)
    assert list(gradients_by_cut(y, {}, {}, torch.ones(1, 2, 3))) == [{}]
