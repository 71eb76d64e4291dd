"""Effective ranks against those of known matrices."""

import numpy as np
import pytest
import torch

from hessdiag.curvature.estimators.ranks import Ranks, rank_sums


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_equal_eigenvalues_are_counted(rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(400, 2, 6, rank, generator=generator, dtype=torch.float64)
    ranks = Ranks.of({key: each.numpy() for key, each in rank_sums(w @ w.mT, fixed=0).items()})
    assert ranks.effective() == pytest.approx(np.full(2, rank), rel=0.1)
    assert ranks.median() == pytest.approx(rank, rel=0.1)
    assert ranks.scales() == pytest.approx([1 / (400 * rank) ** 0.5] * 2, rel=0.1)


def test_a_basis_is_left_out_and_no_curvature_has_no_rank() -> None:
    K = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    K[..., :2, :2] = 1.0
    ranks = Ranks.of({key: each.numpy() for key, each in rank_sums(K, fixed=2).items()})
    assert np.isnan(ranks.median())
    assert ranks.scales() == [0.0]
