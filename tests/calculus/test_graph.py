import pytest
import torch
from torch import nn

from hessdiag.calculus.graph import trace_graph
from hessdiag.errors import HessdiagError
from tests.networks import BUILDERS, build


@pytest.mark.parametrize("name", BUILDERS)
def test_every_network_of_the_tests_can_be_traced(name):
    model, x = build(name, batch=2)
    graph = trace_graph(model, (x,))
    assert graph.batch == 2
    assert set(graph.parameters.values()) <= {n for n, _ in model.named_parameters(remove_duplicate=False)}
    assert graph.operations


def test_operations_know_their_place():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    graph = trace_graph(model, (torch.zeros(2, 3),))
    assert [(o.target, o.place, o.layer, o.shape) for o in graph.operations] == [
        ("aten.linear", "0", "Linear", (2, 4)),
        ("aten.tanh", "1.0", "Tanh", (2, 4)),
        ("aten.linear", "1.1", "Linear", (2, 2)),
    ]


def test_the_meta_device_allocates_nothing():
    with torch.device("meta"):
        model = nn.Linear(10**6, 10**6)  # 4 TB
    assert trace_graph(model, (torch.empty(2, 10**6, device="meta"),)).operations[0].shape == (2, 10**6)


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class TwoOutputs(nn.Module):
    def forward(self, x):
        return {"text": "no tensor"}


def test_a_model_that_looks_at_its_numbers_is_refused_in_one_line():
    with pytest.raises(HessdiagError, match=r"cannot trace Branches with torch\.export") as caught:
        trace_graph(Branches(), (torch.ones(2, 3),))
    assert "\n" not in str(caught.value)


def test_a_model_without_a_tensor_is_refused():
    with pytest.raises(HessdiagError):
        trace_graph(TwoOutputs(), (torch.ones(2, 3),))
