"""Drawn classes: their second moments are the loss's Hessian, however certain the network is."""

import pytest
import torch
from torch import Tensor

import hessdiag.derivatives.sampled_softmax as sampled_softmax
from hessdiag.derivatives.jacobians import JacobianSum, LookupJacobian, merge
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.sampled_softmax import DRAWS, SampledSoftmax, SampledSoftmaxFactor

B, T, V, d = 2, 3, 7, 4


def draw(y: Tensor, weights: Tensor, *, count: int = 5, examples: tuple[int, ...] = (0, 1)) -> SampledSoftmax:
    return SampledSoftmax.draw(y, weights, count=count, seed=0, name="test", examples=examples)


def formed(drawn: SampledSoftmax) -> Tensor:
    """(C, B, T, V)."""
    return torch.stack([drawn.formed(b, torch.arange(drawn.p.shape[2])) for b in range(len(drawn.p))], dim=1)


@pytest.mark.parametrize("peaked", [0.0, 1.0, 5.0])
def test_second_moments_are_the_hessian(peaked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four standard errors of a mean over many, of few draws each; other positions have nothing in common."""
    monkeypatch.setattr(sampled_softmax, "DRAWS", 3)
    y, weights, count = torch.randn(1, 2, V, dtype=torch.float64) * peaked, torch.tensor([[0.3, 2.0]]).double(), 20000
    phi = formed(draw(y, weights, count=count, examples=(0,)))[:, 0]  # (count, T, V)
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
    lengths = formed(drawn).flatten(1).square().sum(dim=1)
    assert bool(lengths.isfinite().all())
    assert float(lengths.mean()) == pytest.approx(trace, rel=0.2, abs=1e-15)
    assert float(lengths.max()) <= DRAWS * trace * (1 + 1e-6)


def test_products_take_no_gradient_formed_and_draws_belong_to_the_example() -> None:
    drawn = draw(torch.randn(B, T, V).double(), torch.rand(B, T).double())
    weight = torch.randn(V, d).double()
    torch.testing.assert_close(drawn.through(weight), formed(drawn) @ weight, rtol=1e-12, atol=1e-12)
    torch.manual_seed(0)
    y, weights = torch.randn(B, T, V), torch.rand(B, T)
    both, one = draw(y, weights, examples=(4, 9)), draw(y[1:], weights[1:], examples=(9,))
    assert torch.equal(formed(both)[:, 1:], formed(one))
    assert not torch.equal(both.classes[:, 0], both.classes[:, 1])


@pytest.mark.parametrize("loss", [CrossEntropy(class_dim=-1, label_smoothing=0.1), CrossEntropy(class_dim=-1)])
def test_only_labels_have_weights(loss: CrossEntropy) -> None:
    y = torch.randn(B, T, V)
    assert loss.label_weights(y, None) is None
    assert loss.label_weights(y, y.softmax(dim=2)) is None
    assert (loss.label_weights(y, torch.zeros(B, T, dtype=torch.int64)) is None) == bool(loss.label_smoothing)


def drawn_sites(peaked: float = 1.0) -> SampledSoftmaxFactor:
    """Of B examples; the more peaked, the more often a class is drawn."""
    y, weights = torch.randn(B, 6, 30).double() * peaked, torch.rand(B, 6, dtype=torch.float64)
    weights[0, 1] = 0
    return SampledSoftmaxFactor(torch.randn(B, d, 6).double(), draw(y, weights), size=3.0)


@pytest.mark.parametrize("peaked", [0.0, 2.0, 30.0])
def test_everything_is_that_of_formed_gradients(peaked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formed for a few classes at a time."""
    monkeypatch.setattr(sampled_softmax, "FORMED", 200)
    J, same = drawn_sites(peaked), {"rtol": 1e-11, "atol": 1e-11}
    formed = J.low_rank()
    numbers = torch.tensor([[3, 5, 0, 0], [1, 2, 29, 0]])
    assert J.shape == formed.shape == (B, 5)
    torch.testing.assert_close(J.gram(), formed.gram(), **same)
    torch.testing.assert_close(J.cross(J), formed.cross(formed), **same)
    torch.testing.assert_close(J.rows(numbers, 30), formed.rows(numbers, 30), **same)
    torch.testing.assert_close(J.total(), formed.total(), **same)
    torch.testing.assert_close(J.dense().J, formed.dense().J, **same)
    torch.testing.assert_close(J.narrow(1, 2).gram(), formed.gram()[1:], **same)
    torch.testing.assert_close(J.cross(formed), formed.cross(formed), **same)


def test_a_tied_embedding_adds_up_and_no_gradient_is_formed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weight of an embedding and of the head: the rows that its tokens read are all that the two share."""
    J = drawn_sites()
    read = LookupJacobian.of(torch.randint(30, (B, 6)), torch.randn(B, 5, 6, d).double(), 30)
    tied, formed = merge([J, read]), merge([J.low_rank(), read])
    assert isinstance(tied, JacobianSum)
    torch.testing.assert_close(tied.gram(), formed.gram(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(tied.cross(tied), formed.cross(formed), rtol=1e-11, atol=1e-11)
    # Of a language model each takes T × V numbers.
    J = drawn_sites()
    tied = merge([J, LookupJacobian.of(torch.randint(30, (B, 6)), torch.randn(B, 5, 6, d).double(), 30)])
    monkeypatch.delattr(SampledSoftmaxFactor, "low_rank")
    assert tied.gram().shape == (B, 5, 5)


def test_inputs_whose_squares_leave_float32_are_held_smaller() -> None:
    J = drawn_sites()
    single = SampledSoftmax(J.drawn.classes, J.drawn.sizes.float(), J.drawn.p.float())
    tiny = SampledSoftmaxFactor.of(J.u.float() * 1e-30, single)
    assert float(tiny.u.abs().max()) == 1.0
    plain = SampledSoftmaxFactor.of(J.u.float(), single).gram().double()
    torch.testing.assert_close(tiny.gram() * 1e60, plain, rtol=1e-5, atol=1e-6)
