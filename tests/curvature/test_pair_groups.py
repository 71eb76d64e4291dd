"""Inner products of pairs of examples' matrices, against matrices that are formed."""

import numpy as np
import pytest
import torch

from hessdiag.curvature.pair_groups import PAIRS, HeldPairs, PairGroups, exact_means, sketched_means
from hessdiag.derivatives.jacobian_form import Dense
from hessdiag.execution.work import add


@pytest.mark.parametrize("examples", [2, 5, 8, 17, 64, 1024])
def test_groups_are_spread_over_the_batch(examples: int) -> None:
    groups = PairGroups.of(examples, largest=6, blocks=1)
    assert groups is not None
    order = groups.order()
    assert sorted(order) == list(range(examples))
    if examples == 1024:
        assert groups.count == 16
        first = order[: groups.size]
        assert max(first) - min(first) > examples // 2


def test_one_example_is_no_pair() -> None:
    assert PairGroups.of(1, largest=6, blocks=1) is None
    assert PairGroups.of(9, largest=1, blocks=1) is None


@pytest.mark.parametrize("at_once", [4, 12, 100])
def test_parts_of_any_size_add_up_to_the_same_rows(at_once: int) -> None:
    groups = PairGroups.of(50, largest=4, blocks=2)
    assert groups is not None
    parts = []
    for start in range(0, 50, groups.chunk(at_once)):
        rows = groups.rows(start, min(groups.chunk(at_once), 50 - start))
        for block in range(2):
            firsts = start + torch.tensor([*rows.firsts.values()])
            rows.add(block, firsts, firsts + groups.size + block)
        parts.append(rows.result())
    total = add(parts)
    assert set(total) == set(PAIRS)
    np.testing.assert_array_equal(total["found"], 1)
    np.testing.assert_array_equal(total["cross"][:, 0] - total["own"][:, 0], groups.size)
    np.testing.assert_array_equal(total["cross"][:, 1] - total["own"][:, 0], groups.size + 1)


def dense(B: int = 3, N: int = 5, P: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Jacobians (B, N, P), square roots A of the loss's Hessians (B, N, N), and inner products of all pairs."""
    generator = torch.Generator().manual_seed(0)
    J, A = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((B, N, P), (B, N, N)))
    G = torch.einsum("bnp,bnm,bkm,bkq->bpq", J, A, A, J).flatten(1)
    return J, A, G @ G.T


def test_all_outputs_give_the_products_exactly() -> None:
    J, A, inner = dense()
    (own,), (cross,) = exact_means(torch.einsum("bnp,ckp->bnck", J, J).unsqueeze(0), (A @ A.mT).unsqueeze(0))
    assert float(own) == pytest.approx(float(inner.trace() / 3))
    assert float(cross) == pytest.approx(float((inner.sum() - inner.trace()) / 6))


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("fixed", [0, 2, 5])
def test_directions_give_them_without_bias(fixed: int, root: bool) -> None:
    J, A, inner = dense()
    B, N, _ = J.shape
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(1 if fixed == N else 3000):
        basis = torch.linalg.qr(torch.randn(B, N, N, generator=generator, dtype=torch.float64)).Q[:, :, :fixed].mT
        omega = torch.randn(B, 0 if fixed == N else 6, N, generator=generator, dtype=torch.float64)
        z = torch.cat([basis, omega - omega @ basis.mT @ basis], dim=1)  # (B, m, N)
        sent = torch.einsum("bkm,bnm->bkn", z, A) if root else torch.cat([z, z @ (A @ A.mT)], dim=1)
        W = sent @ J
        K = torch.einsum("bkp,clp->bkcl", W, W).unsqueeze(0)
        found.append([float(each) for each in sketched_means(K, fixed=fixed, root=root)])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    expected = [float(inner.trace() / 3), float((inner.sum() - inner.trace()) / 6)]
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=0) if fixed == N else None
    assert (np.abs(mean - expected) <= 4 * error + 1e-9 * np.abs(expected)).all()


def test_pairs_of_examples_that_come_one_after_the_other() -> None:
    """The first directions of each, though the memory of one is written to by the next; None is zero."""
    groups = PairGroups.of(3, largest=2, blocks=3)
    assert groups is not None
    torch.manual_seed(0)
    J = torch.randn(2, 6, 7, dtype=torch.float64)
    memory = torch.empty(1, 6, 7, dtype=torch.float64)
    rows = groups.rows(0, 2)
    held = HeldPairs(rows, 4)
    for b in range(2):
        memory.copy_(J[b : b + 1])
        held.see(0, Dense(memory))
        held.see(1, Dense(memory) if b else None)
        held.see(2, None)
    assert not held.held
    result = rows.result()
    few = J[:, :4]
    own, cross = sketched_means(torch.einsum("bkp,clp->bkcl", few, few).unsqueeze(0), fixed=0, root=True)
    assert result["own"][0, 0] == pytest.approx(float(own))
    assert result["cross"][0, 0] == pytest.approx(float(cross))
    assert result["own"][0, 1] != 0
    assert result["cross"][0, 1] == 0
    assert not result["own"][0, 2]
    alone = HeldPairs(groups.rows(2, 1), 4)  # the last example is in no group
    alone.see(0, Dense(memory))
    assert not alone.held
    assert not alone.rows.result()["found"].any()
