"""A stream of batches, of whatever sizes, gives what all of its examples together give."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessdiag
from tests.networks import Net, build, having

RAGGED = (3, 1, 2)


def ragged(*tensors: torch.Tensor):
    return zip(*(t.split(list(RAGGED)) for t in tensors), strict=True)


def assert_alike(streamed: hessdiag.Report, whole: hessdiag.Report, *, rtol: float = 1e-10) -> None:
    np.testing.assert_allclose(streamed.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=rtol)
    largest = max(block.nu for block in whole.weights)
    for a, b in zip(streamed.blocks, whole.blocks, strict=True):
        if b.nu < 1e-20 * largest:  # zero up to rounding
            continue
        for key in ("avg_sq_singular_value", "gamma", "gamma_intrinsic", "activation_scaling", "nu", "ratio"):
            np.testing.assert_allclose(getattr(a, key), getattr(b, key), rtol=rtol, err_msg=f"{a.name} {key}")
        assert (a.sites_in, a.sites_out) == (b.sites_in, b.sites_out)
    assert streamed.batch_size == whole.batch_size


# Every form of a Jacobian, and what has none.
@pytest.mark.parametrize("network", [
    "mlp", "conv groups", "rows merged", "tied", "multiplier", "unused", "lstm", "attention", "groupnorm",
])  # fmt: skip
def test_ragged_batches_weigh_by_their_examples(network: str) -> None:
    model, x = build(network, batch=sum(RAGGED))
    for per, batches in (("example", len(RAGGED)), ("batch", 1)):
        options = {"per": per, "mode": "eval", "method": "exact", "signals": False}
        streamed = hessdiag.diagnose(model, ((part, None) for (part,) in ragged(x)), **options)
        assert_alike(streamed, hessdiag.diagnose(model, x, **options), rtol=1e-8)
        assert streamed.batches == batches


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_targets_stream_with_the_inputs(loss: str) -> None:
    model, x = build("mlp", batch=sum(RAGGED))
    t = torch.randint(3, (len(x),)) if loss == "cross-entropy" else torch.randn(len(x), 3, dtype=torch.float64)
    whole = hessdiag.diagnose(model, x, t, loss=loss)
    assert_alike(hessdiag.diagnose(model, ragged(x, t), loss=loss), whole)
    assert_alike(hessdiag.diagnose(model, DataLoader(TensorDataset(x, t), batch_size=4), loss=loss), whole)
    as_arguments = [{"input": part} for (part,) in ragged(x)]
    assert_alike(hessdiag.diagnose(model, as_arguments), hessdiag.diagnose(model, x))


def test_a_stream_is_read_once_and_its_sampled_blocks_are_within_their_error_bars() -> None:
    model, x = build("mlp", batch=6)
    alive, steps = [], []

    def stream():
        for part in x.split(2):
            alive.append(len(alive))
            yield part

    hessdiag.diagnose(model, stream(), progress=lambda step: steps.append((step, len(alive))))
    assert len(alive) == 3
    assert [read for step, read in steps if step == "moments"] == [1, 2, 3]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 40)).double()
    x = torch.randn(9, 20, dtype=torch.float64)
    exact = hessdiag.diagnose(model, x)
    sketched = {"method": "sketch", "rtol": 0.1, "seed": 1, "progress": steps.append}
    for options in (sketched, {"method": "probe", "rtol": 0.2}):
        streamed = hessdiag.diagnose(model, iter(x.split([5, 1, 3])), **options)
        error = np.abs(streamed.heatmap.frobenius_sq - exact.heatmap.frobenius_sq)
        assert (error <= 4 * streamed.heatmap.stderr).all()
        assert {block.ended for block in streamed.weights} == {"rtol"}
    assert steps.count("bases") == 3 * 8


@pytest.mark.parametrize(("batches", "says"), [
    ([], "inputs hold no tensor"),
    (iter([]), "inputs: there is no batch"),
    (iter([torch.ones(2, 4), torch.ones(2, 5)]), r"targets of shapes \[\(5,\)\], those before \[\(4,\)\]"),
    (iter([torch.ones(2, 4), torch.full((2, 4), torch.nan)]), "inputs: inputs hold NaN"),
    (iter([torch.ones(2, 4), torch.ones(2, 4).double()]), "model and inputs are in float32 and float64"),
    (iter([torch.ones(2, 4), 3]), "inputs: inputs are an int"),
    (iter([(torch.ones(2, 4), torch.ones(3))]), "the first dimension must be the same batch"),
    (3, "inputs are an int"),
    ("data", "inputs are a str"),
])  # fmt: skip
def test_what_is_no_stream_of_batches_is_refused(batches, says: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=says):
        hessdiag.diagnose(nn.Linear(4, 3), batches)


def test_later_batches_are_checked_for_targets_and_for_another_path() -> None:
    later = [(torch.ones(2, 4), torch.tensor([0, 1])), (torch.ones(2, 4), torch.tensor([0, 7]))]
    with pytest.raises(hessdiag.HessdiagError, match="targets hold classes 0 to 7"):
        hessdiag.diagnose(nn.Linear(4, 3), iter(later), loss="cross-entropy")
    with pytest.raises(hessdiag.HessdiagError, match="let every batch be"):
        hessdiag.diagnose(nn.Linear(4, 3), iter(later), torch.tensor([0, 1]))
    # It uses a layer's weight in another way once the inputs are large.

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(x)
        return m.last(h + x @ m.first.weight if bool(x.max() > 10) else h)

    torch.manual_seed(0)
    model, x = Net(forward, first=nn.Linear(4, 4), last=nn.Linear(4, 3)), torch.randn(3, 4)
    with pytest.raises(hessdiag.HessdiagError, match=r"block 'first.weight' is used in another way from example 3 on"):
        hessdiag.diagnose(model, iter([x, 100 * x]))


def rare(as_layer: bool) -> nn.Module:
    """A layer whose weight an unusual example uses a second time, behind the layer's back."""

    def forward(m: Any, x: Tensor) -> Tensor:
        weight = m.first.weight
        read = m.first(x) if as_layer else F.linear(x, weight)
        return m.last(torch.tanh(read + torch.where(x[:, :1] > 5, F.linear(x, weight.square()), 0)))

    torch.manual_seed(0)
    layers = {"first": nn.Linear(4, 5, bias=False), "last": nn.Linear(5, 3)}
    first = layers["first"] if as_layer else having(nn.Module(), weight=layers["first"].weight)
    return Net(forward, **layers | {"first": first}).double()


@pytest.mark.parametrize("options", [{}, {"method": "sketch"}, {"per": "batch"}])
def test_a_path_that_one_example_takes_is_found(options: dict[str, object]) -> None:
    x, t = torch.randn(80, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64), torch.arange(80) % 3
    x[44, 0] = 6.0  # the unusual one
    found, expected = (hessdiag.diagnose(rare(how), x, t, loss="cross-entropy", **options) for how in (True, False))
    for key in ("avg_sq_singular_value", "nu"):
        one, other = ({block.name: getattr(block, key) for block in report.blocks} for report in (found, expected))
        assert one == pytest.approx(other, rel=1e-9)


def test_too_little_memory_is_refused_with_what_would_do_and_no_bound_is_no_refusal(monkeypatch) -> None:
    model, x = nn.Sequential(nn.Linear(400, 500), nn.ReLU(), nn.Linear(500, 5)), torch.randn(20, 400)
    with pytest.raises(hessdiag.HessdiagError, match="max_memory 1MiB: gradients of") as refused:
        hessdiag.diagnose(model, x, max_memory="1MiB")
    told = re.search(r"take about (\d+MiB)", str(refused.value))
    assert told is not None
    assert hessdiag.diagnose(model, x, max_memory=told[1]).blocks
    monkeypatch.setattr("hessdiag.data.memory.free_memory", lambda device: 2**20)
    assert hessdiag.diagnose(nn.Linear(400, 500), torch.randn(3, 400), method="sketch").blocks
