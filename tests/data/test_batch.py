"""Batches of every form that a model can be called with, and one sentence for every other."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.data.seeds import gaussians, stream
from hessdiag.data.stream import steps_first
from tests.networks import PLAIN, Net

X, T = torch.arange(12.0).view(4, 3), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(("inputs", "args", "kwargs"), [
    (X, 1, set()), ([X, X], 2, set()),
    ((X, None, 2.0), 3, set()), ({"a": X, "b": X, "scale": 2.0}, 0, {"a", "b", "scale"}),
])  # fmt: skip
def test_inputs_become_arguments(inputs, args: int, kwargs: set[str]) -> None:
    batch = Batch.of(inputs, T)
    if isinstance(inputs, dict):
        inputs["late"] = X  # a later change of the caller's dict does not matter
    assert (len(batch.args), set(batch.kwargs), batch.size) == (args, kwargs, 4)
    assert batch.targets is T


@pytest.mark.parametrize(("per", "method"), [("example", "exact"), ("batch", "probe")])
def test_every_form_gives_the_same_report(per: str, method: str) -> None:
    rule = lambda m, a, b=None, scale=1.0: m.layer(a if b is None else a + scale * b)  # noqa: E731
    model = Net(rule, layer=nn.Linear(3, 2, dtype=torch.float64))
    a, b = torch.randn(2, 5, 3, dtype=torch.float64)
    whole = hessdiag.diagnose(model, a + 0.5 * b, per=per, method=method, **PLAIN)
    forms = [(a, b, 0.5), [a, b, 0.5], {"a": a, "b": b, "scale": 0.5}, {"scale": 0.5, "a": a, "b": b}, (a + 0.5 * b,)]
    for inputs in forms:
        report = hessdiag.diagnose(model, inputs, per=per, method=method, **PLAIN)
        for one, other in zip(report.blocks, whole.blocks, strict=True):
            assert one.avg_sq_singular_value == pytest.approx(other.avg_sq_singular_value, rel=1e-10)
            assert (one.gamma, one.nu) == pytest.approx((other.gamma, other.nu), rel=1e-10)


@pytest.mark.parametrize(("inputs", "targets", "message"), [
    (3.0, None, "inputs are a float: pass a tensor or array, as of"), ("text", None, "inputs are a str"),
    ({}, None, "inputs hold no tensor"), ((), T, "inputs hold no tensor"),
    (torch.zeros(0, 3), None, "the batch is empty"), (torch.tensor(1.0), None, "inputs are sparse or one number"),
    (X, T[:3], r"shapes \(4, 3\), \(3,\): the first dimension must be the same batch"),
    ({"a": X, "b": X[:2]}, None, "first dimension must be the same batch"),
])  # fmt: skip
def test_what_is_no_batch_is_refused_in_one_sentence(inputs, targets: Tensor | None, message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=message) as caught:
        Batch.of(inputs, targets)
    assert "\n" not in str(caught.value)


def returns(turn: Callable[[Tensor], Any]) -> nn.Module:
    return Net(lambda m, x: turn(m.layer(x)), layer=nn.Linear(3, 2))


def test_missing_values_are_the_models_own_affair() -> None:
    holes = X.masked_fill(X > 0.5, torch.nan)
    filled = Net(lambda m, x: m.layer(x.nan_to_num()), layer=nn.Linear(3, 2))
    assert hessdiag.diagnose(filled, holes).blocks == hessdiag.diagnose(filled, holes.nan_to_num()).blocks
    for inputs, words in ((holes, "NaN, which the model does not replace"), (X.square() / 0, "infinite values")):
        with pytest.raises(hessdiag.HessdiagError, match=f"inputs hold {words}: clean the data first"):
            hessdiag.diagnose(returns(lambda y: y), inputs)


@dataclass
class Outputs:
    """What some libraries return."""

    scores: Tensor
    loss: Tensor


@pytest.mark.parametrize(("turn", "output"), [
    (lambda y: (2 * y, y), 1), (lambda y: [y, 2 * y], -2),
    (lambda y: {"logits": 2 * y, "pooled": y}, "pooled"), (lambda y: {7: y, 1: 2 * y}, 7),
    (lambda y: namedtuple("Pair", ["state", "logits"])(y, 2 * y), "state"), (lambda y: Outputs(y, 2 * y), "scores"),
    (lambda y: BaseModelOutputWithPooling(2 * y, y), "pooler_output"),
])  # fmt: skip
def test_an_output_is_picked_by_name_or_position(turn, output: str | int) -> None:
    plain, wrapped = returns(lambda y: y), returns(turn)
    wrapped.load_state_dict(plain.state_dict())
    for per, method in (("example", "exact"), ("batch", "probe")):
        picked = hessdiag.diagnose(wrapped, X, output=output, per=per, method=method)
        assert picked.blocks == hessdiag.diagnose(plain, X, per=per, method=method).blocks
    assert hessdiag.describe(wrapped, X, output=output).outputs == 2
    pair = Net(lambda m, x: (m.f(x), x[:, :1]), f=nn.Linear(X.shape[1], 2))  # of which a loss is a function
    assert hessdiag.describe(pair, X, loss=lambda y, _: y[0].mean()).outputs == 3


@pytest.mark.parametrize(("turn", "output", "message"), [
    (lambda y: {"a": y, "b": y}, None, r"returned a dict with 2 tensors over the examples \('a', 'b'\): wrap it so"),
    (lambda y: ((y,),), None, "returned a tuple without a tensor over the examples"),
    (lambda y: None, None, "returned None without a tensor over the examples"),
    (lambda y: y.sum(), None, r"shape \(\) for 2 examples.*if it is the loss, pass loss='model'"),
    (lambda y: torch.cat([y, y])[1:], None, r"shape \(3, 2\) for 2 examples"),
    (lambda y: y.argmax(1), None, "returned torch.int64 outputs"),
    (lambda y: y.half(), None, "returned torch.float16 outputs: switch autocast off"),
    (lambda y: (y, 2 * y), None,
        r"a tuple with 2 tensors over the examples \(0, 1\): wrap it so that it returns one.*name one, as in output=0"),
    (lambda y: (y, 2 * y), 2, "output 2: the model returned a tuple of 0, 1, name one of these"),
    (lambda y: (y, 2 * y), "logits", "output 'logits': the model returned a tuple of 0, 1"),
    (lambda y: {"a": y, "b": y}, "c", "output 'c': the model returned a dict of a, b, name one of these"),
    (lambda y: {"a": y, "b": (y,)}, "b", "output 'b' is a tuple: name one that is a tensor"),
    (lambda y: y, 0, "output 0: the model returned a single tensor, leave output out"),
])  # fmt: skip
def test_outputs_that_cannot_be_picked_are_one_sentence(turn, output, message: str) -> None:
    for measure in (hessdiag.diagnose, hessdiag.describe):
        with pytest.raises(hessdiag.HessdiagError, match=message) as caught:
            measure(returns(turn), X, output=output)
        assert "\n" not in str(caught.value)


def test_rows_of_one_step_after_the_other_are_those_of_examples_with_steps() -> None:
    found = []
    for turn in (lambda y: torch.cat([y, 2 * y]), lambda y: torch.stack([y, 2 * y], 1)):
        torch.manual_seed(0)
        found.append([b.avg_sq_singular_value for b in hessdiag.diagnose(returns(turn), X, method="exact").blocks])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize(("inputs", "targets", "dims"), [
    (torch.arange(12).view(6, 2), torch.arange(2, 14), 1),  # the next steps, flattened
    (torch.arange(12).view(6, 2), torch.arange(1, 13).view(6, 2), 0),  # those of a row
    (torch.arange(2.0).repeat(6, 1), torch.arange(2.0).repeat(6, 1), 0),
    ({"x": torch.zeros(6, 4), "n": torch.ones(4)}, torch.ones(4, 3), {"x": 1, "n": 0}),
    ((torch.zeros(6, 4), torch.zeros(3)), torch.ones(4), 0),
    (torch.zeros(6, 4), torch.ones(6), 0),
])  # fmt: skip
def test_targets_tell_where_inputs_have_their_examples(inputs, targets, dims) -> None:
    assert steps_first(inputs, targets) == dims


def test_pieces_have_all_examples_in_order_and_moving_a_batch_changes_floats_only() -> None:
    batch = Batch.of({"a": X, "scale": 2.0}, T)
    pieces = list(batch.chunks(3))
    assert [piece.size for piece in pieces] == [3, 1]
    assert torch.equal(torch.cat([piece.kwargs["a"] for piece in pieces]), X)
    assert torch.equal(torch.cat([piece.targets for piece in pieces]), T)
    assert [piece.kwargs["scale"] for piece in pieces] == [2.0, 2.0]
    assert [piece.size for piece in batch.chunks(100)] == [4]
    assert batch.narrow(1, 99).size == 3
    assert Batch.of((X, 1.0), None).narrow(0, 2).targets is None
    moved = Batch.of({"a": X, "index": T, "scale": 2.0}, T).to(torch.device("cpu"), torch.float64)
    assert moved.kwargs["a"].dtype == torch.float64
    assert moved.kwargs["index"].dtype == torch.int64
    assert moved.targets.dtype == torch.int64
    assert (moved.kwargs["scale"], moved.size) == (2.0, 4)
    args = Batch.of((X, T), X).to(torch.device("cpu"), torch.float64)
    assert [t.dtype for t in (*args.args, args.targets)] == [torch.float64, torch.int64, torch.float64]


def test_what_is_drawn_for_all_positions_belongs_to_their_examples() -> None:
    rule = lambda m, x: m.layer(x.flatten(0, 1) + torch.rand_like(x.flatten(0, 1))).view(x.shape)  # noqa: E731
    whole, y = Batch.of(torch.randn(3, 4, 3), None).with_noise(model := Net(rule, layer=nn.Linear(3, 3)))
    assert torch.allclose(whole.narrow(1, 3).run(model), y[1:3])


PURPOSES = ("network", "weights", "inputs", "targets", "loss", "probes of fc1.weight")


def numbers(seed: int, purpose: str) -> tuple[float, ...]:
    return tuple(torch.randn(8, generator=stream(seed, purpose), dtype=torch.float64).tolist())


def test_streams_are_those_of_earlier_versions_apart_and_uncorrelated() -> None:
    """A saved result names its seed: drawing other numbers from it would make every file irreproducible."""
    assert (stream(0, "loss").initial_seed(), stream(1, "weights").initial_seed()) == (1242056742, 3457768447)
    seeds = [*range(20), 2**32, 2**32 + 1, 2**63 - 1]
    assert len({numbers(*each) for each in product(seeds, PURPOSES)}) == len(seeds) * len(PURPOSES)
    assert numbers(1, "1/a") != numbers(11, "/a")
    draws = torch.stack([torch.randn(4000, generator=stream(0, purpose), dtype=torch.float64) for purpose in PURPOSES])
    assert (torch.corrcoef(draws) - torch.eye(len(PURPOSES))).abs().max() < 4 / 4000**0.5
    before = torch.get_rng_state()
    assert numbers(3, "loss") == numbers(3, "loss")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("high", [1, 5, 2**20])
def test_torch_ignores_high_bits_and_streams_do_not(high: int) -> None:
    """Adding `purpose << 32` to a seed gives the same numbers for all purposes (regression)."""
    low = torch.randn(4, generator=torch.Generator().manual_seed(7))
    also = torch.randn(4, generator=torch.Generator().manual_seed(7 + (high << 32)))
    assert torch.equal(low, also), "torch has changed: the hash to 32 bits can go"
    assert numbers(7, "loss") != numbers(7 + (high << 32), "loss")
    assert stream(7, "loss").initial_seed() < 2**32


@pytest.mark.parametrize("shape", [(3, 5), (4, 7, 9), (3, 2000)])
def test_an_example_is_given_the_same_alone(shape: tuple[int, ...]) -> None:
    assert torch.equal(gaussians(3, "test", [8], shape), gaussians(3, "test", [7, 8], shape)[:, 1:])


@pytest.mark.parametrize("shape", [(1, 10), (2, 1500), (2, 3000)])
def test_neighbours_that_share_a_stream_are_given_other_numbers(shape: tuple[int, ...]) -> None:
    """In whatever order, across the ends of streams, and also where each has one of its own."""
    numbers_of, every = [*range(400, 420), 3, 1000, 2], gaussians(0, "test", range(1001), shape)
    assert torch.equal(gaussians(0, "test", numbers_of, shape), every[:, numbers_of])
    rows = every.transpose(0, 1).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows)
    some = rows[:50, :10]
    assert (torch.corrcoef(rows.T[:10]) - torch.eye(10)).abs().max() < 5 / len(rows) ** 0.5
    assert some.std() == pytest.approx(1, abs=0.15)


def test_inputs_that_agree_about_no_number_of_examples_are_one_example() -> None:
    given, model = (X, torch.ones(2, 9)), Net(lambda m, x, e: m.a(x) * e.sum(), a=nn.Linear(3, 3))
    assert hessdiag.diagnose(model, given, T, quick=True).batch_size == 1
    with pytest.raises(hessdiag.HessdiagError, match=r"outputs \(4, 3\) and targets \(3,\) \(.*pass a target for each"):
        hessdiag.diagnose(model, given, T[:3], quick=True)
