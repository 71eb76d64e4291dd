from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import hessdiag
from hessdiag.calculus.graph import trace_graph
from hessdiag.calculus.moments import example_inputs
from tests.kinds import KINDS, REFUSED
from tests.networks import Net

REFUSES = "moves,packed sequence,branches,branches on the batch,physics informed,lazy,no outputs,compiled by torch.jit"


@pytest.mark.parametrize("name", [*KINDS, *REFUSED])
def test_every_kind_of_network_is_predicted_as_far_as_rules_go_or_refused(name):
    kind = KINDS.get(name) or REFUSED[name][0]
    model = kind.make().double()
    with pytest.raises(hessdiag.HessdiagError) if name in REFUSES.split(",") else nullcontext():
        found = hessdiag.predict(model, kind.inputs(), loss="mse")
        assert {b.name for b in found.blocks} | dict(found.skipped).keys() == {n for n, _ in model.named_parameters()}
        args, kwargs, _ = example_inputs(model, kind.inputs())
        graph = trace_graph(model, args, kwargs)
        assert graph.batch == len(tree_leaves((args, kwargs))[0])
        assert set(graph.parameters.values()) <= {n for n, _ in model.named_parameters(remove_duplicate=False)}
        assert graph.operations


def test_operations_know_their_place():
    graph = trace_graph(nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2))), (torch.zeros(2, 3),))
    assert [(o.target, o.place, o.layer, o.shape) for o in graph.operations] == [
        ("aten.linear", "0", "Linear", (2, 4)), ("aten.tanh", "1.0", "Tanh", (2, 4)),
        ("aten.linear", "1.1", "Linear", (2, 2)),
    ]  # fmt: skip


def test_what_cannot_be_traced_is_refused_in_one_line_and_a_slice_written_in_place_named() -> None:
    with pytest.raises(hessdiag.HessdiagError, match=r"cannot trace Net with torch\.export") as caught:
        trace_graph(Net(lambda m, x: x if x.sum() > 0 else -x), (torch.ones(2, 3),))
    assert "\n" not in str(caught.value)
    with pytest.raises(hessdiag.HessdiagError):
        trace_graph(writes(lambda y: {"text": "no tensor"}), (torch.ones(2, 4),))

    def write(y):
        out = y.clone()
        out[:, :2] = 0
        return out

    ((place, _),) = hessdiag.predict(writes(write), (4,)).unsupported
    assert "aten.fill" in place


def writes(write):
    """A layer, and something written in place to what it returns."""
    return Net(lambda m, x: write(m.layer(x)), layer=nn.Linear(4, 4, bias=False))


def _halved_through_a_view(y):
    y.view(-1).mul_(0.5)  # the result is never read
    return y


@pytest.mark.parametrize(("write", "where"), [(lambda y: y.mul_(0.5), "meta"), (_halved_through_a_view, "cpu")])
def test_what_is_written_in_place_is_read_afterwards(write, where):
    with torch.device(where):
        model = nn.Sequential(writes(write), nn.Linear(4, 3, bias=False))
    first, last = hessdiag.predict(model, (4,), init="fan-in").blocks
    assert last.x_sq == pytest.approx(first.out_sq / 4)
    graph = trace_graph(model, (torch.zeros(2, 4, device=where),))
    assert not any(operation.target.endswith("_") for operation in graph.operations)
    assert {operation.place for operation in graph.operations} == {"0.layer", "0", "1"}


def test_a_model_that_writes_to_its_inputs_and_buffers():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout1d(0.5)).train()
    graph = trace_graph(model, (torch.zeros(2, 4),))
    outputs = {operation.name: operation.place for operation in graph.operations}
    assert outputs[graph.output.name] == "3"
    copied = nn.Sequential(nn.ReLU(), *list(model)[1:]).train()  # nothing is written to but counters
    found = [hessdiag.predict(each, (4,), init="fan-in", moments="kernel").blocks for each in (model, copied)]
    gammas = [[block.gamma for block in blocks] for blocks in found]
    assert gammas[0] == pytest.approx(gammas[1], rel=1e-12)


def test_both_vocabularies_give_the_same_prediction():
    """The layers that torch takes apart where something is written in place."""

    def build(inplace):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=inplace), nn.Dropout(0.2), nn.Dropout2d(0.3),
            nn.Conv2d(8, 8, 3, groups=2, padding="same"), nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.PixelShuffle(2),
            nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.LayerNorm(18), nn.GELU(), nn.Unflatten(1, (2, 9)),
            nn.Linear(9, 4), nn.PReLU(), nn.Flatten(), nn.Linear(8, 3),
        )  # fmt: skip

    with torch.device("meta"):
        models = [build(inplace) for inplace in (True, False)]
    apart, whole = (hessdiag.predict(model, (3, 10, 10), init="fan-in") for model in models)
    assert not apart.unsupported
    for mine, other in zip(apart.blocks, whole.blocks, strict=True):
        assert mine.gamma == pytest.approx(other.gamma, rel=1e-12, nan_ok=True), mine.name
