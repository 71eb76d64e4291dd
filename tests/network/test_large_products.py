"""Products by oneDNN: right in every layout and mode, and PyTorch's own kernels are back afterwards."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacfwd, jacrev, vmap

import hessdiag
from hessdiag.network import large_products as room
from hessdiag.network.large_products import large_products
from tests.networks import PLAIN

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.library, "get_kernel")), reason="needs oneDNN"
)
MODEL = nn.Linear(64, 64)
LAYOUTS = {
    "plain": lambda m, n: torch.randn(m, n),
    "transposed": lambda m, n: torch.randn(n, m).t(),
    "columns of another": lambda m, n: torch.randn(m, 3 * n)[:, n : 2 * n],
    "every second column": lambda m, n: torch.randn(m, 2 * n)[:, ::2],
    "every second row": lambda m, n: torch.randn(2 * m, n)[::2],
    "expanded": lambda m, n: torch.randn(1, n).expand(m, n),
}


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where it pays, whatever this processor is, for products of every size."""
    monkeypatch.setattr(room, "pays", lambda: True)
    monkeypatch.setattr(room, "LARGE", 1)
    monkeypatch.setattr(room, "WIDE", 1)
    yield
    assert room._in_place.users == 0


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of first factors whose products were oneDNN's to take."""
    shapes: list[tuple[int, ...]] = []
    is_large = room._is_large

    def noted(a: Tensor, b: Tensor) -> bool:
        large = is_large(a, b)
        shapes.extend([tuple(a.shape)] * large)
        return large

    monkeypatch.setattr(room, "_is_large", noted)
    return shapes


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_every_layout_is_multiplied_right(first: str, second: str) -> None:
    a, b, c = LAYOUTS[first](40, 70), LAYOUTS[second](70, 50), torch.randn(50)
    with large_products(MODEL):
        found, moved, scaled = a @ b, torch.addmm(c, a, b), torch.addmm(c, a, b, alpha=2)
    expected = a.double() @ b.double()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(moved.double(), expected + c, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scaled.double(), 2 * expected + c, rtol=1e-5, atol=2e-5)


def test_every_derivative_takes_it(taken: list[tuple[int, ...]]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x, values = torch.randn(5, 6), {name: p.detach() for name, p in model.named_parameters()}

    def outputs(weight: Tensor, x: Tensor) -> Tensor:
        return functional_call(model, values | {"0.weight": weight}, (x,))

    def derivatives() -> list[Tensor]:
        weight = values["0.weight"]
        curved = hessian(lambda w: outputs(w, x).square().sum())(weight)
        each = vmap(lambda row: jacrev(outputs)(weight, row.unsqueeze(0)))(x)
        return [outputs(weight, x), jacrev(outputs)(weight, x), jacfwd(outputs)(weight, x), curved, each]

    expected = derivatives()
    with large_products(MODEL):
        found = derivatives()
    assert len(taken) >= 10
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_other_types_are_left_to_pytorch(taken: list[tuple[int, ...]]) -> None:
    a, b = torch.randn(9, 8, dtype=torch.float64), torch.randn(8, 7, dtype=torch.float64)
    expected = a @ b
    with large_products(MODEL):
        assert torch.equal(a @ b, expected)
        assert torch.equal(
            torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64), torch.full((2, 2), 2)
        )
    assert taken == []


def test_what_does_not_fit_is_refused_in_pytorchs_words() -> None:
    wrong = [
        (torch.randn(4, 5), torch.randn(4, 5)),
        (torch.randn(4), torch.randn(4, 5)),
        (torch.randn(4, 5).double(), torch.randn(5, 4)),
    ]
    for a, b in wrong:
        with pytest.raises(RuntimeError) as expected:
            torch.mm(a, b)
        with pytest.raises(RuntimeError) as found, large_products(MODEL):
            torch.mm(a, b)
        assert str(found.value) == str(expected.value)
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    for c in (torch.randn(6).double(), torch.randn(5)):
        with pytest.raises(RuntimeError), large_products(MODEL):
            torch.addmm(c, a, b)


def test_pytorchs_kernels_are_back_also_after_an_error(taken: list[tuple[int, ...]]) -> None:
    a = torch.randn(30, 30)
    with large_products(MODEL):
        with pytest.raises(KeyError), large_products(MODEL):
            raise KeyError
        a @ a
        assert len(taken) == 1  # the outer context still holds
    a @ a
    assert len(taken) == 1


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # what `flags` sets besides
def test_what_the_user_set_is_kept_to(taken: list[tuple[int, ...]]) -> None:
    a, tiny = torch.randn(30, 30), nn.Linear(3, 3)
    with torch.backends.mkldnn.flags(enabled=False), large_products(MODEL):
        a @ a
    with large_products(tiny):
        a @ a
    assert taken == []


@pytest.mark.parametrize("method", ["exact", "sketch", "probe"])
def test_a_diagnosis_finds_the_same(method: str, taken: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(70, 70), nn.ReLU(), nn.Linear(70, 12)), torch.randn(20, 70)
    found = hessdiag.diagnose(model, x, method=method, **PLAIN)
    assert taken
    monkeypatch.setattr(room, "pays", lambda: False)
    taken.clear()
    expected = hessdiag.diagnose(model, x, method=method, **PLAIN)
    assert not taken
    for mine, theirs in zip(found.blocks, expected.blocks, strict=True):
        assert mine.avg_sq_singular_value == pytest.approx(theirs.avg_sq_singular_value, rel=1e-4)
        assert mine.gamma == pytest.approx(theirs.gamma, rel=1e-4)
