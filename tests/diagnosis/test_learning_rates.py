"""`hessdiag.learning_rates`: against plain autograd along virtual steps, what it leaves alone, and what it refuses."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from learning_rates import score
from torch import Tensor, nn
from torch.nn import functional

import hessdiag
from hessdiag import HessdiagError, learning_rates
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Loss, Reading, resolve_loss
from hessdiag.diagnosis import learning_rates as module
from hessdiag.diagnosis.learning_rates import FACTORS, AdamDirection, Along, Values, Walk, walked_rates
from tests.networks import Net
from tests.oracles import ggn_blocks, joined
from tests.unchanged import unchanged


def numbered(count: int, first: int = 0) -> Batch:
    return Batch.of(torch.arange(first, first + count).double().unsqueeze(1), None)


def numbers(batch: Batch) -> list[int]:
    return [int(value) for value in batch.args[0].flatten()]


def drawn(batches: list[Batch], batch_size: int, count: int) -> list[tuple[list[int], list[int]]]:
    return [(numbers(a), numbers(b)) for a, b in islice(module.pairs_of(batches, batch_size, seed=0), count)]


def test_which_examples_are_drawn() -> None:
    assert module.are_fresh([numbered(20)], 2)
    pairs = [first + second for first, second in drawn([numbered(23)], 2, 10)]
    assert all(len(pair) == len(set(pair)) == 4 for pair in pairs)
    for turn in (pairs[:5], pairs[5:]):
        assert len({number for pair in turn for number in pair}) == 20
    assert pairs[:5] != pairs[5:]
    batches = [numbered(2, 10 * i) for i in range(module.MIN_BATCHES + 1)]
    assert module.are_fresh(batches, 128)
    firsts = [(a[0], b[0]) for a, b in drawn(batches, 128, 6)]
    assert firsts == [(0, 10), (20, 30), (40, 50), (60, 70), (80, 0), (10, 20)]
    for batches, size in (([numbered(15)], 15), ([numbered(2, 2 * i) for i in range(module.MIN_BATCHES - 1)], 14)):
        assert not module.are_fresh(batches, 2)
        assert drawn(batches, 2, 2) == [(list(range(size)),) * 2] * 2


def test_directions_follow_the_formula_of_adam() -> None:
    w, (m, v) = {"w": torch.zeros(4, 3, dtype=torch.float64)}, torch.zeros(2, 4, 3, dtype=torch.float64)
    direction = AdamDirection(w)
    for number in range(1, 7):
        g = torch.randn(4, 3, dtype=torch.float64) * 10 ** torch.randn((), dtype=torch.float64)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.square()
        u = m / (1 - 0.9**number) / ((v / (1 - 0.999**number)).sqrt() + 1e-8)
        torch.testing.assert_close(direction({"w": g})["w"], u, rtol=1e-10, atol=1e-12)
    assert AdamDirection(w)(w)["w"].abs().max() == 0


def stopped(m: nn.Module, x: Tensor) -> Tensor:
    """Multiplies by something that is a constant to backward mode, but not to forward mode."""
    with torch.no_grad():
        scale = 1 + m.layer(x).square()
    return m.layer(x) * scale


def network(kind: str) -> nn.Module:
    torch.manual_seed(3)
    if kind == "stopped":
        return Net(stopped, layer=nn.Linear(3, 4)).double()
    norm = nn.BatchNorm1d(5) if kind == "batch norm" else nn.LayerNorm(5)
    return nn.Sequential(nn.Linear(3, 5), norm, nn.Tanh(), nn.Linear(5, 4)).double()


def batch_of(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    return Batch.of(x, torch.randint(4, (6,), generator=generator))


def loss_for(model: nn.Module, batch: Batch) -> Loss:
    y = model(*batch.args).detach()
    return resolve_loss("cross-entropy", y=y, targets=batch.targets, seed=0, reading=Reading(per="batch"))


def gradient_at(model: nn.Module, at: Values, batch: Batch) -> dict[str, Tensor]:
    model.load_state_dict(dict(at), strict=False)
    value = functional.cross_entropy(model(*batch.args), batch.targets)
    return dict(zip(at, torch.autograd.grad(value, list(model.parameters())), strict=True))


def along_by_hand(model: nn.Module, at: Values, u: Values, batch: Batch) -> tuple[float, float]:
    g, v = (torch.cat([values[name].flatten() for name in at]) for values in (gradient_at(model, at, batch), u))
    G = joined(ggn_blocks(model, batch.args[0], batch.targets, functional.cross_entropy, list(at)))
    return float(g @ v), float(v @ G @ v)


@pytest.mark.parametrize("kind", ["layer norm", "batch norm", "stopped"])
def test_every_step_by_hand(kind: str) -> None:
    model, twin = network(kind), network(kind)
    pairs = [(batch_of(2 * i), batch_of(2 * i + 1)) for i in range(3)]
    walk = Walk(model, loss_for(twin, pairs[0][0]), pairs[0][0], seed=0)
    assert walk.forward_mode == (kind != "stopped")
    at: Values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    adam = AdamDirection(at)
    for found, (stepped, measured) in zip(walk.steps(pairs), pairs, strict=True):
        gradient = gradient_at(twin, at, stepped)
        u = adam(gradient)
        for along, direction in zip(found, (gradient, u), strict=True):
            expected = along_by_hand(twin, at, direction, measured)
            assert (along.slope, along.curvature) == pytest.approx(expected, rel=1e-10)
        if found[1].rate > 0:
            at = {name: value - module.SHARE * found[1].rate * u[name] for name, value in at.items()}


def test_a_shared_parameter_moves_once_and_what_is_drawn_is_the_same_for_slope_and_curvature() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False), nn.Linear(3, 4)).double()
    model[2].weight = model[0].weight
    walk = Walk(model, loss_for(model, batch_of(0)), batch_of(0), seed=0)
    assert list(walk.start) == ["0.weight", "3.weight", "3.bias"]
    ((along, _),) = walk.steps([(batch_of(1), batch_of(2))])
    at = {name: parameter.detach() for name, parameter in model.named_parameters()}
    u = gradient_at(model, at, batch_of(1))
    assert (along.slope, along.curvature) == pytest.approx(along_by_hand(model, at, u, batch_of(2)), rel=1e-10)
    # With another draw the curvature along the drawn entry's gradient would be 0.
    batch = Batch.of(torch.ones(2, 1, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64))
    loss = resolve_loss("mse", y=batch.targets, targets=batch.targets, seed=0, reading=Reading(per="batch"))
    pair = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))  # two linear maps of which each call draws one
    coin = Net(lambda m, x: x * m.pair[int(torch.rand(()) < 0.5)], pair=pair)
    for seed in range(6):
        ((along, _),) = Walk(coin, loss, batch, seed=seed).steps([(batch, batch)])
        assert (along.slope > 0) == (along.curvature > 0)


def test_one_step_led_astray_does_not_outweigh_the_others_and_the_error_bar_holds() -> None:
    steps = [Along(2.0, 1.0)] * 11
    assert module.best_constant_rate([*steps, Along(-50.0, 1e5)])[0] == pytest.approx((22 - 50e-4) / 21)
    assert module.best_constant_rate([*steps, Along(2.0, 9.0)])[0] == pytest.approx(24 / 20)
    assert math.isnan(Along(1.0, 0.0).rate)
    assert all(map(math.isnan, module.best_constant_rate([Along(1.0, 0.0)])))
    assert all(map(math.isnan, module.best_constant_rate([Along(1.0, -2.0), Along(1.0, 1.0)])))
    # Of 400 draws of 12 steps, 95 % intervals hold the truth about as often as they should with 12 steps.
    generator, held = torch.Generator().manual_seed(0), 0
    for _ in range(400):
        curvatures = torch.rand(12, generator=generator, dtype=torch.float64) + 0.5
        slopes = 0.3 * curvatures + 0.1 * torch.randn(12, generator=generator, dtype=torch.float64)
        both = torch.stack([slopes, curvatures], 1).tolist()
        rate, stderr = module.best_constant_rate([Along(*each) for each in both])
        held += abs(rate - 0.3) <= 1.96 * stderr
    assert 0.88 <= held / 400 <= 0.98


def test_the_walk_goes_on_while_a_rate_rises_and_says_where_it_rises_to_the_end() -> None:
    flat, slopes = Along(1.0, 1.0), (1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    steps = iter([(Along(slope, 1.0), flat) for slope in slopes])
    rates = walked_rates(["adam", "sgd"], steps, 4, examples=8)
    assert list(rates) == ["adam", "sgd"]
    assert [len(rate.steps) for rate in rates.values()] == [4, 8]  # Adam's is what it was when it stood still
    assert rates["sgd"].value == pytest.approx(FACTORS["sgd"] * 14 / 8)
    assert rates["sgd"].halves == pytest.approx((FACTORS["sgd"] * 1.5, FACTORS["sgd"] * 2))
    assert not any(rate.rises for rate in rates.values())

    steps = iter([(Along(float(number), 1.0), flat) for number in range(1, 100)])
    rates = walked_rates(["sgd", "adam"], steps, 4, examples=8)
    assert [len(rate.steps) for rate in rates.values()] == [32, 4]
    assert rates["sgd"].halves == pytest.approx((FACTORS["sgd"] * 8.5, FACTORS["sgd"] * 24.5))
    assert next(steps)[0].slope == 33.0  # nothing more was walked
    told = repr(hessdiag.LearningRates(rates=rates, model="M", loss="mse"))
    assert "! The rate of SGD still rises along the steps: pass more steps." in told
    assert "of Adam still" not in told
    unsure = {key: replace(rate, stderr=1.0, halves=(1.0, math.nan)) for key, rate in rates.items()}
    assert "! The rate of SGD and Adam is not" in repr(hessdiag.LearningRates(rates=unsure, model="M", loss="mse"))
    walked = walked_rates(["sgd"], iter([(Along(-1.0, 1.0), flat)] * 2 + [(Along(2.0, 1.0), flat)] * 30), 4, examples=8)
    assert len(walked["sgd"].steps) == 32  # at first the loss did not fall
    assert not walked["sgd"].rises
    dip = [(Along(slope, 1.0), flat) for slope in (1.0, 2.0, 1.0, 1.0)]
    stood = walked_rates(["sgd"], iter(dip), 2, examples=8)["sgd"]
    assert (stood.value, stood.rises) == (pytest.approx(FACTORS["sgd"] * 1.5), False)
    astray = [(Along(slope, 1.0), flat) for slope in (1.0, 2.0, -9.0, -9.0)]
    assert walked_rates(["sgd"], iter(astray), 2, examples=8)["sgd"].steps == (FACTORS["sgd"], 2 * FACTORS["sgd"])


def test_a_walk_that_goes_on_reads_further_batches_and_refuses_what_does_not_fit() -> None:
    x, t = data(200)
    read = []

    def batches(missing: int = -1) -> Iterator[tuple[Tensor, Tensor | None]]:
        for number in range(20):
            read.append(number)
            yield x[10 * number : 10 * number + 10], None if number == missing else t[10 * number : 10 * number + 10]

    model = small()
    model[2].weight.data.mul_(3)
    rates = learning_rates(model, batches(), steps=4)
    assert (len(rates["sgd"].steps), len(rates["adam"].steps), read) == (4, 4, list(range(16)))
    with pytest.raises(HessdiagError, match="targets"):
        learning_rates(model, batches(missing=12), steps=4)


def small(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def data(count: int = 80, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(2), dtype=dtype)
    return x, x[:, :3].argmax(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_model_is_left_bit_for_bit(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3)).to(dtype)
    x, t = data(dtype=dtype)
    functional.cross_entropy(model(x), t).backward()
    with unchanged(model, x, t):
        rates = learning_rates(model, x, t)
    assert all(rate.value > 0 and rate.stderr > 0 and len(rate.steps) == 12 for rate in rates.values())


def test_a_loss_times_ten_and_single_precision() -> None:
    """SGD's rate is a tenth, Adam's is the same: its direction does not see the loss's scale."""
    x, t = data()
    plain = learning_rates(small(), x, t, loss=functional.cross_entropy, optimizers=list(FACTORS), steps=3)
    for name, rate in learning_rates(small(torch.float32), x.float(), t, steps=3).items():
        assert rate.value == pytest.approx(plain[name].value, rel=1e-3)
    tenfold = learning_rates(small(), x, t, loss=lambda y, t: 10 * functional.cross_entropy(y, t), steps=3)
    assert tenfold["sgd"].value == pytest.approx(plain["sgd"].value / 10, rel=1e-5)
    assert tenfold["adam"].value == pytest.approx(plain["adam"].value, rel=1e-5)
    summed = learning_rates(small(), x, t, loss=lambda y, t: functional.cross_entropy(y, t, reduction="sum"), steps=3)
    assert summed["sgd"].value == pytest.approx(plain["sgd"].value / summed.batch_size, rel=1e-5)
    named = learning_rates(small(), x, t, steps=3)
    assert named["adam"].value == pytest.approx(plain["adam"].value, rel=1e-9)
    assert (tenfold.loss, named.loss) == ("<lambda>", "cross-entropy")
    assert plain["momentum"].value == pytest.approx(plain["sgd"].value * FACTORS["momentum"] / FACTORS["sgd"])


def test_batches_of_a_loader_take_turns_and_the_seed_says_which_examples_are_drawn() -> None:
    x, t = data()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, t), batch_size=10)
    assert learning_rates(small(), x, x[:, :3], steps=1).loss == "mse"
    rates = learning_rates(small(), loader, steps=4)
    listed = learning_rates(small(), [(x[10 * i : 10 * i + 10], t[10 * i : 10 * i + 10]) for i in range(8)], steps=4)
    assert (rates, rates.batch_size, rates.fresh) == (listed, 10, True)
    how = {"steps": 2, "batch_size": 8, "optimizers": ["sgd", "momentum", "adam"]}
    first, again, other = (learning_rates(small(), *data(), seed=seed, **how) for seed in (0, 0, 1))
    assert first == again
    assert first["sgd"] != other["sgd"]
    assert hessdiag.LearningRates.from_json(first.to_json()) == first
    for words in (f"{len(first['adam'].steps)} virtual steps on batches of 8 examples", "SGD, momentum 0.9", "Adam"):
        assert words in repr(first)


def test_a_mean_of_ones_own_is_called_with_all_examples_of_a_step() -> None:
    sizes, x, t = list[int](), torch.randn(64, 4).double(), torch.randn(64, 3).double()

    def own(y: Tensor, targets: Tensor) -> Tensor:
        sizes.append(len(y))
        return (y - targets).cosh().log().mean()

    torch.manual_seed(0)
    model, alone = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double(), []
    for steps in (2, 8):
        options = {"steps": steps, "batch_size": 32, "progress": False}
        rates = learning_rates(model, x, t, loss=own, **options).rates
        alone.append(sizes.count(1))
        assert all(rate.value > 0 for rate in rates.values())
        sizes.clear()
    assert alone[0] == alone[1]


def test_frozen_parameters_are_not_moved_and_no_gradient_is_no_rate() -> None:
    x, t = data()
    model = small()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    features = model[:2](x).detach()
    whole, head = learning_rates(model, x, t, steps=3), learning_rates(model[2:], features, t, steps=3)
    assert whole["sgd"].value == pytest.approx(head["sgd"].value, rel=1e-10)
    assert whole["adam"].value == pytest.approx(head["adam"].value, rel=1e-10)
    model = small()
    model[2].weight.data.zero_()
    model[2].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    rates = learning_rates(model, *data(), steps=2)
    assert all(math.isnan(rate.value) for rate in rates.values())
    assert "! No rate for SGD and Adam" in repr(rates)
    with pytest.raises(HessdiagError, match=r"0.weight: frozen \(requires_grad=False\)"):
        learning_rates(small().requires_grad_(False), x, t)
    with pytest.raises(HessdiagError, match="targets"):
        learning_rates(small(), [(x, t), (x, None)])


@pytest.mark.parametrize(("changes", "words"), [
    ({"optimizers": ["lamb"]}, "optimizer 'lamb' is not known: use one of sgd, momentum, adam"),
    ({"optimizers": "adam"}, "pass a list"), ({"steps": 0}, "steps 0: pass at least 1"),
    ({"batch_size": 0}, "batch_size 0"), ({"loss": "entropy"}, "unknown loss"),
    ({"targets": None}, "pass targets, or loss="), ({"targets": None, "examples": "one"}, "pass targets, or loss="),
])  # fmt: skip
def test_refusals(changes: dict[str, object], words: str) -> None:
    x, t = data()
    with pytest.raises(HessdiagError, match=words):
        learning_rates(small(), **{"inputs": x, "targets": t} | changes)


def test_the_factors_are_those_of_the_study() -> None:
    study = json.loads((Path(__file__).parents[2] / "figures" / "learning_rates.json").read_text())
    assert pytest.approx(study["factors"], rel=0.02) == FACTORS
    for optimizer in FACTORS:
        held_out = [row for row in study["rows"] if row["optimizer"] == optimizer and not row["fitting"]]
        found = score(held_out, "steps", "fresh")
        assert found["count"] >= 20
        assert found["median"] <= 0.75
        assert found["near"] >= 0.9


def test_a_curvature_of_rounding_and_a_walk_to_where_the_loss_is_no_number_give_no_rate() -> None:
    """Logits that move together are no change: slope and curvature are 0, of which rounding made a rate of 2e7."""
    layers = {"fixed": nn.Linear(4, 5).requires_grad_(False), "shift": nn.Parameter(torch.zeros(()))}
    model = Net(lambda m, x: m.fixed(x) + m.shift * (x[:, :1] * 3.7 + 0.3), **layers)
    rates = learning_rates(model, torch.randn(256, 4), torch.randint(5, (256,)), loss="cross-entropy")
    assert all(math.isnan(value) for rate in rates.values() for value in (rate.value, *rate.halves, *rate.steps))
    assert "beyond noise and rounding" in " ".join(repr(rates).split())
    # A step leads from 1 below 0, where the logarithm is NaN.
    model, ones = Net(lambda m, x: m.w * x, w=nn.Parameter(torch.ones(4))), torch.ones(64, 4)
    rates = learning_rates(model, ones, -0.9 * ones, loss=lambda y, t: (y.log() - t).square().mean())
    assert all(math.isnan(rate.value) for rate in rates.values())
