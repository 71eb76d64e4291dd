"""What a model keeps of its weights is computed anew from others, and is there again afterwards."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import FunctionalModel
from hessdiag.network.preserve import caches_of, emptied
from tests.networks import Net
from tests.unchanged import unchanged


def keeping(m: Any, x: Tensor) -> Tensor:
    """Keeps what it computed of its weight, as biases of attention are by position."""
    if "cubed" not in m.cache:
        m.cache["cubed"] = m.layer.weight**3
    return m.last(F.linear(x, m.cache["cubed"]).tanh())


def anew(m: Any, x: Tensor) -> Tensor:
    """The same without keeping."""
    m.cache.clear()
    return keeping(m, x)


def of(rule: Callable[[Any, Tensor], Tensor] = keeping) -> nn.Module:
    torch.manual_seed(0)
    layers = {"layer": nn.Linear(3, 3, bias=False), "last": nn.Linear(3, 2)}
    return Net(rule, **layers, cache=OrderedDict(), names={"of": "layers"}).double()


X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3).sin()


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
@pytest.mark.parametrize("called_before", [False, True])
def test_weights_behind_a_cache_are_measured(matrix: str, called_before: bool) -> None:
    model = of()
    if called_before:
        model(X)
    held = dict(model.cache)
    with unchanged(model, X):
        report = hessdiag.diagnose(model, X, matrix=matrix, method="exact")
    assert list(model.cache.items()) == list(held.items())
    expected = hessdiag.diagnose(of(anew), X, matrix=matrix, method="exact")
    assert not report.skipped
    assert [block.name for block in report.blocks] == [block.name for block in expected.blocks]
    values = [[b.avg_sq_singular_value for b in each.blocks] for each in (report, expected)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_functions_of_the_weights_read_no_cache_and_other_dicts_stay_as_they_are() -> None:
    model = of()
    expected = model(X)
    held: Any = model.cache["cubed"]
    function = FunctionalModel(model)
    double = {"layer.weight": 2 * model.layer.weight.detach()}
    gradient = grad(lambda at: function(at, Batch.of(X, None)).sum())(double)
    assert gradient["layer.weight"].norm() > 0
    assert model.cache["cubed"] is held
    assert torch.equal(model(X), expected)
    model = of()
    model.cache["table"] = torch.ones(2)
    model(X)
    caches = caches_of(model)
    with emptied(caches):
        assert set(model.cache) == {"table"}
        assert model.names == {"of": "layers"}
        model.cache["new"] = torch.ones(1)
    assert list(model.cache) == ["table", "cubed"]
