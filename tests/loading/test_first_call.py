"""The dry run of a model: outputs, shapes and order from one call, and errors as the model itself raises them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.loading import first_call
from hessdiag.loading.first_call import try_model
from hessdiag.network.blocks import find_blocks
from tests.networks import Net

CALLS: list[int] = []


def crossed() -> nn.Module:
    """Runs its layers in another order than it holds them, notes the examples of its calls, and returns a dict."""

    def forward(m: Any, x: Tensor) -> dict[str, Tensor]:
        CALLS.append(len(x))
        return {"other": x, "logits": m.last(m.first(x).relu())}

    CALLS.clear()
    return Net(forward, last=nn.Linear(5, 3), first=nn.Linear(4, 5))


X = torch.randn(6, 4)


def test_outputs_shapes_order_and_a_description_come_from_one_call() -> None:
    model = crossed()
    dry = try_model(model, Batch.of(X, None), find_blocks(model)[0])
    assert CALLS == [2]
    assert torch.equal(dry.outputs.y, model(X[:2])["logits"])
    assert not dry.outputs.y.requires_grad
    assert [block.name for block in dry.blocks] == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert dry.shape.outputs == 3
    assert (dry.shape.layers["first"].inputs, dry.shape.layers["first"].outputs) == (4, 5)
    assert not model._forward_hooks
    assert len(try_model(model, Batch.of(X, None), examples=5).outputs.y) == 5
    CALLS.clear()
    assert [block.name for block in hessdiag.describe(model, X).blocks] == [
        "last.weight", "last.bias", "first.weight", "first.bias",
    ]  # fmt: skip
    assert CALLS == [2, 2]  # one shows whether the model draws random numbers


def test_errors_are_put_down_to_the_inputs_only_where_these_are_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    said = r"^model 'x' cannot read inputs of shape 6×3 \(RuntimeError: (addmm: )?mat1"
    with pytest.raises(HessdiagError, match=said):
        try_model(nn.Linear(4, 2), Batch.of(X[:, :3], None), name="model 'x'")

    def broken(*_: object) -> None:
        raise RuntimeError("a hook")

    monkeypatch.setattr(first_call, "run_dry", broken)
    with pytest.raises(RuntimeError, match=r"^a hook$"):
        try_model(nn.Linear(4, 2), Batch.of(X, None))


def test_a_model_that_runs_with_the_whole_batch_alone_is_told() -> None:
    """As an ensemble whose members share out the examples."""
    model = nn.Sequential(nn.Unflatten(0, (4, -1)), nn.Linear(3, 2), nn.Flatten(0, 1))
    with pytest.raises(HessdiagError, match=r"runs with 8 examples and not with 2 of them \(.*examples='one'"):
        try_model(model, Batch.of(torch.randn(8, 3), None))
