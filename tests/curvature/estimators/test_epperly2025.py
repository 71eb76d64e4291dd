"""XSymRowNorm against its definition, against dense norms, and against Hutchinson's estimator."""

import numpy as np
import pytest
import torch
from torch import Tensor

from hessdiag.curvature.estimators.epperly2025 import Grams, downdated, leave_one_out, new_directions, xsymrownorm
from tests.spectra import SPECTRA, signs, symmetric


def sketch(H: Tensor, B: Tensor, omega: Tensor, batches: int = 1):
    """Gram matrices of B, downdates and QᵀΩ from probes (k, n) that come in batches."""
    basis = torch.zeros(len(H), 0, dtype=torch.float64)
    images = H @ omega.T
    for part in images.chunk(batches, dim=1):
        basis = torch.cat([basis, new_directions(basis, part, scale=float(images.norm()))], dim=1)
    return Grams.of((B @ basis).T, (B @ omega.T).T), downdated(basis, images).downdates, basis.T @ omega.T


def left_out(H: Tensor, B: Tensor, omega: Tensor, probe: int, *others: int) -> float:
    """v_l as it is defined, with Q from scratch."""
    kept = [i for i in range(len(omega)) if i not in (probe, *others)]
    Q = torch.linalg.qr(H @ omega[kept].T).Q
    w = omega[probe]
    return float((B @ Q).square().sum() + (B @ (w - Q @ (Q.T @ w))).square().sum())


def problem(name: str, k: int, size: int = 40):
    """H, another block of its column, and probes."""
    H = symmetric(SPECTRA[name](size), seed=1)
    generator = torch.Generator().manual_seed(2)
    B = torch.randn(25, size, generator=generator, dtype=torch.float64) @ H
    return H, B, signs(k, size, generator).double()


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("name", ["polynomial", "flat", "indefinite"])
def test_closed_forms_are_the_definition(name: str, batches: int) -> None:
    H, B, omega = problem(name, k=9)
    for block in (H, B):
        v, h = leave_one_out(*sketch(H, block, omega, batches))
        expected = [left_out(H, block, omega, i) for i in range(9)]
        np.testing.assert_allclose(v, expected, rtol=1e-10)
        pairs = [[left_out(H, block, omega, i, j) for j in range(9)] for i in range(9)]
        np.testing.assert_allclose(v[:, None] - h, pairs, rtol=1e-9)


@pytest.mark.parametrize("name", SPECTRA)
def test_unbiased_with_an_unbiased_variance(name: str) -> None:
    size, k, trials = 40, 8, 1500
    H, B, _ = problem(name, k)
    generator = torch.Generator().manual_seed(3)
    values, variances = [], []
    for _ in range(trials):
        omega = signs(k, size, generator).double()
        grams, S, W = sketch(H, B, omega)
        v, h = leave_one_out(grams, S, W)
        values.append(v.mean())
        variances.append(v.var(ddof=1) / k + (h * h.T).sum() / (k * (k - 1)))
    truth = float(B.square().sum())
    spread = np.std(values, ddof=1)
    assert abs(np.mean(values) - truth) < 4 * spread / trials**0.5 + 1e-12 * truth
    noise = np.std(variances) / trials**0.5
    assert abs(np.mean(variances) - spread**2) < 4 * noise + 0.25 * spread**2


@pytest.mark.parametrize(
    ("eigenvalues", "gain"),
    [
        (1.0 / np.arange(1, 151), 8),
        ((-1.0) ** np.arange(150) / np.arange(1, 151), 8),
        (1.0 / np.arange(1, 151) ** 2, 500),
        (0.9 ** np.arange(150), 2),
        (0.7 ** np.arange(150), 300),
    ],
    ids=["1/i", "±1/i", "1/i²", "0.9^i", "0.7^i"],
)
def test_far_more_accurate_than_hutchinson_at_30_products(eigenvalues: np.ndarray, gain: float) -> None:
    H = symmetric(eigenvalues, seed=1)
    truth = float(H.square().sum())
    generator = torch.Generator().manual_seed(2)
    errors = []
    for _ in range(200):
        omega = signs(30, 150, generator).double()
        hutchinson = float((H @ omega.T).square().sum()) / 30
        grams, S, W = sketch(H, H, omega[:15])
        errors.append([xsymrownorm([grams], S, W).frobenius_sq[0] / truth - 1, hutchinson / truth - 1])
    ours, theirs = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ours < theirs / gain


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("rank", [0, 1, 7, 8])
def test_a_captured_range_is_exact(rank: int, batches: int) -> None:
    H = symmetric(np.r_[np.arange(1.0, rank + 1), np.zeros(40 - rank)], seed=1)
    generator = torch.Generator().manual_seed(0)
    grams, S, W = sketch(H, H, signs(9, 40, generator).double(), batches)
    assert S.shape == (rank, 9)
    found = xsymrownorm([grams], S, W)
    truth = float(H.square().sum())
    np.testing.assert_allclose(found.frobenius_sq, [truth], rtol=1e-12)
    assert found.stderr[0] <= 1e-10 * truth


def test_the_basis_stays_orthonormal_where_little_is_new() -> None:
    """New columns that are old ones to 10 digits."""
    old = torch.linalg.qr(torch.randn(40, 5, dtype=torch.float64)).Q
    images = old @ torch.randn(5, 4, dtype=torch.float64) + 1e-10 * torch.randn(40, 4, dtype=torch.float64)
    both = torch.cat([old, new_directions(old, images, scale=1.0)], dim=1)
    torch.testing.assert_close(both.T @ both, torch.eye(9, dtype=torch.float64), rtol=0, atol=1e-13)


def test_the_bar_reaches_the_norm_that_was_seen() -> None:
    """With as many probes as ranks, Q has the range, all v_l miss a direction of it, and ‖HQ‖² is the truth."""
    H = symmetric(np.r_[1.0 / np.arange(1, 10), np.zeros(31)], seed=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        grams, S, W = sketch(H, H, signs(9, 40, generator).double())
        found = xsymrownorm([grams], S, W)
        seen = float(grams.ZZ.diagonal().sum())
        assert seen == pytest.approx(float(H.square().sum()))
        assert found.frobenius_sq[0] + found.stderr[0] >= seen * (1 - 1e-12)


def test_a_block_outside_of_the_range_is_left_to_the_probes() -> None:
    B, omega = torch.randn(5, 40, dtype=torch.float64), signs(9, 40, torch.Generator()).double()
    grams, S, W = sketch(torch.zeros(40, 40, dtype=torch.float64), B, omega)
    assert xsymrownorm([grams], S, W).frobenius_sq[0] == pytest.approx(float((B @ omega.T).square().sum() / 9))


def test_a_probe_that_alone_finds_a_direction_is_left_out_of_it() -> None:
    """Rank deficient, and yet one column of HΩ is no combination of the others."""
    H = torch.diag(torch.tensor([3.0, 2.0, 1.0, 1.0], dtype=torch.float64))
    omega = torch.tensor([[1.0, 0, 0, 0], [1.0, 0, 0, 0], [0, 1.0, 0, 0]], dtype=torch.float64)
    S = downdated(new_directions(H[:, :0], H @ omega.T, scale=1.0), H @ omega.T).downdates
    np.testing.assert_allclose(S.norm(dim=0), [0, 0, 1], atol=1e-12)


def test_products_in_float32() -> None:
    H = symmetric(0.5 ** np.arange(60), seed=1)
    omega = signs(30, 60, torch.Generator().manual_seed(0)).double()
    Y = (H.float() @ omega.float().T).T
    basis = new_directions(H[:, :0], Y.double().T, scale=float(Y.norm()))
    Z = (H.float() @ basis.float()).T
    range_ = downdated(basis, Y.double().T)
    found = xsymrownorm([Grams.of(Z, Y)], range_.downdates, basis.T @ omega.T)
    np.testing.assert_allclose(found.frobenius_sq, [float(H.square().sum())], rtol=2e-6)
