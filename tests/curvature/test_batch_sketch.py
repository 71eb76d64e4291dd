"""Sketches of the matrix of a whole batch against dense ones: no bias, error bars that hold, and no more memory."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.curvature.batch_round import BatchSketch
from hessdiag.curvature.batch_sketch import sketch_per_batch
from hessdiag.curvature.directions import Directions
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.exact import exact_per_batch
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import RandomQuadratic, resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.journal import Journal
from hessdiag.execution.work import ALL_HERE, Work
from hessdiag.network.blocks import find_blocks
from tests.networks import BUILDERS, PLAIN, CalledTwice, Tied, build
from tests.oracles import frobenius_sq, ggn_blocks

SEEDS = 60


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


def problem_of(model: nn.Module, x: Tensor, loss: str) -> Problem:
    """What to measure."""
    y = model(x).detach()
    resolved = resolve_loss(log_cosh if loss == "callable" else loss, y=y, targets=targets_of(y, loss), seed=0)
    return Problem(model, Batch.of(x, targets_of(y, loss)), resolved, find_blocks(model)[0])


def targets_of(y: Tensor, loss: str) -> Tensor | None:
    if loss == "cross-entropy":
        return torch.randint(y.shape[1], (len(y),), generator=torch.Generator().manual_seed(2))
    return None if loss == "random-quadratic" else data(*y.shape)


def dense_of(problem: Problem, loss: str) -> Tensor:
    """The (L, L) squared norms of dense blocks."""
    plain = {"cross-entropy": F.cross_entropy, "mse": F.mse_loss, "callable": log_cosh}.get(loss, quadratic)
    names, (x,) = [block.name for block in problem.blocks], problem.batch.args
    return frobenius_sq(ggn_blocks(problem.model, x, problem.batch.targets, plain, names))


def fitting(rows: int) -> Callable[[int], int]:
    """Memory for so many directions of all examples together."""
    return lambda cotangents: rows // cotangents


def sketched(problem: Problem, seed: int, **changed):
    options = {"budget": Budget(0.05, 400), "fit": fitting(10**6), "seed": seed} | changed
    options |= {"outputs": problem.batch.call(problem.model)[0].numel()}
    return sketch_per_batch(problem, **options)


@pytest.mark.parametrize(
    ("network", "loss", "examples", "directions", "most"),
    [
        ("mlp", "cross-entropy", 8, Directions(2), 10**6),
        ("mlp", "cross-entropy", 6, Directions(2), 10**6),  # some of the eight
        ("mlp", "cross-entropy", 8, Directions(2, 2), 10**6),  # beside a basis
        ("mlp", "cross-entropy", 8, Directions(5), 8),  # two groups, and two rounds
        ("mlp", "random-quadratic", 8, Directions(3), 10**6),
        ("cnn", "cross-entropy", 5, Directions(4), 10**6),
        ("cnn", "callable", 8, Directions(3, 1), 10**6),
        ("mlp", "cross-entropy", 5, Directions(0, 4), 10**6),  # all outputs of five examples
    ],
)
def test_the_mean_over_many_seeds_is_the_dense_norm(network, loss, examples, directions, most) -> None:
    torch.manual_seed(0)
    model, x = (mlp(), data(8, 6)) if network == "mlp" else (cnn(), data(8, 2, 8, 8))
    problem = problem_of(model, x, loss)
    dense = dense_of(problem, loss)
    if directions.fixed:
        directions = replace(directions, scales=[1.0] * len(problem.blocks))
    sketch = BatchSketch(examples, directions)
    totals = [sketch.run(problem, fit=fitting(most), seed=seed, work=ALL_HERE) for seed in range(2 * SEEDS)]
    mean, spread = np.mean([t.value for t in totals], axis=0), np.std([t.value for t in totals], axis=0, ddof=1)
    assert (np.abs(mean - dense.numpy()) <= 4 * spread / np.sqrt(2 * SEEDS) + 1e-9 * float(dense.max())).all()
    own = np.diag(spread) > 1e-6 * np.diag(mean)
    told = np.sqrt(np.diag(np.mean([t.variance for t in totals], axis=0)))
    assert own.any()
    assert (told[own] > 0.6 * np.diag(spread)[own]).all()
    assert (told[own] < 3 * np.diag(spread)[own]).all()


@pytest.mark.parametrize("network", BUILDERS)
def test_every_network_is_sketched(network: str, device: str) -> None:
    """Shared weights, scalars, embeddings, layers without a rule: all that have a gradient."""
    model, x = build(network, device=device)
    options = {"per": "batch", **PLAIN}
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
    problem = problem_of(model_class().double(), data(30, 4), "cross-entropy")
    dense = dense_of(problem, "cross-entropy")
    value = np.mean([sketched(problem, seed).diagonal[problem.blocks[0].name].frobenius_sq for seed in range(10)])
    assert value == pytest.approx(float(dense[0, 0]), rel=0.1)


@pytest.mark.parametrize(
    ("examples", "outputs", "loss"),
    [(1, 4, "cross-entropy"), (1, 1, "mse"), (9, 1, "mse"), (1, 3, "random-quadratic")],
)
def test_all_outputs_leave_no_noise(examples: int, outputs: int, loss: str) -> None:
    """Fewer than the directions of a pilot."""
    torch.manual_seed(0)
    problem = problem_of(mlp(outputs=outputs), data(examples, 6), loss)
    dense = dense_of(problem, loss)
    found = sketched(problem, 0)
    own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    np.testing.assert_allclose(found.frobenius_sq, dense.numpy()[np.ix_(own, own)], rtol=1e-9)
    assert (found.stderr <= 1e-6 * np.abs(found.frobenius_sq)).all()  # the root of what rounding leaves of a variance
    assert {d.ended for name, d in found.diagonal.items() if name.endswith("weight")} == {"rtol"}


def test_a_basis_pays_where_the_effective_rank_is_low() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(30, 30), nn.ReLU())]
    model = hessdiag.init.apply(nn.Sequential(*layers, nn.Linear(30, 400)).double(), "fan-in")
    problem = problem_of(model, data(6, 30), "cross-entropy")
    found = sketched(problem, 0)
    assert found.how.startswith("a basis of")
    plain = BatchSketch(6, Directions(40)).run(problem, fit=fitting(10**6), seed=0, work=ALL_HERE).total(problem)
    place = 0
    deep = found.diagonal[problem.blocks[place].name]
    assert 3 * deep.stderr < plain.stderr[place, place]


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
    dead = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Linear(5, 12, bias=False)).double()
    for layer in dead:
        nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
    report = hessdiag.diagnose(dead, data(6, 4), data(6, 12), loss="mse", per="batch", method="sketch")
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
        problem = problem_of(hessdiag.init.apply(model, "fan-in"), data(20, 12), loss)
        dense = dense_of(problem, loss)
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
    seen = []
    run = BatchSketch.run

    def recorded(self, *problem, **options):
        found = run(self, *problem, **options)
        seen.append((self.directions.name, found))
        return found

    monkeypatch.setattr(BatchSketch, "run", recorded)
    torch.manual_seed(0)
    problem = problem_of(mlp(outputs=40), data(10, 6), "cross-entropy")
    found = sketched(problem, 0)
    assert seen[0][0].startswith("pilot")
    assert [name for name, _ in seen if not name.startswith("pilot")] == ["all outputs"]
    own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    np.testing.assert_array_equal(found.frobenius_sq, seen[-1][1].value[np.ix_(own, own)])


def test_a_large_batch_is_known_from_some_of_its_examples() -> None:
    """Examples that are alike, and sorted."""
    torch.manual_seed(0)
    model, x = mlp(), data(800, 6).sort(dim=0).values * 0.1 + 1
    problem = problem_of(model, x, "mse")
    exact, found = exact_per_batch(problem, chunk=100), sketched(problem, 0)
    assert int(found.how.split("each of ")[1].split()[0]) < 500
    for name, known in exact.diagonal.items():
        gap = abs(found.diagonal[name].frobenius_sq - known.frobenius_sq)
        assert gap <= 4 * found.diagonal[name].stderr + 1e-6 * known.frobenius_sq  # one ReLU in one example


@pytest.mark.parametrize("loss", ["cross-entropy", "random-quadratic"])
def test_a_group_that_does_not_fit_is_halved(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    problem = problem_of(mlp(), data(20, 6), loss)
    dense = dense_of(problem, loss)
    sketch, measure = BatchSketch(20, Directions(2)), BatchSketch._group

    def limited(self, problem, directions, seed, part):
        found = measure(self, problem, directions, seed, part)
        if part.size > 5:
            raise MemoryError
        return found

    monkeypatch.setattr(BatchSketch, "_group", limited)
    totals = [sketch.run(problem, fit=fitting(10**6), seed=seed, work=ALL_HERE).total(problem) for seed in range(SEEDS)]
    mean, spread = np.mean([t.value for t in totals], axis=0), np.std([t.value for t in totals], axis=0, ddof=1)
    assert (np.abs(mean - dense.numpy()) <= 4 * spread / np.sqrt(SEEDS)).all()
    monkeypatch.setattr(BatchSketch, "_group", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(hessdiag.HessdiagError, match="out of memory with a single example"):
        sketched(problem, 0)


def test_groups_are_never_too_small_to_tell_their_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    problem = problem_of(mlp(), data(20, 6), "cross-entropy")

    def limited(problem, directions, seed, part):
        raise MemoryError

    monkeypatch.setattr("hessdiag.curvature.batch_round._grams", limited)
    with pytest.raises(hessdiag.HessdiagError, match="out of memory with 4 examples"):
        sketched(problem, 0)


def test_little_memory_means_groups_and_rounds() -> None:
    torch.manual_seed(0)
    problem = problem_of(mlp(outputs=12), data(40, 6), "cross-entropy")
    dense = dense_of(problem, "cross-entropy")
    sketch = BatchSketch(40, Directions(6))
    assert sketch._cut(40, fitting(10**6)) == (1, 1, 6)
    assert sketch._cut(40, fitting(20)) == (8, 2, 3)
    found = sketch.run(problem, fit=fitting(20), seed=0, work=ALL_HERE).total(problem)
    gap = np.abs(found.value - dense.numpy())
    assert (gap <= 5 * found.stderr).all()


@pytest.mark.parametrize("products", [2, 30, 60])
def test_a_small_budget_is_kept(products: int) -> None:
    torch.manual_seed(0)
    problem = problem_of(mlp(outputs=70), data(10, 6), "cross-entropy")
    found = sketched(problem, 0, budget=Budget(0.001, products))
    spent = next(iter(found.diagonal.values())).products
    assert spent <= products
    assert {d.ended for d in found.diagonal.values()} == {"budget"}


class KilledError(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("loss", ["cross-entropy", "random-quadratic"])
def test_a_run_that_is_killed_after_any_unit_ends_with_the_same_bits(loss: str, tmp_path: Path, monkeypatch) -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(20, 20), nn.ReLU())]
    model = hessdiag.init.apply(nn.Sequential(*layers, nn.Linear(20, 60)).double(), "fan-in")
    problem = problem_of(model, data(10, 20), loss)
    expected = sketched(problem, 0, fit=fitting(80))
    put = Journal.put

    def dying(self, *unit):
        put(self, *unit)
        raise KilledError

    kills = 0
    while True:
        journal = Journal(tmp_path / "run", {})
        monkeypatch.setattr(Journal, "put", dying)
        try:
            resumed = sketched(problem, 0, fit=fitting(80), work=Work(journal=journal))
            break
        except KilledError:
            kills += 1
        finally:
            journal.close()
    assert kills >= 3  # pilots, and a round or more
    assert np.array_equal(resumed.frobenius_sq, expected.frobenius_sq)
    assert np.array_equal(resumed.stderr, expected.stderr)
    assert resumed.how == expected.how
    journal = Journal(tmp_path / "run", {})
    monkeypatch.setattr(BatchSketch, "_group", lambda *_: pytest.fail("measured again"))
    assert np.array_equal(sketched(problem, 0, fit=fitting(80), work=Work(journal=journal)).stderr, expected.stderr)
    journal.close()


PEAK = """
import torch, hessdiag
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model, x = nn.Sequential(nn.Conv2d(3, 24, 5), nn.ReLU(), nn.Conv2d(24, 24, 5), nn.Flatten(), nn.Linear(13824, 10)), \\
    torch.randn(100, 3, 32, 32)
t = torch.randint(10, (100,))
options = {"loss": "cross-entropy", "signals": False, "rtol": 0.04}
hessdiag.diagnose(model, x[:2], t[:2], **options)
for memory in ("160MiB", "2GiB"):
    report = hessdiag.diagnose(model, x, t, per="batch", method="sketch", max_memory=memory, **options)
    block = report.blocks[0]
    print(report.peak_memory, block.avg_sq_singular_value, block.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a process's peak as Linux tells it")
def test_the_memory_is_kept() -> None:
    """Some 20 directions of a group in one case, all of them in the other."""
    ran = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    (small, value, error), (large, other, other_error) = (
        [float(number) for number in line.split()] for line in ran.stdout.splitlines()
    )
    assert small <= 160 * 2**20 < large
    assert abs(value - other) <= 4 * (error**2 + other_error**2) ** 0.5
