"""Examples are kept apart and gradients agree, or the model is refused; what a rule misreads is measured without it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from tests import layouts
from tests.kinds import ALONE
from tests.layouts import MIXING, WITHOUT_RULES, of, two
from tests.networks import Net
from tests.oracles import values_of
from tests.random_layers import parameter
from tests.unchanged import unchanged


def zero(*sizes: int, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(*sizes, bias=bias)
    nn.init.zeros_(layer.weight)
    return layer


def made(name: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    make, inputs = (WITHOUT_RULES | MIXING)[name]
    return make().double(), inputs()


def in_chunks(monkeypatch: pytest.MonkeyPatch, examples: int) -> None:
    """As many examples at once as fit into little memory."""
    monkeypatch.setattr("hessdiag.network.trace.NetworkShape.chunk", lambda *_, **__: examples)


NOT_APART = pytest.raises(hessdiag.HessdiagError, match="the model runs over the first dimension")


@pytest.mark.parametrize("name", MIXING)
def test_a_model_that_mixes_examples_is_refused_whatever_fits_into_memory(name: str, monkeypatch) -> None:
    for examples_at_once in (1, 2, 3):
        in_chunks(monkeypatch, examples_at_once)
        with NOT_APART:
            hessdiag.diagnose(*made(name), rtol=0.5)


class Rounded(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x.round())
    backward = staticmethod(lambda ctx, sent: torch.ones_like(sent))


def test_a_backward_pass_that_does_not_read_what_arrives_is_refused() -> None:
    model = Net(lambda m, x: m.last(Rounded.apply(m.first(x))), first=nn.Linear(4, 8), last=nn.Linear(8, 3))
    with pytest.raises(hessdiag.HessdiagError, match="multiply by grad_output"):
        hessdiag.diagnose(model, torch.randn(16, 4), quick=True)


def test_positions_that_are_counted_along_the_examples_are_told_from_examples_that_meet() -> None:
    model = Net(lambda m, x: m.last((m.first(x) + m.pe[: len(x), None]).mean(1)), first=nn.Linear(4, 8),
        last=nn.Linear(8, 3), pe=torch.randn(50, 8))  # fmt: skip
    found = hessdiag.diagnose(model, torch.randn(16, 6, 4), torch.randint(3, (16,)), quick=True).findings
    assert any("its place in the batch" in each.message for each in found if each.rule == "HD122")


@pytest.mark.parametrize("name", ["time first", "without padding", "experts", "position table", "pads itself"])
def test_layers_are_read_alike_whatever_fits_into_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = made(name)
    expected = values_of(hessdiag.diagnose(model, inputs))
    for examples_at_once in (1, 3):
        in_chunks(monkeypatch, examples_at_once)
        assert values_of(hessdiag.diagnose(model, inputs)) == pytest.approx(expected, rel=1e-10)


def test_in_chunks_pairs_that_are_alike_are_no_examples_and_a_later_chunk_that_mixes_is_found(monkeypatch) -> None:
    """Lengths 2, 2 and 4, 4: within each pair every example has as many rows, but not in the batch."""
    in_chunks(monkeypatch, 2)
    model, (x, _) = made("without padding")
    mask = torch.arange(5) < torch.tensor([2, 2, 4, 4]).view(4, 1)
    (block,) = [b for b in hessdiag.diagnose(model, (x, mask)).blocks if b.name == "first.weight"]
    assert block.gamma != block.gamma  # NaN: there is no theory without a rule
    # Examples are kept apart but for those that are marked: these are summed up.

    def forward(m: Any, x: Tensor) -> Tensor:
        h, marked = m.first(x).tanh(), (x[:, :1] > 10).to(x)
        return m.last(h + marked * (h * marked).sum(0, keepdim=True))

    in_chunks(monkeypatch, 16)
    torch.manual_seed(0)
    model, x = two(forward, 4, 4, 2).double(), torch.randn(48, 4, dtype=torch.float64)
    hessdiag.diagnose(model, x)
    x[36:46, 0] = 11.0
    with pytest.raises(hessdiag.HessdiagError, match=ALONE):
        hessdiag.diagnose(model, x, rtol=0.5)


def test_zero_outputs_hide_no_mixing_and_a_relu_that_rounding_turns_neither_is_nor_hides_any() -> None:
    model = layouts.sum_over_first().double()
    nn.init.zeros_(model.last.weight)
    nn.init.zeros_(model.last.bias)
    with pytest.raises(hessdiag.HessdiagError, match=ALONE):
        hessdiag.diagnose(nn.Sequential(model, nn.Tanh()), of(4)(), rtol=0.5)
    model.last.weight.data.fill_(1e-9)
    with pytest.raises(hessdiag.HessdiagError, match=ALONE):
        hessdiag.diagnose(model, of(4)(), rtol=0.5)
    model, x = kinked(0.0)
    with unchanged(model, x):
        hessdiag.diagnose(model, x)
    with NOT_APART:
        hessdiag.diagnose(*kinked(1e-3), rtol=0.5)


@pytest.mark.parametrize("scale", [1e-5, 1e-8])
def test_a_faint_branch_is_measured_right_in_float32(scale: float) -> None:
    model, x = layouts.faint_branch(scale), torch.randn(4, 4)
    found = values_of(hessdiag.diagnose(model, x))
    expected = values_of(hessdiag.diagnose(model.double(), x.double()))
    assert found == pytest.approx(expected, rel=1e-3)
    assert found["second.weight"] > 0


@pytest.mark.parametrize("scale", [1.0, 1e-7])  # the smaller, float32 cannot tell from rounding
def test_a_weight_that_is_read_through_a_view_is_skipped_for_the_true_reason(scale: float) -> None:
    model, x = two(lambda m, x: m.last(x + scale * (x @ m.views[0]).tanh()), 4, 4, 2), torch.randn(4, 4)
    model.views = [model.first.weight.t()]
    with unchanged(model, x):
        report = hessdiag.diagnose(model, x)
    why = dict(report.skipped)["first.weight"]
    assert why.startswith("its gradient is not the one that is found by replacing it")
    assert why.endswith("such as a list or a view of it")
    assert set(values_of(report)) == {"first.bias", "last.weight", "last.bias"}


def test_a_gradient_that_is_zero_by_symmetry_and_a_model_in_float32_inside_are_kept() -> None:
    rule = lambda m, x: m.last((x + (x @ m.shift.T).tanh()).softmax(1))  # noqa: E731
    report = hessdiag.diagnose(Net(rule, shift=parameter(1, 4), last=nn.Linear(4, 2)), torch.randn(4, 4))
    found = values_of(report)
    assert found["shift"] < 1e-12 * found["last.weight"]
    assert not report.skipped
    torch.manual_seed(0)  # A parameter that the model itself reads in float32, as Mamba's step size is.
    rule = lambda m, x: m.last((x.float() @ m.scale.float().T).tanh().to(x))  # noqa: E731
    report = hessdiag.diagnose(Net(rule, scale=parameter(3, 4), last=nn.Linear(3, 2)).double(), of(4)())
    assert not report.skipped
    assert "scale" in values_of(report)


@pytest.mark.parametrize("kind", [layouts.padded, layouts.physics])
def test_sketches_take_the_path_that_gradients_take(kind: Callable[[], nn.Module]) -> None:
    model, inputs = kind().double(), (of(5, 4)(), ~layouts.ragged()) if kind is layouts.padded else of(2)()
    exact, sketched = (values_of(hessdiag.diagnose(model, inputs, method=m)) for m in ("exact", "sketch"))
    assert sketched == pytest.approx(exact, rel=1e-6)  # the range of so few outputs is found whole


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_module_compiled_by_jit_is_named_and_a_scripted_activation_does_no_harm() -> None:
    inner = torch.jit.trace(nn.Linear(4, 3), torch.randn(2, 4))
    with pytest.raises(hessdiag.HessdiagError, match=r"module '1' was compiled by torch\.jit"):
        hessdiag.diagnose(nn.Sequential(nn.Linear(4, 4), inner), torch.randn(3, 4))
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Tanh()), nn.Linear(4, 2))
    assert len(hessdiag.diagnose(model, torch.randn(3, 4)).blocks) == 4


def test_sparse_gradients_are_those_of_the_dense_kind_and_on_again_afterwards() -> None:
    words = lambda m, tokens: m.last(m.embed(tokens).tanh().mean(1))  # noqa: E731
    model = Net(words, embed=nn.Embedding(6, 3, sparse=True), last=nn.Linear(3, 2)).double()
    tokens = torch.randint(6, (4, 3))
    with unchanged(model, tokens):
        exact, sketched = (hessdiag.diagnose(model, tokens, method=method).blocks for method in ("exact", "sketch"))
    assert model.embed.sparse
    lookup = lambda m, tokens: m.last(F.embedding(tokens, m.table, sparse=True).tanh().mean(1))  # noqa: E731
    of_function = hessdiag.diagnose(Net(lookup, table=model.embed.weight, last=model.last), tokens).blocks
    model.embed.sparse = False
    assert exact == hessdiag.diagnose(model, tokens, method="exact").blocks
    assert sketched == hessdiag.diagnose(model, tokens, method="sketch").blocks
    assert exact[0].name == "embed.weight"
    assert exact[0].avg_sq_singular_value > 0
    values = [[block.avg_sq_singular_value for block in blocks] for blocks in (of_function, exact)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_a_model_that_cannot_run_one_example_is_refused_in_a_sentence(matrix: str) -> None:
    model = Net(lambda m, x: m.layer(x.view(-1, 2, 3)).flatten(0, 1), layer=nn.Linear(3, 2))
    told = r"an example on its own cannot be run: .*invalid for input.* \.squeeze\(-1\) in place of \.squeeze\(\)$"
    with pytest.raises(hessdiag.HessdiagError, match=told) as refused:
        hessdiag.diagnose(model, torch.randn(4, 3), torch.randn(4, 2), loss=F.smooth_l1_loss, matrix=matrix, rtol=0.5)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("out", "how"), [(1, {}), (1, {"per": "batch"}), (3, {}), (3, {"matrix": "hessian"})])
def test_an_example_whose_dimension_is_squeezed_away_is_measured_as_it_is_kept(out: int, how: dict[str, Any]) -> None:
    parts = {"a": nn.Linear(4, 5), "b": nn.Linear(5, out)}
    kept = Net(lambda m, x: m.b(m.a(x).tanh()), **parts)
    squeezed = Net(lambda m, x: m.b(m.a(x).tanh()[..., None].squeeze()).squeeze(), **parts)
    pair = Net(lambda m, x: (kept(x)[..., None].squeeze(), m.a(x)[:, :1].squeeze()), **parts)
    x, y, judge = torch.randn(8, 4), torch.rand(8, out).squeeze(), F.binary_cross_entropy_with_logits
    loss = lambda z, t: judge((z if isinstance(z, Tensor) else z[0]).view(t.shape), t)  # noqa: E731
    nets = ((kept, loss), (squeezed, loss), (pair, loss), (kept, lambda z, t: judge(z.squeeze(), t)))
    reports = [hessdiag.diagnose(m, x, y, loss=loss, **how) for m, loss in nets]
    values = [[block.avg_sq_singular_value for block in report.blocks] for report in reports]
    assert values[1:] == [pytest.approx(values[0], rel=1e-4)] * 3


def test_running_out_of_memory_is_no_refusal_of_the_model() -> None:
    called = []

    def hungry(m: Any, x: Tensor) -> Tensor:
        called.append(len(x))
        if called.count(1) == 1 and len(x) == 1:
            raise RuntimeError("CUDA out of memory")
        return m.layer(x)

    report = hessdiag.diagnose(Net(hungry, layer=nn.Linear(3, 2)), torch.randn(4, 3), method="exact")
    assert called.count(1) > 1
    assert report.blocks


def kinked(mixes: float) -> tuple[nn.Module, Tensor]:
    """Rounding that depends on the size of the batch, as that of a matrix product does, turns a ReLU on or off."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(x)  # (B, 2), the second of them 0
        edge = F.relu(h[:, 1:] + 1e-10 + torch.finfo(x.dtype).eps * (len(x) - 2))
        return m.last(torch.cat([h[:, :1], edge], dim=1) + mixes * h.mean(0, keepdim=True))

    model = Net(forward, first=nn.Linear(2, 2, bias=False), last=nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model.first.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -2.0]]))
        model.last.weight.fill_(1.0)
    return model, torch.tensor([[1.0, 0.5], [2.0, 1.0], [0.5, 0.25]])


def test_one_pair_that_mixes_is_found_where_it_is_in_different_halves() -> None:
    """In batches larger than those in which pairs are told apart; of any seed with probability 1/2."""

    def forward(m: Any, x: Tensor) -> Tensor:
        z = torch.tanh(m.first(x))
        if len(x) > 12:
            z = z + 0.5 * z[:1] * (torch.arange(len(x)) == len(x) - 1).to(z).unsqueeze(1)
        return m.last(z)

    refused = []
    for seed in range(6):
        torch.manual_seed(seed)
        model, x, t = two(forward, 5, 6, 4).double(), torch.randn(16, 5, dtype=torch.float64), torch.arange(16) % 4
        try:
            hessdiag.diagnose(model, x, t, loss="cross-entropy", seed=seed, signals=False)
        except hessdiag.HessdiagError as error:
            refused.append(ALONE in str(error))
    assert any(refused)


@pytest.mark.parametrize("odd", range(6))
def test_a_layer_that_is_misread_on_one_example_is_measured_without_its_rule(odd: int) -> None:
    """Whichever half of the batch that one is in: its inputs are doubled behind the layer's hooks."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return nn.Linear.forward(m, x * (1 + (x[:, :1] == odd).to(x)))

    x = torch.randn(6, 3, dtype=torch.float64)
    x[:, 0] = torch.arange(6)
    model, t = layouts.own_forward(nn.Linear, forward, 3, 2, bias=False).double(), torch.randn(6, 2).double()
    report, doubled = hessdiag.diagnose(model, x, t, loss="mse", signals=False), x.clone()
    doubled[odd] *= 2
    S = 2 / 2  # of the mean over two outputs
    expected = (S**2 * 2 * doubled.square().sum(dim=1) ** 2).mean() / 6  # ‖S ⊗ x xᵀ‖² / P
    assert report.blocks[0].avg_sq_singular_value == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_mixing_behind_zeros_is_refused(matrix: str) -> None:
    """The first layer reads a sum over examples, and the last one is zero."""
    layers = {"first": zero(3, 3, bias=False), "last": zero(3, 2)}
    model, x = Net(lambda m, x: m.last(x + m.first(x.cumsum(0))), **layers).double(), torch.randn(3, 3).double()
    with unchanged(model, x), pytest.raises(hessdiag.HessdiagError, match=ALONE):
        hessdiag.diagnose(model, x, matrix=matrix, method="exact")


def test_weights_that_nothing_may_replace_or_that_two_names_hold_are_back_afterwards() -> None:
    layer = nn.Linear(3, 2).double()
    here = layer.weight.detach().clone()
    model = Net(lambda m, x: m.layer(x) + (1 - 1e6 * (m.layer.weight - here).square().sum()).sqrt() - 1, layer=layer)
    report = hessdiag.diagnose(model, torch.randn(3, 3, dtype=torch.float64))
    assert [block.name for block in report.blocks] == ["layer.weight", "layer.bias"]
    first = nn.Linear(3, 3)  # Recurrent layers hold them by a list of their own, which follows.
    two_names = Net(lambda m, x: m.first(x).tanh() @ m.turned, first=first, turned=first.weight)
    last = lambda m, x: m.last(m.cell(x.unsqueeze(2))[0][:, -1])  # noqa: E731
    recurrent = Net(last, cell=nn.GRU(1, 2, batch_first=True), last=zero(2, 2))
    for model in (two_names.double(), recurrent.double()):
        for examples in (1, 3):
            x = torch.randn(examples, 3, dtype=torch.float64)
            expected = model(x)
            with unchanged(model, x):
                assert not hessdiag.diagnose(model, x).skipped
            assert torch.equal(model(x), expected)


def test_a_network_that_enlarges_rounding_is_called_chaotic_and_not_one_that_mixes() -> None:
    """In float32, outputs of an example alone are off by more than any other network's."""
    last = lambda m, x: m.last(m.cell(x)[0][:, -1])  # noqa: E731
    model = Net(last, cell=nn.RNN(8, 32, batch_first=True), last=nn.Linear(32, 5))
    read = Net(lambda m, x: last(m, m.table(x)), table=nn.Embedding(9, 8), **dict(model.named_children()))
    floats, tokens, labels = torch.randn(64, 60, 8), torch.arange(64 * 60).view(64, 60) % 9, torch.arange(64) % 5
    for network, x in ((model, floats), (read, tokens)):
        nn.init.normal_(model.cell.weight_hh_l0)
        with unchanged(network, x), pytest.raises(hessdiag.HessdiagError, match="the model is chaotic"):
            hessdiag.diagnose(network, x, labels, quick=True)
        nn.init.orthogonal_(model.cell.weight_hh_l0)
        hessdiag.diagnose(network, x, labels, quick=True)
    model.forward = lambda x: last(model, x) + 1e-2 * last(model, x).roll(1, 0)
    with NOT_APART:
        hessdiag.diagnose(model, floats, labels, rtol=0.5)


def test_a_quick_diagnosis_says_behind_which_layer_examples_meet() -> None:
    """An LSTM that reads the examples as time, statistics of one's own, and neither."""
    x, labels = torch.randn(6, 5, 8), torch.randint(3, (6,))
    layers = {"first": nn.Linear(8, 8), "cell": nn.LSTM(8, 8), "last": nn.Linear(8, 3)}
    over = Net(lambda m, x: m.last(m.cell(m.first(x))[0][:, -1]), **layers)
    centred = Net(lambda m, x: m.last(m.first(x).mean(1) - m.first(x).mean((0, 1))), **layers)
    apart = Net(lambda m, x: m.last(m.first(x).mean(1)), **layers)
    for model, order in ((over, True), (centred, False), (apart, None)):
        with unchanged(model, x):
            found = [each for each in hessdiag.diagnose(model, x, labels, quick=True).findings if each.rule == "HD122"]
        assert [each.blocks for each in found] == ([] if order is None else [("first.weight",)])
        assert [each.message.endswith("order.") for each in found] == ([] if order is None else [order])


@pytest.mark.parametrize(("longest", "told"), [(None, True), (4, False), (8, False)])
def test_inputs_that_do_not_arrive_are_told_unless_a_mask_hides_them(longest: int | None, told: bool) -> None:
    """Of a few short examples it is not told either, as long as others reach further."""
    x, lengths = torch.randn(16, 8, 4), torch.arange(16) % 3 + 2
    if longest == 8:
        lengths[6:] = 8
    seen = torch.arange(8) < lengths[:, None]
    mean = lambda m, x, seen: m.last((m.first(x) * seen.unsqueeze(2)).sum(1) / seen.sum(1, keepdim=True))  # noqa: E731
    cut = lambda m, x: m.last(m.first(x)[:, :4].mean(1))  # noqa: E731
    model = Net(cut if longest is None else mean, first=nn.Linear(4, 4), last=nn.Linear(4, 3))
    given = x if longest is None else (x, seen.float() if longest == 4 else seen)
    found = hessdiag.diagnose(model, given, torch.arange(16) % 3, quick=True).findings
    assert [each.rule for each in found if each.severity != "note"] == ["HD120"] * told


def test_outputs_as_long_as_the_longest_example_are_a_note_and_name_no_layer_of_rows_by_time() -> None:
    def run(m: Any, x: Tensor, sizes: Tensor) -> Tensor:
        rows = m.rows(x[:, : int(sizes.max())].transpose(0, 1))  # (T, B, width)
        return m.last(m.norm(rows.flatten(0, 1))).view(*rows.shape[:2], 3).transpose(0, 1)  # type: ignore[no-any-return]

    model = Net(run, rows=nn.Linear(4, 6), norm=nn.BatchNorm1d(6), last=nn.Linear(6, 3))
    x, sizes = torch.randn(8, 5, 4), torch.tensor([5, 4, 4, 3, 3, 3, 2, 2])
    found = hessdiag.diagnose(model, (x, sizes), loss=lambda y, _: y.square().mean(), quick=True).findings
    (told,) = (each for each in found if each.rule == "HD122")
    assert (told.severity, told.blocks) == ("note", ())
