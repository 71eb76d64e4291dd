"""Products in weight space against dense matrices, and the honesty of the error bars."""

import numpy as np
import pytest
import torch
from networks import BUILDERS, build
from oracles import frobenius_sq, ggn_blocks, hessian_blocks, mean_over_examples
from test_exact import LOSSES, diagonal_matches, heatmap_matches, loss_and_targets

import hessdiag
from hessdiag.curvature.probe import Budget, sample_until, symmetrize


@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("network", BUILDERS)
def test_unit_vectors_give_the_dense_hessian(network: str, per: str, device: str) -> None:
    model, x = build(network, batch=3, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    report = hessdiag.diagnose(model, x, t, loss=loss, matrix="hessian", method="exact", per=per)
    names = [block.name for block in report.blocks]
    if per == "example":
        expected = mean_over_examples(hessian_blocks, model, x, t, plain, names)
    else:
        expected = frobenius_sq(hessian_blocks(model, x, t, plain, names))
    diagonal_matches(report, names, expected)
    heatmap_matches(report, names, expected)
    assert all(block.ended == "exact" and block.products == block.numel for block in report.blocks)


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("loss_name", LOSSES)
def test_every_loss(loss_name: str, per: str, matrix: str) -> None:
    model, x = build("mlp", batch=3)
    loss, t, plain = loss_and_targets(loss_name, 3, len(x))
    dense = hessian_blocks if matrix == "hessian" else ggn_blocks
    options = {"matrix": matrix, "per": per, "method": "probe", "max_products": 10_000, "rtol": 1e-6}
    report = hessdiag.diagnose(model, x, t, loss=loss, **options)  # such an rtol makes unit vectors the cheaper way
    names = [block.name for block in report.blocks]
    assert all(block.ended == "exact" for block in report.blocks)
    if per == "example":
        expected = mean_over_examples(dense, model, x, t, plain, names)
    else:
        expected = frobenius_sq(dense(model, x, t, plain, names))
    heatmap_matches(report, names, expected)


def wide(batch: int):
    """Blocks too large for unit vectors to be the cheaper way."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.ReLU(), torch.nn.Linear(24, 20)).double()
    return model, torch.randn(batch, 20, dtype=torch.float64)


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("per", ["example", "batch"])
def test_probed_values_are_within_four_standard_errors(matrix: str, per: str) -> None:
    model, x = wide(4)
    R = torch.randn(20, 20, dtype=torch.float64)

    def quadratic(y, t):  # a callable, so that another seed changes the probes and not the loss
        return ((y @ R) * y).sum() / len(y)

    names = ["0.weight", "2.weight"]
    dense = hessian_blocks if matrix == "hessian" else ggn_blocks
    if per == "example":
        expected = mean_over_examples(dense, model, x[:2], None, quadratic, names).numpy()
        x = x[:2]
    else:
        expected = frobenius_sq(dense(model, x, None, quadratic, names)).numpy()
    for seed in range(5):
        report = hessdiag.diagnose(model, x, loss=quadratic, matrix=matrix, per=per, method="probe", seed=seed)
        assert {block.ended for block in report.weights} == {"rtol"}
        assert (report.heatmap.stderr > 0).all()
        assert (abs(report.heatmap.frobenius_sq - expected) < 4 * report.heatmap.stderr).all()
        for block in report.weights:
            assert block.stderr <= report.rtol * block.avg_sq_singular_value


@pytest.mark.parametrize("examples", [1, 8])
@pytest.mark.parametrize("spectrum", ["decaying", "flat", "rank 3", "indefinite"])
def test_95_percent_intervals_cover_in_92_to_98_percent_of_trials(spectrum: str, examples: int) -> None:
    size, trials = 100, 600
    rng = np.random.default_rng(0)
    values = {
        "decaying": 1.0 / np.arange(1, 31),
        "flat": np.ones(30),
        "rank 3": np.array([3.0, 2.0, 1.0]),
        "indefinite": rng.standard_normal(30),
    }[spectrum]
    # Each example has its own matrix Q diag(values) Q^T of its own scale; ‖H r‖² = Σ values² (Q^T r)².
    scale = rng.uniform(0.5, 2.0, examples)
    bases = [np.linalg.qr(rng.standard_normal((size, len(values))))[0] for _ in range(examples)]
    truth = float((scale**2).mean() * (values**2).sum())

    def draw(count: int):
        r = rng.choice([-1.0, 1.0], size=(examples, count, size))
        norms = [s**2 * ((r_b @ Q) ** 2 @ values**2) for s, Q, r_b in zip(scale, bases, r, strict=True)]
        return np.stack(norms)[..., None]

    covered = 0
    for _ in range(trials):
        column = sample_until(draw, examples=examples, focus=0, numel=10**9, budget=Budget(rtol=0.05, max_products=400))
        assert column is not None
        covered += abs(column.frobenius_sq[0] - truth) <= 1.96 * column.stderr[0]
    assert 0.92 <= covered / trials <= 0.98


def test_the_budget_ends_the_sampling_and_is_reported() -> None:
    model, x = wide(1)
    report = hessdiag.diagnose(model, x, matrix="hessian", rtol=1e-3, max_products=50)
    weight = report.weights[0]
    assert (weight.ended, weight.products) == ("budget", 50)
    assert weight.stderr > 1e-3 * weight.avg_sq_singular_value
    assert "budget of 50 products spent before rtol 0.001" in repr(report)


def test_more_probes_than_entries_turn_into_unit_vectors() -> None:
    assert sample_until(lambda m: np.zeros((1, m, 1)), examples=1, focus=0, numel=64, budget=Budget(0.1, 400)) is None


def test_probes_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = wide(5)
    whole = hessdiag.diagnose(model, x, matrix="hessian", rtol=0.5)
    monkeypatch.setattr("hessdiag.diagnosis.default_memory", lambda _: 100_000)
    pieces = hessdiag.diagnose(model, x, matrix="hessian", rtol=0.5)
    np.testing.assert_allclose(pieces.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=1e-12)


def test_symmetrize_prefers_the_exact_of_two_estimates() -> None:
    value, error = symmetrize(np.array([[1.0, 2.0], [5.0, 1.0]]), np.array([[0.1, 0.0], [0.4, 0.1]]))
    assert value.tolist() == [[1.0, 2.0], [2.0, 1.0]]
    assert error.tolist() == [[0.1, 0.0], [0.0, 0.1]]
