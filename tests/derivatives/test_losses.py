"""Values, gradients and Hessian products of the built-in losses against torch's own losses and autograd."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.derivatives.losses import (
    CallableLoss,
    CrossEntropy,
    MeanSquaredError,
    RandomQuadratic,
    hessian_matrix,
    resolve_loss,
)
from hessdiag.errors import HessdiagError

B, C = 4, 3


def cases():
    y = torch.randn(B, C, dtype=torch.float64)
    dense = torch.randn(B, C, 5, dtype=torch.float64)
    R = torch.randn(C, C, dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 1])
    some = torch.randint(C, (B, 5))
    some[0, :3] = -100
    probabilities = torch.rand(B, C, dtype=torch.float64)
    t = torch.randn(B, C, dtype=torch.float64)
    return {
        "quadratic": (RandomQuadratic(R), y, None, lambda a, t: a @ R @ a),
        "labels": (CrossEntropy(), y, labels, lambda a, t: F.cross_entropy(a[None], t[None])),
        "probabilities": (CrossEntropy(), y, probabilities, lambda a, t: F.cross_entropy(a[None], t[None])),
        "positions": (CrossEntropy(), dense, some, lambda a, t: F.cross_entropy(a[None], t[None])),
        "sequence": (CrossEntropy(-1), dense.transpose(1, 2), some, lambda a, t: F.cross_entropy(a.T[None], t[None])),
        "mse": (MeanSquaredError(), y, t, lambda a, t: F.mse_loss(a, t)),
        "callable": (CallableLoss(F.mse_loss), y, t, lambda a, t: F.mse_loss(a, t)),
        "callable huber": (CallableLoss(F.huber_loss), 2 * y, t, lambda a, t: F.huber_loss(a, t)),
        "callable without targets": (CallableLoss(lambda y, t: y.exp().mean()), y, None, lambda a, t: a.exp().mean()),
        "callable labels": (CallableLoss(F.cross_entropy), y, labels, lambda a, t: F.cross_entropy(a[None], t[None])),
    }


@pytest.mark.parametrize("name", cases())
def test_against_autograd(name: str) -> None:
    loss, y, targets, one = cases()[name]
    v = torch.randn_like(y)
    product, S = loss.hessian_product(y, targets, v), hessian_matrix(loss, y, targets)
    for b in range(B):
        t = None if targets is None else targets[b]
        a = y[b].clone().requires_grad_()
        value = one(a, t)
        (g,) = torch.autograd.grad(value, a, create_graph=True)
        rows = torch.stack([torch.autograd.grad(c, a, retain_graph=True)[0].flatten() for c in g.flatten()])
        torch.testing.assert_close(loss.value(y, targets)[b], value.detach(), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(loss.gradient(y, targets)[b], g.detach(), rtol=1e-11, atol=1e-14)
        torch.testing.assert_close(S[b], rows, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(product[b].flatten(), rows @ v[b].flatten(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["labels", "probabilities", "positions", "sequence", "mse"])
def test_the_root_multiplies_to_the_hessian(name: str) -> None:
    loss, y, targets, _ = cases()[name]
    v, w = torch.randn_like(y), torch.randn_like(y)
    there_and_back = loss.root_product(y, targets, loss.root_transposed_product(y, targets, v))
    torch.testing.assert_close(there_and_back, loss.hessian_product(y, targets, v), rtol=1e-11, atol=1e-14)
    a = (loss.root_product(y, targets, v) * w).sum()
    torch.testing.assert_close(a, (v * loss.root_transposed_product(y, targets, w)).sum())


def test_the_random_matrix_follows_the_seed_alone() -> None:
    draws = [
        RandomQuadratic.draw(3, seed=s, like=torch.zeros((), dtype=d)).R
        for s, d in [(0, torch.float64), (0, torch.float32), (1, torch.float64)]
    ]
    torch.testing.assert_close(draws[0].float(), draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_entries_of_the_random_matrix_are_standard_normal() -> None:
    R = RandomQuadratic.draw(300, seed=0, like=torch.zeros((), dtype=torch.float64)).R
    assert abs(float(R.mean())) < 4 / 300
    assert abs(float(R.square().mean()) - 1) < 4 * 2**0.5 / 300


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(HessdiagError, match="random-quadratic, cross-entropy, mse, or a callable"):
        resolve_loss("hinge", y=torch.zeros(1, 2), targets=None, seed=0)


def test_a_callable_is_known_by_its_name() -> None:
    def my_loss(y: Tensor, t: Tensor | None) -> Tensor:
        return y.sum()

    assert resolve_loss(my_loss, y=torch.zeros(1, 2), targets=None, seed=0).name == "my_loss"


def test_a_random_quadratic_of_a_language_model_is_refused() -> None:
    with pytest.raises(HessdiagError, match="use loss 'cross-entropy' or 'mse'"):
        RandomQuadratic.draw(3_000_000, seed=0, like=torch.ones(1))
