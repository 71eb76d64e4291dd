"""Values, gradients and Hessian products of the built-in losses against torch's own losses and autograd."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.derivatives import losses
from hessdiag.derivatives.losses import CallableLoss, CrossEntropy, MeanSquaredError, resolve_loss
from hessdiag.errors import HessdiagError

B, C = 4, 3


def cases():
    y, dense = torch.randn(B, C, dtype=torch.float64), torch.randn(B, C, 5, dtype=torch.float64)
    R = torch.randn(C, C, dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 1])
    some = torch.randint(C, (B, 5))
    some[0, :3] = -100
    probabilities, t = torch.rand(B, C, dtype=torch.float64), torch.randn(B, C, dtype=torch.float64)
    return {
        "quadratic": (losses.RandomQuadratic(R), y, None, lambda a, t: a @ R @ a),
        "labels": (CrossEntropy(), y, labels, lambda a, t: F.cross_entropy(a[None], t[None])),
        "probabilities": (CrossEntropy(), y, probabilities, lambda a, t: F.cross_entropy(a[None], t[None])),
        "positions": (CrossEntropy(), dense, some, lambda a, t: F.cross_entropy(a[None], t[None])),
        "sequence": (CrossEntropy(-1), dense.transpose(1, 2), some, lambda a, t: F.cross_entropy(a.T[None], t[None])),
        "mse": (MeanSquaredError(), y, t, lambda a, t: F.mse_loss(a, t)),
        "mse of one output": (MeanSquaredError(), y[:, :1], t[:, 0], lambda a, t: F.mse_loss(a[0], t)),
        "one-hot": (CrossEntropy(), y, F.one_hot(labels), lambda a, t: F.cross_entropy(a[None], t[None] * 1.0)),
    }  # fmt: skip


def held_against_autograd(loss: losses.Loss, y: Tensor, targets: Tensor | None, one: Callable[..., Tensor]) -> None:
    """Value, gradient, Hessian and its root, example by example, and products with several vectors."""
    S, v, w = loss.hessian_matrix(y, targets), torch.randn_like(y), torch.randn_like(y)
    product = loss.hessian_product(y, targets, v)
    for b in range(len(y)):
        a = y[b].clone().requires_grad_()
        value = one(a, None if targets is None else targets[b])
        (g,) = torch.autograd.grad(value, a, create_graph=True)
        rows = torch.stack([torch.autograd.grad(c, a, retain_graph=True)[0].flatten() for c in g.flatten()])
        torch.testing.assert_close(loss.value(y, targets)[b], value.detach(), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(loss.gradient(y, targets)[b], g.detach(), rtol=1e-11, atol=1e-14)
        torch.testing.assert_close(S[b], rows, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(product[b].flatten(), rows @ v[b].flatten(), rtol=1e-11, atol=1e-13)
    for several in (loss.hessian_products, loss.root_products)[: 1 + loss.has_root]:
        for some in (torch.stack([v, w]), v[None, :1].expand(2, *y.shape)):  # a basis is expanded
            expected = torch.cat([several(y, targets, each[None]) for each in some])
            torch.testing.assert_close(several(y, targets, some), expected, rtol=1e-12, atol=1e-14)
    if loss.has_root:
        (back,) = loss.root_products(y, targets, loss.root_transposed_product(y, targets, v)[None])
        torch.testing.assert_close(back, product, rtol=1e-11, atol=1e-13)
        a = (loss.root_products(y, targets, v[None])[0] * w).sum()
        torch.testing.assert_close(a, (v * loss.root_transposed_product(y, targets, w)).sum())


@pytest.mark.parametrize("name", cases())
def test_against_autograd(name: str) -> None:
    held_against_autograd(*cases()[name])


def test_the_random_matrix_is_standard_normal_and_follows_the_seed_alone() -> None:
    kinds = [(0, torch.float64), (0, torch.float32), (1, torch.float64)]
    R, single, other = (losses.RandomQuadratic.draw(300, seed=s, like=torch.zeros((), dtype=d)).R for s, d in kinds)
    torch.testing.assert_close(R.float(), single)
    assert not torch.equal(R, other)
    assert abs(float(R.mean())) < 4 / 300
    assert abs(float(R.square().mean()) - 1) < 4 * 2**0.5 / 300


T = 4
SQUARE = torch.randn(B, T, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
INDEX = torch.randint(T, (B, T), generator=torch.Generator().manual_seed(1))
TARGETS = {
    "indices": lambda dim: INDEX,
    "one-hot": lambda dim: F.one_hot(INDEX, T).movedim(-1, dim),
    "probabilities": lambda dim: SQUARE.softmax(dim),
}


@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("kind", TARGETS)
def test_the_class_dimension_is_one_for_all_kinds_of_targets(kind: str, dim: int) -> None:
    """As many positions as classes: asked for, or by the model's convention."""
    targets = TARGETS[kind](dim)

    def one(a: Tensor, t: Tensor) -> Tensor:
        classes_first = [s if dim == 1 or s.dim() == 1 else s.T for s in (a, t)]
        return F.cross_entropy(classes_first[0][None], classes_first[1][None] * (1 if kind == "indices" else 1.0))

    for reading in (losses.Reading(class_dim=dim), losses.Reading(usual=dim)):
        loss = resolve_loss("cross-entropy", y=SQUARE, targets=targets, seed=0, reading=reading)
        held_against_autograd(loss, SQUARE, targets, one)
    if kind != "indices":  # which say themselves along what they sum to one
        assert resolve_loss("cross-entropy", y=SQUARE, targets=targets, seed=0).class_dim == dim % 3


CE, Y, L = "cross-entropy", torch.randn(B, C, dtype=torch.float64), torch.tensor([0, 2, 1, 1])
TWO = r"pass class_dim=1 or class_dim=-1 \(--output :1 or --output :-1\)"
ZEROS, OTHERS = torch.zeros(B, C), "class_dim 1: it is for loss 'cross-entropy' alone"


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # off during a measurement
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # what torch takes a text for
@pytest.mark.parametrize(("loss", "y", "targets", "class_dim", "message"), [
    ("random-quadratic", torch.ones(1, 3_000_000), None, None, "use loss 'cross-entropy' or 'mse'"),
    ("mse", Y, L, None, "of classes targets.long"),
    (nn.MultiMarginLoss(), Y, L, None, r"'MultiMarginLoss' cannot be differentiated twice \(\w+: derivative for"),
    (lambda out, batch: out.loss, Y, L, None, "has no attribute 'loss'.*pick the tensor with output="),
    (lambda out, t: F.mse_loss(out["logits"], t), Y, L, None, "of a model's output object pick the tensor with"),
    (lambda y: y.sum(), Y, L, None, "takes 1 positional argument.*write a function of these two"),
    (lambda y, t: 1.0, Y, L, None, "gave a float: return a scalar tensor"),
    (lambda y, t: y, Y, L, None, "return a scalar"),
    (nn.BCEWithLogitsLoss(), Y, L, None, r"outputs \(1, 3\) and targets \(1,\).*Target size"),
    (CE, SQUARE, INDEX, None, TWO), (CE, SQUARE, SQUARE, None, TWO),
    (CE, SQUARE, torch.eye(T).expand(B, T, T), None, TWO),
    (CE, ZEROS, ZEROS[:, 0], None, r"float32 of shape \(4,\), expected class .* pass targets.long\(\)"),
    (CE, ZEROS, L[:, None], None, r"pass targets.squeeze\(1\)"),
    (CE, ZEROS, torch.tensor([1, 3, 2, 2]), None, "pass targets - 1"),
    (CE, ZEROS[:, :1], L % 2, None, r"pass targets.float\(\).unsqueeze\(1\) with loss=nn.BCEWithLogitsLoss"),
    (nn.BCEWithLogitsLoss(), ZEROS, ZEROS.long(), None, r"pass targets of shape \(4, 3\) and torch.float32"),
    (CE, ZEROS, ZEROS[:, :2].long(), None, r"integers of shape \(4,\), or probabilities"),
    (CE, ZEROS, torch.full((B, C), 2), None, "not one-hot: pass class indices"),
    (CE, ZEROS, L, 2, r"class_dim 2: the outputs are \(batch, 3\), pass 1 to 1"), (CE, ZEROS, L, 0, "class_dim 0"),
    ("mse", ZEROS, ZEROS, 1, OTHERS), ("random-quadratic", ZEROS, ZEROS, 1, OTHERS),
    (F.mse_loss, ZEROS, ZEROS, 1, OTHERS),
])  # fmt: skip
def test_what_no_loss_can_use_is_one_sentence(loss, y: Tensor, targets: Tensor | None, class_dim, message: str) -> None:
    reading = None if class_dim is None else losses.Reading(class_dim=class_dim)
    with pytest.raises(HessdiagError, match=message) as caught:
        resolve_loss(loss, y=y, targets=targets, seed=0, reading=reading)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("function", "targets", "kind"), [
    (lambda y, t: ((y - t) ** 2).mean(), Y, MeanSquaredError), (lambda y, t: F.cross_entropy(y, t), L, CrossEntropy),
    (lambda y, t: ((y - t) ** 2).sum(), Y, CallableLoss),
    (lambda y, t: F.mse_loss(y, t) + 1e-4 * y.sum(), Y, CallableLoss),
    (lambda y, t: F.cross_entropy(y, t, label_smoothing=0.01), L, CallableLoss),
])  # fmt: skip
def test_a_function_that_is_a_known_loss_is_known(function, targets: Tensor, kind: type[losses.Loss]) -> None:
    loss = resolve_loss(function, y=Y, targets=targets, seed=0)
    assert (type(loss), loss.name) == (kind, "<lambda>")


@pytest.mark.parametrize("kind", [nn.L1Loss, nn.CrossEntropyLoss])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_of_a_batch_is_what_its_author_returns(kind, reduction: str) -> None:
    """The mean over its examples, whether it is a mean, a sum, or a mean over labels that are not left out."""
    y, t = torch.randn(2, B, C, dtype=torch.float64)
    targets = torch.tensor([0, -100, 2, 1]) if kind is nn.CrossEntropyLoss else t
    function, whole = kind(reduction=reduction), y.clone().requires_grad_()
    loss = resolve_loss(function, y=y, targets=targets, seed=0, reading=losses.Reading(per="batch"))
    assert (loss.name, loss.couples) == (kind.__name__, kind is nn.L1Loss and reduction == "sum")
    torch.testing.assert_close(loss.value(y, targets).mean(), function(y, targets))
    (gradient,) = torch.autograd.grad(function(whole, targets), whole)
    torch.testing.assert_close(loss.gradient(y, targets) / B, gradient)


def test_a_guess_counts_every_one_of_several_labels() -> None:
    kind, guess = losses.chance_loss(losses.CrossEntropy(), torch.zeros(8, 4), torch.full((8, 4), 6.0))
    assert (kind, guess) == ("cross-entropy", pytest.approx(33.271065))
