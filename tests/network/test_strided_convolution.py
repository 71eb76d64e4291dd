"""What is sent back through strided convolutions of few channels is what plain autograd sends back."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.network.hooks import Trace, backpropagate, trace
from hessdiag.network.strided_convolution import MAX_CHANNELS, Strided
from tests.layouts import PadsItself, Standardised
from tests.oracles import ggn_blocks, mean_over_examples

NODE = "SentBackBackward"


@pytest.fixture(autouse=True)
def in_float64_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it does not pay, but tells rounding from a mistake."""
    monkeypatch.setattr("hessdiag.network.strided_convolution.DTYPES", (torch.float32, torch.float64))


@pytest.mark.parametrize("read", [(9, 9), (8, 11), (12, 7)])
@pytest.mark.parametrize("padding", [(0, 0), (2, 1)])
@pytest.mark.parametrize("stride", [(2, 2), (3, 2), (4, 5)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 4), (2, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_in_the_input_is_autograd_s(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    read: tuple[int, int],
    dtype: torch.dtype,
) -> None:
    """Also of pixels that no site reads, and of phases without a row of the kernel."""
    torch.manual_seed(0)
    x = torch.randn(3, 2, *read, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 2, *kernel, dtype=torch.float64)
    y = F.conv2d(x, weight, stride=stride, padding=padding)
    gradient = torch.randn_like(y)
    (want,) = torch.autograd.grad(y, x, gradient)
    got = Strided(read, stride, padding).input_gradient(gradient.to(dtype), weight.to(dtype))
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def test_examples_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    gradient, weight = torch.randn(7, 3, 4, 4).double(), torch.randn(3, 2, 3, 3).double()
    whole = Strided((9, 9), (2, 2), (0, 0)).input_gradient(gradient, weight)
    monkeypatch.setattr("hessdiag.network.strided_convolution.PIECE", 2 * 4 * 2 * 5 * 5 * 8)  # of two examples
    torch.testing.assert_close(Strided((9, 9), (2, 2), (0, 0)).input_gradient(gradient, weight), whole)


def chain(**options: object) -> nn.Sequential:
    """Two convolutions, of which the second is strided, with an in-place ReLU on either side."""
    torch.manual_seed(0)
    last = nn.Conv2d(4, 3, 3, stride=2, padding=1, **options)  # type: ignore[arg-type]
    layers = nn.Conv2d(2, 4, 3, stride=2), nn.ReLU(inplace=True), last, nn.ReLU(inplace=True), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(12, 3)).double()


def traced(model: nn.Module) -> tuple[Trace, list[Tensor | None], Tensor]:
    """A watched pass, and all gradients of four cotangents: at the ends of layers, and in parameters."""
    x = torch.randn(5, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    seen = trace(model, Batch.of(x, None), ["0", "2", "5"])
    z = torch.randn(4, *seen.y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    edges = [edge for call in seen.calls for edge in (call.input_edge, call.output_edge)]
    edges += [torch.autograd.graph.get_gradient_edge(p) for p in model.parameters() if p.requires_grad]
    return seen, backpropagate(seen.y, edges, z), z


def nodes(seen: Trace) -> list[str]:
    return [call.output_edge.node.name() for call in seen.calls]


def plainly(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> tuple[Trace, list[Tensor | None], Tensor]:
    """The same by PyTorch's own nodes."""
    monkeypatch.setattr(Strided, "of", classmethod(lambda *_: None))
    return traced(model)


@pytest.mark.parametrize("frozen", [False, True])
def test_all_gradients_of_a_watched_pass_are_pytorch_s(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain()
    model[2].requires_grad_(not frozen)
    seen, got, _ = traced(model)
    assert NODE in nodes(seen)[1]
    assert NODE not in nodes(seen)[0]  # which reads data
    other, want, _ = plainly(model, monkeypatch)
    assert not any(NODE in name for name in nodes(other))
    torch.testing.assert_close(seen.y, other.y)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_one_cotangent_is_sent_back_alone() -> None:
    seen, together, z = traced(chain())
    edge = seen.calls[1].input_edge
    assert edge is not None
    (alone,) = backpropagate(seen.y, [edge], z[2:3])
    assert alone is not None
    assert together[2] is not None
    torch.testing.assert_close(alone[0], together[2][2])


def test_each_example_s_gradients_lie_together_in_memory() -> None:
    """As the product that makes its Jacobian takes them: else they would be copied first."""
    _, got, _ = traced(chain())
    first = got[2]  # at the input of the strided layer
    assert first is not None
    assert first.transpose(0, 1).is_contiguous()


@pytest.mark.parametrize(
    "options", [{"groups": 1, "dilation": 2}, {"padding_mode": "circular"}, {"groups": 1, "dilation": (1, 2)}]
)
def test_others_keep_pytorch_s_own_pass(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Conv2d(4, 2, 3, stride=2, padding=1, **options)  # type: ignore[arg-type]
    assert Strided.of(layer, torch.zeros(1, 4, 9, 9)) is None


def test_what_is_not_known_to_pay_or_to_be_the_layer_is_left_alone() -> None:
    x = torch.zeros(1, 4, 9, 9)
    assert Strided.of(nn.Conv2d(4, 2, 3, stride=2), x) == Strided((9, 9), (2, 2), (0, 0))
    assert Strided.of(nn.Conv2d(4, 2, 3), x) is None
    assert Strided.of(nn.Conv2d(4, 2, 3, stride=2), x.bfloat16()) is None
    assert Strided.of(nn.Conv2d(4, 2, 3, stride=(2, 1)), x) is None
    assert Strided.of(nn.Conv2d(4, 4, 3, stride=2, groups=2), x) is None
    assert Strided.of(nn.Conv2d(2 * MAX_CHANNELS, 4, 3, stride=2), torch.zeros(1, 2 * MAX_CHANNELS, 9, 9)) is None
    assert Strided.of(nn.Conv2d(4, 2, 3, stride=2), x[0]) is None  # (channels, ...) of a single example
    assert Strided.of(PadsItself(4, 2, 3, stride=2), x) is None
    assert Strided.of(Standardised(4, 2, 3, stride=2), x) is None
    patched = nn.Conv2d(4, 2, 3, stride=2)
    patched.forward = lambda x: F.conv2d(2 * x, patched.weight, stride=2)  # type: ignore[method-assign]
    assert Strided.of(patched, x) is None


class Checkpointed(nn.Module):
    """A strided convolution whose activations are recomputed in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = chain()

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


def test_a_checkpoint_recomputes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Checkpointed()
    x = torch.randn(3, 2, 9, 9, dtype=torch.float64)

    def first_gradient() -> Tensor:
        seen = trace(model, Batch.of(x, None), [f"inner.{number}" for number in (0, 2, 5)])
        (found,) = backpropagate(seen.y, [seen.calls[0].output_edge], torch.ones_like(seen.y).unsqueeze(0))
        assert found is not None
        return found

    got = first_gradient()
    monkeypatch.setattr(Strided, "of", classmethod(lambda *_: None))
    torch.testing.assert_close(got, first_gradient(), rtol=1e-12, atol=1e-12)


class Rows(nn.Module):
    """A strided convolution on several rows of each example, of one example after the other or not."""

    def __init__(self, *, fastest: bool) -> None:
        super().__init__()
        self.read, self.stride = nn.Conv2d(1, 2, 2), nn.Conv2d(2, 2, 2, stride=2)
        self.last, self.fastest = nn.Linear(16, 3), fastest

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.cat(x.chunk(2, 1)) if self.fastest else x.flatten(0, 1).unsqueeze(1)  # (2 B, 1, 5, 5)
        h = self.stride(self.read(rows).tanh()).relu()
        h = torch.cat(h.chunk(2), 1) if self.fastest else h.unflatten(0, (len(x), 2))
        return self.last(h.flatten(1))


class Twice(nn.Module):
    """A strided convolution that is called twice, with a skip connection around it."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.stride, self.last = nn.Conv2d(2, 2, 2), nn.Conv2d(2, 2, 2, stride=2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.read(x).relu()  # (B, 2, 4, 4)
        once = self.stride(h)
        h = once + F.avg_pool2d(h, 2)
        return self.last(self.stride(h.relu()).flatten(1))


NETWORKS = {
    "rows of each example": lambda: Rows(fastest=False),
    "rows of all examples": lambda: Rows(fastest=True),
    "called twice": Twice,
    "pads itself": lambda: nn.Sequential(
        nn.Conv2d(2, 2, 2), PadsItself(2, 2, 2, stride=2), nn.Flatten(), nn.Linear(8, 3)
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("loss", ["mse", "cross-entropy"])
def test_whole_diagnoses_equal_dense_matrices(name: str, loss: str) -> None:
    """In all layouts, also those in which the layer is measured without a rule."""
    torch.manual_seed(0)
    model, x = NETWORKS[name]().double(), torch.randn(4, 2, 5, 5, dtype=torch.float64)
    t = torch.randint(3, (4,)) if loss == "cross-entropy" else torch.randn(4, 3, dtype=torch.float64)
    plain = F.cross_entropy if loss == "cross-entropy" else F.mse_loss
    report = hessdiag.diagnose(model, x, t, loss=loss, method="exact")
    names = [block.name for block in report.blocks]
    assert {name for name, _ in model.named_parameters()} == {*names}
    expected = mean_over_examples(ggn_blocks, model, x, t, plain, names)
    for i, block in enumerate(report.blocks):
        want = float(expected[i, i]) / block.numel
        assert block.avg_sq_singular_value == pytest.approx(want, rel=1e-10)
