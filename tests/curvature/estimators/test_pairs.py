"""The estimate over pairs of directions and its variance have the right means."""

import pytest
import torch

from hessdiag.curvature.estimators.pairs import pair_statistics, pair_sums


def matrices(rank: int, size: int = 30):
    generator = torch.Generator().manual_seed(0)
    A, B = (torch.randn(size, rank, generator=generator, dtype=torch.float64) for _ in range(2))
    return A @ A.T, B @ B.T


@pytest.mark.parametrize(("rank", "fixed"), [(30, 0), (3, 0), (30, 5), (3, 2), (3, 4)])
def test_the_estimate_is_unbiased_and_its_variance_nearly(rank: int, fixed: int) -> None:
    K, L = matrices(rank)
    Q = torch.linalg.qr(K @ torch.randn(30, fixed, dtype=torch.float64)).Q if fixed else torch.zeros(30, 0).double()
    truth = float((K * L).sum())
    values, variances = [], []
    for _ in range(4000):
        omega = torch.randn(30, 8, dtype=torch.float64)
        z = torch.cat([Q, omega - Q @ (Q.T @ omega)], dim=1)
        found = pair_statistics(z.T @ K @ z, z.T @ L @ z, fixed)
        values.append(found.estimate)
        variances.append(found.variance)
    value, variance = torch.stack(values), torch.stack(variances)
    spread = float(value.std())
    assert abs(float(value.mean()) - truth) < 4 * spread / 4000**0.5 + 1e-9 * truth
    if spread > 1e-9 * truth:
        assert 0.7 < float(variance.mean()) / spread**2 < 1.6  # the lower bound adds a little


def test_a_basis_of_the_range_leaves_no_noise() -> None:
    K, L = matrices(3)
    Q = torch.linalg.qr(torch.cat([K[:, :4], L[:, :4]], dim=1)).Q
    omega = torch.randn(30, 8, dtype=torch.float64)
    z = torch.cat([Q, omega - Q @ (Q.T @ omega)], dim=1)
    found = pair_statistics(z.T @ K @ z, z.T @ L @ z, Q.shape[1])
    assert float(found.estimate) == pytest.approx(float((K * L).sum()), rel=1e-9)
    assert abs(float(found.variance)) < 1e-12 * float(found.estimate) ** 2


def test_rank_statistics_see_the_effective_rank() -> None:
    K, _ = matrices(3)
    z = torch.randn(500, 30, 8, dtype=torch.float64)
    gram = (z.transpose(1, 2) @ K @ z).unsqueeze(1)  # (B, 1, m, m)
    sums = pair_sums(gram, gram, fixed=0)
    rank = float(sums["trace_sq"][0] / sums["norm_sq"][0])
    assert rank == pytest.approx(float(K.trace() ** 2 / (K * K).sum()), rel=0.1)


def test_the_variance_of_more_directions_is_foretold() -> None:
    """ζ₁ and ζ₂ from 8 directions give the variance of 20."""
    K, _ = matrices(6)
    z = torch.randn(6000, 28, 30, dtype=torch.float64)
    few, many = (pair_statistics(part @ K @ part.mT, part @ K @ part.mT, 0) for part in (z[:, :8], z[:, 8:]))
    shared, apart = float(few.shared.mean()), float(few.apart.mean())
    foretold = (4 * 18 * shared + 2 * apart) / (20 * 19)
    assert foretold == pytest.approx(float(many.estimate.var()), rel=0.25)
    assert torch.allclose(few.size, few.estimate)  # squares have no sign
