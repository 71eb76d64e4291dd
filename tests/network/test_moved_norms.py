"""Steps of normalisations have the gradient of their scales and shifts, example by example."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call, jvp

from hessdiag.data.batch import Batch
from hessdiag.network.hooks import Pieces, _at_once, backpropagate, trace
from hessdiag.network.moved_norms import MovedNorms

NETWORKS = {
    "convolutional": lambda: nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.GroupNorm(3, 6), nn.Flatten(), nn.LazyLinear(4)
    ),
    "tokens": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Flatten(), nn.LazyLinear(4)),
    "without a shift": lambda: nn.Sequential(nn.LayerNorm(6, bias=False), nn.Flatten(), nn.LazyLinear(4)),
}


def network(name: str) -> tuple[nn.Module, Tensor, dict[str, Tensor]]:
    """In evaluation mode with statistics of its own, and two directions of everything that is a vector."""
    torch.manual_seed(0)
    x = torch.randn(5, 2, 6, 6, dtype=torch.float64)
    model = NETWORKS[name]().double()
    model(x)
    for p in model.parameters():
        nn.init.normal_(p)
    vectors = [n for n, p in model.named_parameters() if p.dim() == 1 and "Norm" in str(model.get_submodule(n[0]))]
    held = dict(model.named_parameters())
    return model.eval(), x, {name: torch.randn(2, *held[name].shape, dtype=torch.float64) for name in vectors}


def steps_sent_back(model: nn.Module, x: Tensor, norms: MovedNorms, v: Tensor) -> Tensor:
    seen = trace(model, Batch.of(x, None), ["0"], norms=norms)
    assert seen.steps is not None
    edges = (
        [seen.calls[0].output_edge, get_gradient_edge(seen.steps)] if seen.calls else [get_gradient_edge(seen.steps)]
    )
    found = _at_once(seen.y, edges, v)[-1]  # all cotangents in one pass, without a way out
    assert found is not None
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_a_cotangent_of_the_steps_is_that_of_forward_mode(name: str) -> None:
    model, x, along = network(name)
    norms = MovedNorms.of(model, along)
    assert norms.names == set(along)
    v = torch.randn(3, len(x), 4, dtype=torch.float64)
    found = steps_sent_back(model, x, norms, v)  # (3, B, 2)
    at = {name: p.detach() for name, p in model.named_parameters() if name in along}
    for o in range(2):
        tangents = {name: u[o] for name, u in along.items()}
        _, moved = jvp(lambda values: functional_call(model, values, (x,)), (at,), (tangents,))
        torch.testing.assert_close(found[..., o], (v * moved).sum(dim=2))


def test_the_outputs_are_as_they_were_and_the_hooks_leave() -> None:
    model, x, along = network("convolutional")
    before = model(x)
    seen = trace(model, Batch.of(x, None), [], norms=MovedNorms.of(model, along))
    assert torch.equal(seen.y, before)
    assert not any(module._forward_hooks for module in model.modules())


def test_only_layers_that_are_torchs_own_are_moved() -> None:
    class Norm(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    model = nn.Sequential(Norm(3), nn.BatchNorm1d(3), nn.LayerNorm(3))  # the second one is in training mode
    along = {name: torch.ones(1, *p.shape) for name, p in model.named_parameters()}
    assert MovedNorms.of(model, along).names == {"2.weight", "2.bias"}


def test_what_two_layers_share_is_not_moved() -> None:
    model = nn.Sequential(nn.LayerNorm(3), nn.LayerNorm(3))
    model[1].weight = model[0].weight
    along = {name: torch.ones(1, *p.shape) for name, p in model.named_parameters()}
    assert MovedNorms.of(model, along).names == {"0.bias", "1.bias"}


def test_cotangents_in_pieces_are_those_of_one_pass() -> None:
    model, x, along = network("tokens")
    seen = trace(model, Batch.of(x, None), ["1", "4"], norms=MovedNorms.of(model, along))
    assert seen.steps is not None
    leaves = [get_gradient_edge(seen.steps), *(call.output_edge for call in seen.calls)]
    v = torch.randn(5, *seen.y.shape, dtype=torch.float64)
    for few, every in zip(
        backpropagate(seen.y, leaves, v, pieces=Pieces(2)), backpropagate(seen.y, leaves, v), strict=True
    ):
        torch.testing.assert_close(few, every)
    (of_outputs,) = backpropagate(seen.y, [seen.calls[-1].output_edge], v, pieces=Pieces(2))
    assert of_outputs is v  # there is nothing to send back, and no copy is made
