"""Sketches of the matrix of a whole batch against dense ones: no bias, error bars that hold, and no more memory."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.curvature.batch_cost import Limits, batch_cost, directions_that_fit
from hessdiag.curvature.batch_sketch import PILOT, _Basis, _measure, _Passes, sketch_per_batch
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.plan import plan
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import RandomQuadratic, resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.journal import Journal
from hessdiag.execution.work import ALL_HERE, Work
from hessdiag.network.blocks import find_blocks
from hessdiag.network.shapes import measure_shapes
from tests.networks import BUILDERS, CalledTwice, Tied, build
from tests.oracles import frobenius_sq, ggn_blocks

SEEDS = 60
MIN_AT_ONCE = 6  # directions of a round


def mlp(inputs: int = 6, outputs: int = 4) -> nn.Module:
    layers = (nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, outputs))
    return nn.Sequential(*layers).double()


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4)).double()


def data(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def quadratic(y: Tensor, t: Tensor | None) -> Tensor:
    R = RandomQuadratic.draw(y.shape[1], seed=0, like=y).R
    return ((y @ R) * y).sum() / len(y)


def log_cosh(y: Tensor, t: Tensor | None) -> Tensor:
    """A loss whose Hessian has no root that is known."""
    return (y - t).cosh().log().mean()


def problem_of(model: nn.Module, x: Tensor, loss: str) -> tuple[Problem, Tensor]:
    """What to measure, and the (L, L) squared norms of its dense blocks."""
    blocks = find_blocks(model)[0]
    y = model(x).detach()
    labels = torch.randint(y.shape[1], (len(x),), generator=torch.Generator().manual_seed(2))
    t = {"cross-entropy": labels, "mse": data(*y.shape), "callable": data(*y.shape)}.get(loss)
    plain = {"cross-entropy": F.cross_entropy, "mse": F.mse_loss, "callable": log_cosh}.get(loss, quadratic)
    resolved = resolve_loss(log_cosh if loss == "callable" else loss, y=y, targets=t, seed=0)
    names = [block.name for block in blocks]
    return Problem(model, Batch.of(x, t), resolved, blocks), frobenius_sq(ggn_blocks(model, x, t, plain, names))


def sketched(problem: Problem, seed: int, **changed):
    options = {"budget": Budget(0.05, 400), "chunk": 64, "most": 10**6, "seed": seed} | changed
    return sketch_per_batch(problem, **options)


@pytest.mark.parametrize(
    ("network", "loss", "basis_of"),
    [
        ("mlp", "cross-entropy", 0),
        ("mlp", "cross-entropy", 2),
        ("mlp", "random-quadratic", 1),
        ("cnn", "cross-entropy", 1),
        ("mlp", "random-quadratic", 0),
        ("cnn", "callable", 1),
    ],
)
def test_the_mean_over_many_seeds_is_the_dense_norm(network: str, loss: str, basis_of: int) -> None:
    """Without a basis, and with one that one or two pilots have found."""
    torch.manual_seed(0)
    model, x = (mlp(), data(8, 6)) if network == "mlp" else (cnn(), data(8, 2, 8, 8))
    problem, dense = problem_of(model, x, loss)
    passes = _Passes(problem, 64)
    values, variances = [], []
    for seed in range(SEEDS):
        basis = _Basis(passes, seed)
        for number in range(basis_of):
            name = f"pilot {number}"
            (found,) = _measure(basis, [name], PILOT, ALL_HERE)
            basis.extend(name, found.trace_scales())
        (found,) = _measure(basis, ["round"], 8, ALL_HERE)
        values.append(found.value)
        variances.append(found.variance)
    mean, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
    assert (np.abs(mean - dense.numpy()) <= 4 * spread / np.sqrt(SEEDS) + 1e-9 * float(dense.max())).all()
    own = np.diag(spread) > 1e-6 * np.diag(mean)
    told = np.sqrt(np.diag(np.mean(variances, axis=0)))
    assert (told[own] > 0.6 * np.diag(spread)[own]).all()


@pytest.mark.parametrize("network", BUILDERS)
def test_every_network_is_sketched(network: str, device: str) -> None:
    """Shared weights, scalars, embeddings, layers without a rule: all that have a gradient."""
    model, x = build(network, device=device)
    options = {"per": "batch", "noise_scale": False, "signals": False, "learning_rates": False}
    exact = hessdiag.diagnose(model, x, method="exact", **options)
    found = hessdiag.diagnose(model, x, method="sketch", max_products=120, **options)
    assert found.method == "sketch"
    off = np.abs(found.heatmap.frobenius_sq - exact.heatmap.frobenius_sq)
    assert (off <= 5 * found.heatmap.stderr + 1e-9 * exact.heatmap.frobenius_sq.max()).all()
    for a, b in zip(found.blocks, exact.blocks, strict=True):
        gap = abs(a.avg_sq_singular_value - b.avg_sq_singular_value)
        assert gap <= 5 * a.stderr + 1e-9 * max(b.avg_sq_singular_value, 1e-12)


@pytest.mark.parametrize("model_class", [CalledTwice, Tied])
def test_a_weight_that_is_used_twice_has_one_gradient(model_class: type[nn.Module]) -> None:
    torch.manual_seed(0)
    problem, dense = problem_of(model_class().double(), data(30, 4), "cross-entropy")
    value = np.mean([sketched(problem, seed).diagonal[problem.blocks[0].name].frobenius_sq for seed in range(10)])
    assert value == pytest.approx(float(dense[0, 0]), rel=0.1)


@pytest.mark.parametrize(
    ("examples", "outputs", "loss"),
    [(1, 4, "cross-entropy"), (1, 1, "mse"), (9, 1, "mse"), (1, 3, "random-quadratic")],
)
def test_a_range_that_the_pilot_finds_whole_leaves_no_noise(examples: int, outputs: int, loss: str) -> None:
    """At most nine outputs in all: rank one, one output, one example."""
    torch.manual_seed(0)
    problem, dense = problem_of(mlp(outputs=outputs), data(examples, 6), loss)
    found = sketched(problem, 0)
    own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    np.testing.assert_allclose(found.frobenius_sq, dense.numpy()[np.ix_(own, own)], rtol=1e-9)
    assert (found.stderr <= 1e-6 * np.abs(found.frobenius_sq)).all()  # the root of what rounding leaves of a variance
    assert {d.ended for name, d in found.diagonal.items() if name.endswith("weight")} == {"rtol"}


def test_a_basis_pays_where_the_effective_rank_is_low() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(30, 30), nn.ReLU())]
    model = hessdiag.init.apply(nn.Sequential(*layers, nn.Linear(30, 8)).double(), "fan-in")
    problem, _ = problem_of(model, data(40, 30), "cross-entropy")
    found = sketched(problem, 0)
    basis = int(found.how.split("basis of ")[1].split()[0])
    assert basis >= PILOT
    plain = sketched(problem, 0, most=13)  # no room for a basis
    assert plain.how.startswith("a basis of 0")
    deep, shallow = (c.diagonal[problem.blocks[-2].name] for c in (found, plain))
    assert deep.ended == "rtol"
    assert deep.products < shallow.products
    assert 3 * deep.stderr < shallow.stderr


def test_blocks_without_any_curvature_are_zero() -> None:
    torch.manual_seed(0)
    model = mlp()
    with torch.no_grad():
        model[2].weight.zero_()  # type: ignore[union-attr]
        model[2].bias.fill_(-1.0)  # type: ignore[union-attr]  # and no unit behind it is ever active
    report = hessdiag.diagnose(model, data(8, 6), data(8, 4), loss="mse", per="batch", method="sketch")
    by_name = {block.name: block.avg_sq_singular_value for block in report.blocks}
    assert by_name["0.weight"] == by_name["2.weight"] == 0.0
    assert by_name["4.bias"] > 0
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
    dead = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Linear(5, 3, bias=False)).double()
    for layer in dead:
        nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
    report = hessdiag.diagnose(dead, data(6, 4), data(6, 3), loss="mse", per="batch", method="sketch")
    assert [block.avg_sq_singular_value for block in report.blocks] == [0.0, 0.0]
    assert "without any curvature" in report.method_reason


@pytest.mark.parametrize("loss", ["cross-entropy", "random-quadratic"])
def test_95_percent_intervals_cover(loss: str) -> None:
    """Over blocks, seeds and two networks, at the number of directions that the pilots pick."""
    covered = trials = 0
    for wide in (False, True):
        torch.manual_seed(0)
        layers = [nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU()]
        model = nn.Sequential(*([] if wide else layers), nn.Linear(12 if wide else 10, 5)).double()
        problem, dense = problem_of(hessdiag.init.apply(model, "fan-in"), data(20, 12), loss)
        own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
        for seed in range(20):
            found = sketched(problem, seed)
            gap = np.abs(found.frobenius_sq - dense.numpy()[np.ix_(own, own)])
            inside = gap <= 1.96 * found.stderr + 1e-9 * np.abs(found.frobenius_sq)
            covered += inside.diagonal().sum()
            trials += len(own)
    assert trials == 80
    assert covered / trials >= 0.9


def test_pilots_are_no_part_of_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []

    def recorded(basis, names, count, work):
        found = _measure(basis, names, count, work)
        rounds.extend((name, each) for name, each in zip(names, found, strict=True))
        return found

    monkeypatch.setattr("hessdiag.curvature.batch_sketch._measure", recorded)
    torch.manual_seed(0)
    problem, _ = problem_of(mlp(), data(40, 6), "cross-entropy")
    found = sketched(problem, 0)
    kinds = [name.split()[0] for name, _ in rounds]
    assert kinds[0] == "pilot"
    assert kinds == sorted(kinds)
    own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    value = np.mean([each.value for name, each in rounds if name.startswith("round")], axis=0)
    np.testing.assert_allclose(found.frobenius_sq, value[np.ix_(own, own)], rtol=1e-12)


@pytest.mark.parametrize("loss", ["cross-entropy", "random-quadratic"])
def test_numbers_do_not_depend_on_the_chunk(loss: str) -> None:
    torch.manual_seed(0)
    problem, _ = problem_of(mlp(), data(20, 6), loss)
    whole, cut = (sketched(problem, 0, chunk=chunk) for chunk in (20, 3))
    np.testing.assert_allclose(whole.frobenius_sq, cut.frobenius_sq, rtol=1e-9)


def test_a_chunk_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    problem, _ = problem_of(mlp(), data(20, 6), "cross-entropy")
    expected = sketched(problem, 0)
    add = _Passes._add_gradients

    def limited(self, sums, part, *directions):
        add(self, sums, part, *directions)
        if part.size > 4:
            raise MemoryError

    monkeypatch.setattr(_Passes, "_add_gradients", limited)
    np.testing.assert_allclose(sketched(problem, 0).frobenius_sq, expected.frobenius_sq, rtol=1e-9)
    monkeypatch.setattr(_Passes, "_add_gradients", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(hessdiag.HessdiagError, match="out of memory with a single example"):
        sketched(problem, 0)


def test_little_memory_means_several_rounds() -> None:
    torch.manual_seed(0)
    problem, dense = problem_of(mlp(), data(40, 6), "cross-entropy")
    found = sketched(problem, 0, most=20)
    basis, directions = (int(n) for n in found.how.replace(",", "").split() if n.isdigit())
    assert basis + MIN_AT_ONCE <= 20 < basis + directions
    gap = abs(found.diagonal["0.weight"].frobenius_sq - float(dense[0, 0]))
    assert gap <= 4 * found.diagonal["0.weight"].stderr


@pytest.mark.parametrize("products", [2, 30, 60])
def test_a_small_budget_is_kept(products: int) -> None:
    torch.manual_seed(0)
    problem, _ = problem_of(mlp(), data(40, 6), "cross-entropy")
    found = sketched(problem, 0, budget=Budget(0.001, products))
    spent = next(iter(found.diagonal.values())).products
    assert spent <= max(products, MIN_AT_ONCE)
    assert {d.ended for d in found.diagonal.values()} == {"budget"}


def test_the_cheapest_algorithm_is_chosen_and_the_report_says_why() -> None:
    torch.manual_seed(0)
    lenet, x = hessdiag.models.StridedLeNet(), torch.randn(2, 3, 32, 32)
    blocks = find_blocks(lenet)[0]
    shape = measure_shapes(lenet, Batch.of(x, None), blocks)
    options = {"matrix": "ggn", "per": "batch", "outputs": 10}
    methods = {}
    for size in (8, 1024):
        cost = batch_cost(shape, blocks, size, Limits())
        methods[size] = plan(method="auto", batch_size=size, cost=cost, **options)
    assert (methods[8].method, methods[1024].method) == ("exact", "sketch")
    assert 500 < batch_cost(shape, blocks, 1024, Limits()).exact < 1100  # 751 were measured
    for word in ("Gram matrices", "sketches of the whole batch", "products in weight space"):
        assert word in methods[1024].reason
    indefinite = batch_cost(shape, blocks, 1024, Limits(has_root=False))  # the first layer would miss `rtol` by far
    assert plan(method="auto", batch_size=1024, cost=indefinite, **options).method == "probe"
    tight = batch_cost(shape, blocks, 1024, Limits(directions=10, memory=2**20))
    assert plan(method="auto", batch_size=1024, cost=tight, **options).method == "probe"
    assert "too many for the memory" in plan(method="auto", batch_size=1024, cost=tight, **options).reason


def test_sketches_that_do_not_fit_are_refused() -> None:
    model = nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))
    with pytest.raises(hessdiag.HessdiagError, match=r"max_memory .* method 'sketch' per batch needs at least"):
        hessdiag.diagnose(model, torch.randn(8, 400), per="batch", method="sketch", max_memory="2MiB")


def test_directions_that_fit_are_counted_from_gradients_and_outputs() -> None:
    problem, _ = problem_of(mlp(), data(20, 6), "cross-entropy")
    numel = sum(block.numel for block in problem.blocks)
    each = 2 * 8 * numel + (16 + 2 * 8) * 20 * 4
    assert directions_that_fit(problem, outputs=4, memory=10 * each) == 10
    no_root = replace(problem, loss=resolve_loss(log_cosh, y=data(2, 4), targets=data(2, 4), seed=0))
    assert directions_that_fit(no_root, outputs=4, memory=10 * each) < 10


class KilledError(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("loss", ["cross-entropy", "random-quadratic"])
def test_a_run_that_is_killed_after_any_unit_ends_with_the_same_bits(loss: str, tmp_path: Path, monkeypatch) -> None:
    """The basis is of pilots whose gradients are in no file: they are computed again, and only where needed."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(20, 20), nn.ReLU())]
    model = hessdiag.init.apply(nn.Sequential(*layers, nn.Linear(20, 6)).double(), "fan-in")
    problem, _ = problem_of(model, data(30, 20), loss)
    expected = sketched(problem, 0, most=40)
    put = Journal.put

    def dying(self, *unit):
        put(self, *unit)
        raise KilledError

    kills = 0
    while True:
        journal = Journal(tmp_path / "run", {})
        monkeypatch.setattr(Journal, "put", dying)
        try:
            resumed = sketched(problem, 0, most=40, work=Work(journal=journal))
            break
        except KilledError:
            kills += 1
        finally:
            journal.close()
    assert kills >= 3  # two pilots, and a round or more
    assert np.array_equal(resumed.frobenius_sq, expected.frobenius_sq)
    assert np.array_equal(resumed.stderr, expected.stderr)
    assert resumed.how == expected.how
    journal = Journal(tmp_path / "run", {})
    monkeypatch.setattr(_Passes, "back", lambda *_: pytest.fail("measured again"))
    assert np.array_equal(sketched(problem, 0, most=40, work=Work(journal=journal)).stderr, expected.stderr)
    journal.close()


PEAK = """
import torch, hessdiag
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model, x = nn.Sequential(nn.Linear(800, 800), nn.ReLU(), nn.Linear(800, 10)), torch.randn(40, 800)
t = torch.randint(10, (40,))
options = {"loss": "cross-entropy", "noise_scale": False, "signals": False, "learning_rates": False, "rtol": 0.04}
hessdiag.diagnose(model, x[:2], t[:2], **options)
for memory in ("160MiB", "2GiB"):
    report = hessdiag.diagnose(model, x, t, per="batch", method="sketch", max_memory=memory, **options)
    block = report.blocks[0]
    print(report.peak_memory, block.avg_sq_singular_value, block.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a process's peak as Linux tells it")
def test_the_memory_is_kept() -> None:
    """2.6 MB a gradient: some 30 directions of a round in one case, all of them in the other."""
    ran = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    (small, value, error), (large, other, other_error) = (
        [float(number) for number in line.split()] for line in ran.stdout.splitlines()
    )
    assert small <= 160 * 2**20 < large
    assert abs(value - other) <= 4 * (error**2 + other_error**2) ** 0.5
