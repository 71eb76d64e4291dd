"""Jacobians along drawn classes, against those with all gradients formed."""

import pytest
import torch
from torch import Tensor

import hessdiag.derivatives.class_sites as class_sites
from hessdiag.derivatives.class_sites import ClassSites
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.lookup import Lookup
from hessdiag.derivatives.summed import Summed, merge

B, C, T, V, d = 2, 5, 6, 30, 4


def random(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64)


def drawn_sites(peaked: float = 1.0) -> ClassSites:
    """Of B examples, with the slope behind C drawn gradients; the more peaked, the more often a class is drawn."""
    y, weights = random(B, T, V) * peaked, torch.rand(B, T, dtype=torch.float64)
    weights[0, 1] = 0
    labels = torch.randint(V, (B, T))
    drawn = DrawnClasses.draw(y, weights, labels, count=C, seed=0, name="test", examples=range(B))
    return ClassSites(random(B, d, T), drawn.with_slope()[0], 3.0)


@pytest.mark.parametrize("often", [0, 8, 10**6])
@pytest.mark.parametrize("peaked", [0.0, 2.0, 30.0])
def test_products_are_those_of_formed_gradients(peaked: float, often: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether draws of the same class are paired one by one, all multiplied, or some of each."""
    monkeypatch.setattr(class_sites, "OFTEN", often)
    monkeypatch.setattr(class_sites, "FORMED", 200)
    J = drawn_sites(peaked)
    formed = J.sites()
    assert J.shape == formed.shape == (B, C + 1)
    torch.testing.assert_close(J.gram(), formed.gram(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(J.cross(J), formed.cross(formed), rtol=1e-11, atol=1e-11)


def test_everything_else_is_that_of_formed_gradients() -> None:
    J, u = drawn_sites(), random(3, V * d)
    formed = J.sites()
    same = {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(J.along(u), formed.along(u), **same)
    numbers = torch.tensor([[3, 5, 0, 0], [1, 2, 29, 0]])
    torch.testing.assert_close(J.rows(numbers, V), formed.rows(numbers, V), **same)
    torch.testing.assert_close(J.total(), formed.total(), **same)
    torch.testing.assert_close(J.dense().J, formed.dense().J, **same)
    torch.testing.assert_close(J.narrow(1, 2).gram(), formed.gram()[1:], **same)
    torch.testing.assert_close(J.of_cotangents(2, 4).gram(), formed.of_cotangents(2, 4).gram(), **same)
    torch.testing.assert_close(J.over_cotangents().gram(), formed.over_cotangents().gram(), **same)
    torch.testing.assert_close(J.paired(J), formed.gram(), **same)
    torch.testing.assert_close(J.cross(formed), formed.cross(formed), **same)


def test_a_tied_embedding_adds_up() -> None:
    """The weight of an embedding and of the head: the rows that its tokens read are all that the two share."""
    J = drawn_sites()
    read = Lookup.of(torch.randint(V, (B, T)), random(B, C + 1, T, d), V)
    tied, formed = merge([J, read]), merge([J.sites(), read])
    assert isinstance(tied, Summed)
    torch.testing.assert_close(tied.gram(), formed.gram(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(tied.cross(tied), formed.cross(formed), rtol=1e-11, atol=1e-11)


def test_no_gradient_is_formed_for_a_tied_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for its own Gram matrix, nor for those with other examples: of a language model each takes T × V numbers."""
    J = drawn_sites()
    tied = merge([J, Lookup.of(torch.randint(V, (B, T)), random(B, C + 1, T, d), V)])
    monkeypatch.delattr(DrawnClasses, "formed")
    assert tied.gram().shape == (B, C + 1, C + 1)
    assert tied.cross(tied).shape == (B, C + 1, B, C + 1)


def test_inputs_whose_squares_leave_float32_are_held_smaller() -> None:
    J = drawn_sites()
    single = DrawnClasses(*(getattr(J.drawn, name).float() for name in ("classes", "sizes", "p", "labels", "weights")))
    single = DrawnClasses(single.classes.long(), single.sizes, single.p, single.labels.long(), single.weights)
    tiny = ClassSites.of(J.u.float() * 1e-30, single)
    assert float(tiny.u.abs().max()) == 1.0
    torch.testing.assert_close(
        tiny.gram() * 1e60, ClassSites.of(J.u.float(), single).gram().double(), rtol=1e-5, atol=1e-6
    )
