"""Every form in which a function may give a batch; the dry run of a model, and errors as the model raises them."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.data.stream import Tally
from hessdiag.errors import HessdiagError
from hessdiag.loading.prepare import read_batches
from hessdiag.loading.user_code import NamedFunction
from hessdiag.network import trace
from hessdiag.network.blocks import find_blocks
from hessdiag.network.trace import try_model
from tests.networks import Net

X, T = torch.randn(6, 4), torch.randint(3, (6,))


def read(content, batch_size: int = 5):
    function = NamedFunction("--data", "d:f", lambda: content)
    return next(read_batches(function, batch_size=batch_size, most=1, tally=Tally()))


@pytest.mark.parametrize(("content", "most", "expected"), [
    (X, 1, (1, 1)), ([X, X, X], 1, (1, 3)), ([X, X, X], None, (3, 3)),
    (DataLoader(TensorDataset(X, T), batch_size=2), 1, (1, 3)),
    (TensorDataset(X, T), 1, (1, 2)),  # of five
    (iter([X, X, X]), 2, (2, None)),
])  # fmt: skip
def test_batches_are_counted(content: object, most: int | None, expected: tuple[int, int | None]) -> None:
    tally = Tally()
    function = NamedFunction("--data", "d:f", lambda: content)
    assert len(list(read_batches(function, batch_size=5, most=most, tally=tally))) == expected[0]
    assert (tally.read, tally.given) == expected


class Stream(IterableDataset):
    def __iter__(self):
        return iter(X)


@pytest.mark.parametrize(("content", "targets"), [
    (X, None), ((X, T), T), ((X, None), None), ([(X, T), (X, T)], T), ([[X, T]], T),
    (DataLoader(TensorDataset(X, T), batch_size=6), T), (TensorDataset(X, T), T), (TensorDataset(X), None),
    (Stream(), None), ((batch for batch in [(X, T)]), T),
])  # fmt: skip
def test_every_form_gives_the_first_examples(content, targets: Tensor | None) -> None:
    batch = read(content)
    (inputs,) = batch.args
    assert torch.equal(inputs, X[:5])
    assert batch.size == 5
    assert batch.targets is None if targets is None else torch.equal(batch.targets, targets[:5])


def test_keyword_and_positional_inputs_and_no_later_batch() -> None:
    assert read(({"a": X, "scale": 2}, T)).kwargs.keys() == {"a", "scale"}
    assert read({"a": X}).targets is None
    assert len(read(((X, X), T)).args) == 2
    assert len(read((X, X, X)).args) == 3

    def endless():
        yield X.clone().requires_grad_() * 2
        raise AssertionError

    batch = read(endless())
    assert batch.size == 5
    assert not batch.args[0].requires_grad
    with pytest.raises(HessdiagError, match=r"--data .* missing a required argument: .path.: give it a default"):
        next(read_batches(NamedFunction("--data", "d:f", lambda path: X), batch_size=2, most=1, tally=Tally()))


def failing():
    yield from ()
    raise OSError("disk unplugged")


@pytest.mark.parametrize(("content", "message"), [
    (None, "inputs are None: pass a tensor"),
    (X.numpy().astype(object), "inputs are a ndarray: pass a tensor or array, as of"),
    ([], "there is no batch: give a tensor"), ([3], "inputs are an int"), ((X, [1, 2]), "targets are a list"),
    ((X, T.numpy().astype(object)), "targets are a ndarray: .* torch"), (X.to(torch.complex64), "not dense and real"),
    (failing(), "raised OSError: disk unplugged"),
])  # fmt: skip
def test_what_is_no_batch_is_refused(content, message: str) -> None:
    with pytest.raises(HessdiagError, match=f"^--data 'd:f'.*{message}"):
        read(content)


def test_what_a_shuffling_loader_gives_follows_from_the_seed() -> None:
    rows = torch.utils.data.TensorDataset(torch.arange(40.0).unsqueeze(1))
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
    function = NamedFunction("--data", "d:f", lambda: loader)

    def read(seed: int) -> list[float]:
        torch.seed()
        before = torch.get_rng_state()
        found = list(read_batches(function, batch_size=8, most=None, tally=Tally(), seed=seed))
        assert torch.equal(torch.get_rng_state(), before)
        return [float(value) for batch in found for value in batch.args[0]]

    first = read(0)
    assert sorted(first) == list(range(40))
    assert first == read(0)
    assert first != read(1)


def test_outputs_shapes_order_and_a_description_come_from_one_call() -> None:
    """Of a model that runs its layers in another order than it holds them, and returns a dict."""
    calls: list[int] = []  # examples of each

    def forward(m: Any, x: Tensor) -> dict[str, Tensor]:
        calls.append(len(x))
        return {"other": x, "logits": m.last(m.first(x).relu())}

    model = Net(forward, last=nn.Linear(5, 3), first=nn.Linear(4, 5))
    dry = try_model(model, Batch.of(X, None), find_blocks(model)[0])
    assert calls == [2]
    assert torch.equal(dry.outputs.y, model(X[:2])["logits"])
    assert not dry.outputs.y.requires_grad
    assert [block.name for block in dry.blocks] == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert dry.shape.outputs == 3
    assert (dry.shape.layers["first"].inputs, dry.shape.layers["first"].outputs) == (4, 5)
    assert not model._forward_hooks
    assert len(try_model(model, Batch.of(X, None), examples=5).outputs.y) == 5
    calls.clear()
    assert [block.name for block in hessdiag.describe(model, X).blocks] == [
        "last.weight", "last.bias", "first.weight", "first.bias",
    ]  # fmt: skip
    assert calls == [2, 2]  # one shows whether the model draws random numbers


def test_errors_are_put_down_to_the_inputs_only_where_these_are_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    said = r"^model 'x' cannot read inputs of shape 6×3 \(RuntimeError: (addmm: )?mat1"
    with pytest.raises(HessdiagError, match=said):
        try_model(nn.Linear(4, 2), Batch.of(X[:, :3], None), name="model 'x'")
    monkeypatch.setattr(trace, "run_dry", Mock(side_effect=RuntimeError("a hook")))
    with pytest.raises(RuntimeError, match=r"^a hook$"):
        try_model(nn.Linear(4, 2), Batch.of(X, None))


def test_a_model_that_runs_with_the_whole_batch_alone_is_told() -> None:
    """As an ensemble whose members share out the examples."""
    model = nn.Sequential(nn.Unflatten(0, (9, -1)), nn.Linear(3, 2), nn.Flatten(0, 1))
    with pytest.raises(HessdiagError, match=r"runs with 18 examples and not with 2 of them \(.*examples='one'"):
        try_model(model, Batch.of(torch.randn(18, 3), None))
    assert hessdiag.diagnose(model, torch.randn(18, 3), torch.randn(18, 2), quick=True).batch_size == 1
