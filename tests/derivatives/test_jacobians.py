"""Jacobians of embeddings as looked-up rows, against the weight gradients that autograd gives."""

import pytest
import torch
from torch import Tensor, nn

from hessdiag.derivatives.backward import lookup_jacobian
from hessdiag.derivatives.jacobians import DenseJacobian, Jacobian, LookupJacobian, LowRankJacobian, merge
from hessdiag.derivatives.magnitude import PIECE, largest_entry, sum_of_squares

B, C, V, n = 3, 2, 7, 4


def random(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64)


def lookup(examples: int = B, tokens: int = 5, cotangents: int = C) -> LookupJacobian:
    return LookupJacobian.of(torch.randint(V, (examples, tokens)), random(examples, cotangents, tokens, n), V)


def sites(examples: int = B, T: int = 3, cotangents: int = C) -> LowRankJacobian:
    return LowRankJacobian(random(examples, n, T), random(examples, cotangents, V, T))


def transposed(examples: int = B, T: int = 3, cotangents: int = C) -> LowRankJacobian:
    return LowRankJacobian(random(examples, V, T), random(examples, cotangents, n, T), transposed=True)


def dense(examples: int = B, size: float = 3.0, cotangents: int = C) -> DenseJacobian:
    return DenseJacobian(random(examples, cotangents, V * n), size=size)


FORMS = {
    **{"lookup": lookup, "sites": sites, "sites transposed": transposed, "dense": dense},
    "tied": lambda *a: merge([sites(*a), lookup(*a)]),
    "all": lambda *a: merge([dense(*a), sites(*a), transposed(*a), lookup(*a), lookup(*a), sites(*a)]),
}


def formed(jacobian: Jacobian) -> Tensor:
    whole = jacobian.dense()
    return whole.J * whole.size


@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_are_weight_gradients(padding: int | None, rows: int) -> None:
    layer, numbers = nn.Embedding(V, n, padding_idx=padding).double(), torch.randint(V, (B * rows, 6))
    numbers[0, :3] = 2
    phi = random(C, *numbers.shape, n)
    J = lookup_jacobian(layer, numbers, phi, examples=B)
    for b in range(B):
        own = slice(b * rows, (b + 1) * rows)
        for c in range(C):
            (want,) = torch.autograd.grad((layer(numbers[own]) * phi[c, own]).sum(), layer.weight)
            torch.testing.assert_close(J.dense().J[b, c], want.flatten(), rtol=1e-12, atol=1e-13)


def test_rows_are_held_once() -> None:
    J = LookupJacobian.of(torch.tensor([[4, 1, 4, 4], [0, 3, 1, 0]]), random(2, C, 4, n), V)
    assert (J.numbers.tolist(), J.phi.shape) == ([[1, 4, 0], [0, 1, 3]], (2, C, 3, n))
    assert not J.phi[0, :, 2].any()


@pytest.mark.parametrize("name", FORMS)
def test_all_forms_tell_the_same_as_the_formed_jacobian(name: str) -> None:
    torch.manual_seed(1)
    here = FORMS[name]()
    J = formed(here)
    assert here.shape == (B, C)
    torch.testing.assert_close(here.gram(), torch.einsum("bcp,bep->bce", J, J), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(here.total(), J.sum((0, 1)))
    torch.testing.assert_close(formed(here.narrow(1, 3)), J[1:3])
    torch.testing.assert_close(formed(here.of_cotangents(1, 2)), J[:, 1:2])


@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("tied", "all")])
def test_rows_of_the_weight(name: str) -> None:
    here, numbers = FORMS[name](), torch.randint(V, (B, 4))
    J = formed(here).view(B, C, V, n)
    picked = torch.stack([matrix[:, chosen] for matrix, chosen in zip(J, numbers, strict=True)])
    torch.testing.assert_close(here.rows(numbers, V) * here.size, picked)


@pytest.mark.parametrize("other", FORMS)
@pytest.mark.parametrize("name", FORMS)
def test_inner_products_and_sums_of_any_two_forms(name: str, other: str) -> None:
    here, more = FORMS[name](), FORMS[other](2, 4, 3)
    torch.testing.assert_close(here.cross(more), torch.einsum("bcp,dep->bcde", formed(here), formed(more)))
    like = FORMS[other]()
    torch.testing.assert_close(formed(merge([here, like])), formed(here) + formed(like))
    torch.testing.assert_close(formed(merge([here, like, here])), 2 * formed(here) + formed(like))


def test_a_tied_weight_is_never_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    tied = merge([sites(), lookup()])
    want = torch.einsum("bcp,bep->bce", formed(tied), formed(tied))
    for form in (LookupJacobian, LowRankJacobian):
        monkeypatch.setattr(form, "dense", lambda _: pytest.fail("formed"))
    torch.testing.assert_close(tied.gram(), want)
    tied.cross(tied)


def test_small_and_large_gradients_fit_float32() -> None:
    numbers, phi = torch.randint(V, (B, 5)), torch.randn(B, C, 5, n)
    want = LookupJacobian.of(numbers, phi.double(), V).gram()
    for scale in (1e-25, 1e25):
        tiny = merge([LookupJacobian.of(numbers, phi * scale, V), LookupJacobian.of(numbers, 0 * phi, V)])
        torch.testing.assert_close(tiny.gram() / scale**2, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inputs", [3, 60, 400])
@pytest.mark.parametrize("held", [40, 10**6])
def test_forming_a_part_at_a_time_gives_the_same_gram_matrix(held: int, inputs: int, monkeypatch) -> None:
    """Also of fewer sites than inputs, which are factored."""
    monkeypatch.setattr("hessdiag.derivatives.jacobians.FORMED", held)
    J = LowRankJacobian(torch.randn(3, inputs, 60).double(), torch.randn(3, 2, 60, 70).double().mT)
    torch.testing.assert_close(J.gram(), J.dense().gram(), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("count", [0, 1, PIECE - 1, PIECE, 2 * PIECE + 3])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_squares_are_summed_in_float64_by_pieces(count: int, size: float) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(0)) * size
    assert sum_of_squares(values) == pytest.approx(float(values.double().square().sum()), rel=1e-12)
    assert sum_of_squares(values.expand(3, -1).T) == pytest.approx(3 * sum_of_squares(values), rel=1e-12)


def test_the_largest_entry_is_found_in_any_order_of_memory() -> None:
    values = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    values[1, 2, 3] = -7.0
    for each in (values, values.permute(2, 0, 1), values[:, 1:, ::3], values[1:2].expand(6, 4, 5), values[1, 2, 3]):
        assert largest_entry(each) == 7.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grams_are_precise_where_sums_over_sites_cancel(dtype: torch.dtype) -> None:
    u, phi = (random(B, 100, 1) + 1e-4 * random(B, 100, 9)).to(dtype), random(B, C, 40, 9)
    phi = (phi - phi.mean(dim=3, keepdim=True)).to(dtype)
    J = torch.einsum("bcnt,bdt->bcnd", phi.double(), u.double()).flatten(2)
    found, wanted = LowRankJacobian.of(u, phi).gram().double(), J @ J.mT
    assert float((found - wanted).norm() / wanted.norm()) < (2e-4 if dtype == torch.float32 else 1e-11)
