"""The components of the variance have the means that the estimate's own variance has, and less noise."""

import numpy as np
import pytest
import torch

from hessdiag.curvature.estimators.components import CYCLE_VARIANCE, component_sums, cycles_of, shrunk
from hessdiag.curvature.estimators.pairs import pair_statistics, pair_sums


def decaying(size: int = 20) -> torch.Tensor:
    """Symmetric, of effective rank 4 or so."""
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return Q @ torch.diag(0.7 ** torch.arange(size).double()) @ Q.T


def directions(count: int, q: int, basis: torch.Tensor) -> torch.Tensor:
    """(count, m, N): the basis (N, r), and q random directions orthogonal to it."""
    omega = torch.randn(count, q, len(basis), dtype=torch.float64)
    omega = omega - (omega @ basis) @ basis.T
    return torch.cat([basis.T.expand(count, -1, -1), omega], dim=1)


@pytest.mark.parametrize("fixed", [0, 2])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_variance_of_more_directions_is_foretold(fixed: int, symmetric: bool) -> None:
    """Components from 8 directions give the variance of an estimate from 20."""
    torch.manual_seed(1)
    Y = decaying()
    if not symmetric:
        Y = Y @ torch.diag(torch.linspace(0.3, 1.7, 20, dtype=torch.float64))
    basis = torch.linalg.qr(Y @ torch.randn(20, fixed, dtype=torch.float64)).Q
    few, many = (z @ Y @ z.mT for z in (directions(6000, 8, basis), directions(6000, 20, basis)))
    found = component_sums(few.unsqueeze(1), fixed=fixed)
    shared = float(found["shared"][0, 0]) / 6000
    apart = float(found["apart"][0, 0]) / 6000 + 3 * shared
    foretold = (4 * 18 * shared + 2 * apart) / (20 * 19)
    estimates = pair_statistics(many.unsqueeze(1), many.unsqueeze(1), fixed).estimate
    assert foretold == pytest.approx(float(estimates.var()), rel=0.2)


def flat_pilots(count: int, blocks: int, q: int = 12, size: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """ζ₁/θ² by cycles and by pairs, (count, blocks) each, of flat spectra, of which it is 2 / `size`."""
    z = torch.randn(count * blocks, q, size, dtype=torch.float64)
    X = (z @ z.mT).view(count, 1, blocks, q, q)
    values = [pair_sums(x, x, fixed=0) for x in X]
    theta = torch.tensor(np.array([np.diagonal(each["value"]) for each in values]))
    cycles = torch.tensor(np.array([np.diagonal(component_sums(x, fixed=0)["shared"]) for x in X]))
    pairs = torch.tensor(np.array([np.diagonal(each["shared"]) for each in values]))
    return cycles / theta**2, pairs / theta**2


def test_cycles_tell_more_than_covariances_of_pairs_where_the_rank_is_high() -> None:
    torch.manual_seed(2)
    cycles, pairs = flat_pilots(40, 20)
    assert float(cycles.mean()) == pytest.approx(0.02, abs=0.01)
    assert float(cycles.std()) < 0.8 * float(pairs.std())
    assert float(cycles.var()) == pytest.approx(CYCLE_VARIANCE / cycles_of(12), rel=0.5)


def test_the_largest_of_many_noisy_components_is_shrunk_to_the_truth() -> None:
    torch.manual_seed(3)
    cycles, _ = flat_pilots(20, 60)
    ranks = np.full(60, 100.0)
    found = np.array([shrunk(each.numpy(), ranks, cycles=cycles_of(12)).max() for each in cycles])
    assert float(cycles.max(dim=1).values.mean()) > 0.15  # of 0.02
    assert found.mean() < 0.06
    assert found.min() >= 0.02


def test_components_that_differ_from_each_other_by_more_than_noise_stay() -> None:
    found = shrunk(np.array([1.5, 0.5, 0.02]), np.array([2.0, 8.0, 200.0]), cycles=1485.0)
    np.testing.assert_allclose(found, [1.5, 0.5, 0.02], rtol=0.2)
