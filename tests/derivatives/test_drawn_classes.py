"""Drawn classes: their second moments are the loss's Hessian, however certain the network is."""

import pytest
import torch
from torch import Tensor

import hessdiag.derivatives.drawn_classes as drawn_classes
from hessdiag.derivatives.cross_entropy import CrossEntropy
from hessdiag.derivatives.drawn_classes import DRAWS, DrawnClasses

B, T, V, d = 2, 3, 7, 4


def draw(y: Tensor, weights: Tensor, *, count: int = 5, examples: tuple[int, ...] = (0, 1)) -> DrawnClasses:
    labels = torch.zeros(weights.shape, dtype=torch.int64)
    return DrawnClasses.draw(y, weights, labels, count=count, seed=0, name="test", examples=examples)


@pytest.mark.parametrize("peaked", [0.0, 1.0, 5.0])
def test_second_moments_are_the_hessian(peaked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four standard errors of a mean over many, of few draws each; other positions have nothing in common."""
    monkeypatch.setattr(drawn_classes, "DRAWS", 3)
    torch.manual_seed(0)
    y, weights, count = torch.randn(1, 2, V, dtype=torch.float64) * peaked, torch.tensor([[0.3, 2.0]]).double(), 20000
    phi = draw(y, weights, count=count, examples=(0,)).formed()[:, 0]  # (count, T, V)
    p = y[0].softmax(dim=1)
    S = (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)) * weights[0, :, None, None]
    products = phi.unsqueeze(3) * phi.unsqueeze(2)  # (count, T, V, V)
    error = products.std(dim=0) / count**0.5
    rare = 10 * float(S.max()) / count  # classes of which hardly any is drawn
    assert bool(((products.mean(dim=0) - S).abs() <= 4.5 * error + rare).all())
    between = phi[:, 0, :, None] * phi[:, 1, None, :]
    assert bool((between.mean(dim=0).abs() <= 4.5 * between.std(dim=0) / count**0.5 + 1e-12).all())


@pytest.mark.parametrize("logit", [10.0, 20.0, 40.0, 1000.0])
def test_a_certain_network_has_gradients_as_large_as_its_hessian(logit: float) -> None:
    """Each is as long as the root of tr S, not large now and then; where all is certain, there are none."""
    y = torch.zeros(1, 1, V, dtype=torch.float64)
    y[..., 2] = logit
    drawn = draw(y, torch.ones(1, 1, dtype=torch.float64), count=50, examples=(0,))
    p = y[0, 0].softmax(dim=0)
    trace = float((p * (1 - p)).sum())
    lengths = drawn.formed().flatten(1).square().sum(dim=1)
    assert bool(lengths.isfinite().all())
    assert float(lengths.mean()) == pytest.approx(trace, rel=0.2, abs=1e-15)
    assert float(lengths.max()) <= DRAWS * trace * (1 + 1e-6)


def test_the_slope_is_the_gradient_of_the_loss() -> None:
    """As large as the gradients before it, by a known factor; nothing at positions that are left out."""
    torch.manual_seed(0)
    y, targets = torch.randn(B, T, V), torch.randint(V, (B, T))
    targets[0, 1] = -100
    loss = CrossEntropy(class_dim=-1, weight=torch.rand(V))
    weights = loss.label_weights(y, targets)
    assert weights is not None
    drawn = DrawnClasses.draw(y, weights, targets, count=4, seed=0, name="test", examples=(0, 1))
    both, size = drawn.with_slope()
    assert len(both) == 5
    torch.testing.assert_close(both.formed()[-1], loss.gradient(y, targets) * size, rtol=1e-5, atol=1e-6)
    assert float(both.sizes[-1].abs().max()) == pytest.approx(float(drawn.sizes.abs().max()), rel=1e-5)
    assert not both.formed()[:, 0, 1].any()


def test_products_take_no_gradient_formed() -> None:
    torch.manual_seed(0)
    drawn = draw(torch.randn(B, T, V).double(), torch.rand(B, T).double())
    weight, moved = torch.randn(V, d).double(), torch.randn(3, B, T, V).double()
    torch.testing.assert_close(drawn.through(weight), drawn.formed() @ weight, rtol=1e-12, atol=1e-12)
    want = torch.einsum("cbtv,obtv->bco", drawn.formed(), moved)
    torch.testing.assert_close(drawn.along(moved), want, rtol=1e-12, atol=1e-12)


def test_an_example_is_given_the_same_whatever_is_measured_with_it() -> None:
    torch.manual_seed(0)
    y, weights = torch.randn(B, T, V), torch.rand(B, T)
    both, one = draw(y, weights, examples=(4, 9)), draw(y[1:], weights[1:], examples=(9,))
    assert torch.equal(both.narrow(1, 2).formed(), one.formed())
    assert not torch.equal(both.classes[:, 0], both.classes[:, 1])
    assert torch.equal(both.of_cotangents(2, 3).formed(), both.formed()[2:3])


@pytest.mark.parametrize("loss", [CrossEntropy(class_dim=-1, label_smoothing=0.1), CrossEntropy(class_dim=-1)])
def test_only_labels_have_weights(loss: CrossEntropy) -> None:
    y = torch.randn(B, T, V)
    assert loss.label_weights(y, None) is None
    assert loss.label_weights(y, y.softmax(dim=2)) is None
    assert (loss.label_weights(y, torch.zeros(B, T, dtype=torch.int64)) is None) == bool(loss.label_smoothing)
