"""Examples are kept apart and gradients agree, or the model is refused; what a rule misreads is measured without it."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.diagnosis.checks import apart_nearby, differentiable, halves_of, only, reaches_others
from hessdiag.network.preserve import preserve_state
from tests.layouts import (
    LENGTHS,
    MIXING,
    WITHOUT_RULES,
    FaintBranch,
    Padded,
    Physics,
    SumOverFirst,
    WithoutPadding,
    Words,
    of,
    ragged,
)
from tests.oracles import ggn_blocks, mean_over_examples, quadratic
from tests.unchanged import unchanged


def made(name: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    make, inputs = (WITHOUT_RULES | MIXING)[name]
    return make().double(), inputs()


def singular_values(report: hessdiag.Report) -> dict[str, float]:
    return {block.name: block.avg_sq_singular_value for block in report.blocks}


at_once = pytest.mark.parametrize("examples_at_once", [1, 2, 3, 100])


@at_once
@pytest.mark.parametrize("name", MIXING)
def test_a_model_that_mixes_examples_is_refused_whatever_fits_into_memory(
    name: str, examples_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: examples_at_once)
    model, inputs = made(name)
    with pytest.raises(hessdiag.HessdiagError, match="the model runs over the first dimension"):
        hessdiag.diagnose(model, inputs)


@pytest.mark.parametrize("examples_at_once", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["time first", "without padding", "experts", "position table", "pads itself", "windows"]
)
def test_layers_are_read_alike_whatever_fits_into_memory(
    name: str, examples_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = made(name)
    expected = singular_values(hessdiag.diagnose(model, inputs))
    monkeypatch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: examples_at_once)
    assert singular_values(hessdiag.diagnose(model, inputs)) == pytest.approx(expected, rel=1e-10)


def test_rows_of_pairs_that_happen_to_be_alike_are_not_taken_for_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths 2, 2 and 4, 4: within each pair every example has as many rows, but not in the batch."""
    monkeypatch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: 2)
    torch.manual_seed(0)
    model, x = WithoutPadding().double(), of(5, 3)()
    mask = torch.arange(5) < torch.tensor([2, 2, 4, 4]).view(4, 1)
    (block,) = [b for b in hessdiag.diagnose(model, (x, mask)).blocks if b.name == "first.weight"]
    assert block.gamma != block.gamma  # NaN: there is no theory without a rule


class MixesLate(nn.Module):
    """Keeps examples apart but for those that are marked: these are summed up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h, marked = self.first(x).tanh(), (x[:, :1] > 10).to(x)
        return self.last(h + marked * (h * marked).sum(0, keepdim=True))


def test_a_later_chunk_that_mixes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: 16)
    torch.manual_seed(0)
    model, x = MixesLate().double(), torch.randn(48, 4, dtype=torch.float64)
    hessdiag.diagnose(model, x)
    x[36:46, 0] = 11.0
    with pytest.raises(hessdiag.HessdiagError, match="an example on its own gives other outputs"):
        hessdiag.diagnose(model, x)


def test_outputs_that_are_zero_hide_no_mixing() -> None:
    """The gradient of the default loss is zero there."""
    torch.manual_seed(0)
    model = SumOverFirst().double()
    nn.init.zeros_(model.last.weight)
    nn.init.zeros_(model.last.bias)
    with pytest.raises(hessdiag.HessdiagError, match="an example on its own"):
        hessdiag.diagnose(nn.Sequential(model, nn.Tanh()), of(4)())
    model.last.weight.data.fill_(1e-9)
    with pytest.raises(hessdiag.HessdiagError, match="an example on its own"):
        hessdiag.diagnose(model, of(4)())


@pytest.mark.parametrize("size", [2, 3, 8, 1023])
def test_halves_are_a_split_in_the_middle(size: int) -> None:
    one, other = halves_of(Batch.of(torch.zeros(size, 1), None), seed=0)
    assert int(one.sum()) == size // 2
    assert torch.equal(one, ~other)


def test_one_example_is_a_half_of_its_own() -> None:
    (half,) = halves_of(Batch.of(torch.zeros(1, 1), None), seed=0)
    assert half.tolist() == [True]


def test_what_reaches_others_is_seen_in_both_directions() -> None:
    for one in range(4):
        side = torch.arange(4) == one
        alone = only(torch.ones(4, 2), side)  # (1, 4, 2)
        assert alone.sum() == 2
        assert not reaches_others(alone, side)
        for other in {*range(4)} - {one}:
            J = torch.eye(4)
            J[other, one] = 1e-30  # the outputs of `one` depend on `other`
            assert reaches_others(torch.einsum("bc,scn->sbn", J, alone), side)


def test_inputs_that_the_model_writes_to_are_copied() -> None:
    x = torch.zeros(3, 2)
    watched, edges = differentiable(Batch.of((x, torch.ones(3, dtype=torch.int64)), None))
    watched.args[0].add_(1.0)
    assert len(edges) == 1
    assert not x.any()
    assert not x.requires_grad


# The check of the gradients.


class UsedTwice(nn.Module):
    """A layer's weight, used once more as a matrix; the outputs are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(F.linear(self.first(x).tanh(), self.first.weight).tanh())
        return y - y.detach()


@pytest.mark.parametrize("loss", ["random-quadratic", "mse"])
def test_a_loss_without_a_gradient_hides_no_other_use_of_a_weight(loss: str) -> None:
    torch.manual_seed(0)
    model, x = UsedTwice().double(), of(4)()
    t = None if loss == "random-quadratic" else torch.zeros(4, 2, dtype=torch.float64)
    found = singular_values(hessdiag.diagnose(model, x, t, loss=F.mse_loss if t is not None else "random-quadratic"))
    expected = mean_over_examples(ggn_blocks, model, x, t, quadratic(2) if t is None else F.mse_loss, list(found))
    for i, (name, value) in enumerate(found.items()):
        assert value * model.get_parameter(name).numel() == pytest.approx(float(expected[i, i]), rel=1e-8)


@pytest.mark.parametrize("scale", [1e-5, 1e-8])
def test_a_faint_branch_is_measured_right_in_float32(scale: float) -> None:
    torch.manual_seed(0)
    model, x = FaintBranch(scale), torch.randn(4, 4)
    found = singular_values(hessdiag.diagnose(model, x))
    expected = singular_values(hessdiag.diagnose(model.double(), x.double()))
    assert found == pytest.approx(expected, rel=1e-3)
    assert found["second.weight"] > 0


class HeldElsewhere(nn.Module):
    """A layer whose weight is read through a view that was made before."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.views = [self.first.weight.t()]
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.scale * (x @ self.views[0]).tanh())


def test_a_weight_that_is_read_through_a_view_is_skipped_for_the_true_reason() -> None:
    torch.manual_seed(0)
    model = HeldElsewhere()
    report = hessdiag.diagnose(model, torch.randn(4, 4))
    assert dict(report.skipped)["first.weight"].startswith("its gradient is not the one that is found by replacing it")
    assert "first.weight" not in singular_values(report)
    assert "last.weight" in singular_values(report)


def test_a_view_that_float32_cannot_tell_from_rounding_is_found_too() -> None:
    torch.manual_seed(0)
    model, x = HeldElsewhere(1e-7), torch.randn(4, 4)
    with unchanged(model, x):
        report = hessdiag.diagnose(model, x)
    assert dict(report.skipped)["first.weight"].endswith("such as a list or a view of it")


class ZeroBySymmetry(nn.Module):
    """A weight that a softmax does not feel, in a layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.last = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((x + (x @ self.shift.T).tanh()).softmax(1))


def test_a_gradient_that_is_zero_by_symmetry_is_kept() -> None:
    torch.manual_seed(0)
    report = hessdiag.diagnose(ZeroBySymmetry(), torch.randn(4, 4))
    found = singular_values(report)
    assert found["shift"] < 1e-12 * found["last.weight"]
    assert not report.skipped


# Sketches, and models that need gradients in their forward pass.


@pytest.mark.parametrize("kind", [Padded, Physics])
def test_sketches_take_the_path_that_gradients_take(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind().double().eval()
    inputs = (of(5, 4)(), ~ragged()) if kind is Padded else of(2)()
    exact, sketched = (singular_values(hessdiag.diagnose(model, inputs, method=m)) for m in ("exact", "sketch"))
    assert sketched == pytest.approx(exact, rel=1e-6)  # the range of so few outputs is found whole


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_compiled_by_jit_is_named() -> None:
    inner = torch.jit.trace(nn.Linear(4, 3), torch.randn(2, 4))
    with pytest.raises(hessdiag.HessdiagError, match=r"module '1' was compiled by torch\.jit"):
        hessdiag.diagnose(nn.Sequential(nn.Linear(4, 4), inner), torch.randn(3, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_activation_does_no_harm() -> None:
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Tanh()), nn.Linear(4, 2))
    assert len(hessdiag.diagnose(model, torch.randn(3, 4)).blocks) == 4


@pytest.mark.parametrize("method", ["exact", "sketch"])
def test_sparse_gradients_are_those_of_the_dense_kind_and_on_again_afterwards(method: str) -> None:
    torch.manual_seed(0)
    model, tokens = Words().double(), torch.randint(6, (4, 3))
    with unchanged(model, tokens):
        found = hessdiag.diagnose(model, tokens, method=method)
    assert model.embed.sparse
    model.embed.sparse = False
    assert found.blocks == hessdiag.diagnose(model, tokens, method=method).blocks
    assert found.blocks[0].name == "embed.weight"
    assert found.blocks[0].avg_sq_singular_value > 0


class SparseLookup(nn.Module):
    """Sparse gradients by `F.embedding` itself, which no module's attribute tells."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Parameter(torch.randn(6, 3)), nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(F.embedding(tokens, self.table, sparse=True).tanh().mean(1))


def test_sparse_gradients_of_a_function_are_read_too() -> None:
    torch.manual_seed(0)
    model, words, tokens = SparseLookup().double(), Words().double(), torch.randint(6, (4, 3))
    words.load_state_dict({"embed.weight": model.table.data} | words.last.state_dict(prefix="last."))
    model.last = words.last
    found, expected = (hessdiag.diagnose(m, tokens).blocks for m in (model, words))
    for one, other in zip(found, expected, strict=True):
        assert one.avg_sq_singular_value == pytest.approx(other.avg_sq_singular_value, rel=1e-10)


class HalfInSingle(nn.Module):
    """A parameter that the model itself reads in float32, as Mamba's step size is."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.last = nn.Parameter(torch.randn(3, 4)), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((x.float() @ self.scale.float().T).tanh().to(x))


def test_a_model_that_computes_in_float32_itself_is_measured_in_float64() -> None:
    torch.manual_seed(0)
    report = hessdiag.diagnose(HalfInSingle().double(), of(4)())
    assert not report.skipped
    assert "scale" in singular_values(report)


def test_lengths_are_those_of_the_mask() -> None:
    assert ragged().sum(1).tolist() == LENGTHS.tolist()


class Pairs(nn.Module):
    """Reshapes the batch to pairs of examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.view(-1, 2, 3)).flatten(0, 1)


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_a_model_that_cannot_run_one_example_is_refused_in_a_sentence(matrix: str) -> None:
    with pytest.raises(
        hessdiag.HessdiagError, match=r"an example on its own cannot be run: .*invalid for input"
    ) as refused:
        hessdiag.diagnose(Pairs(), torch.randn(4, 3), matrix=matrix)
    assert "\n" not in str(refused.value)


def test_running_out_of_memory_is_no_refusal_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller chunk is tried."""
    called = []

    class Hungry(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            called.append(len(x))
            if called.count(1) == 1 and len(x) == 1:
                raise RuntimeError("CUDA out of memory")
            return super().forward(x)

    report = hessdiag.diagnose(Hungry(3, 2), torch.randn(4, 3), method="exact")
    assert called.count(1) > 1
    assert report.blocks


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 3)])
def test_a_layer_that_the_model_maps_over_examples_is_measured_without_a_rule(shape: tuple[int, ...]) -> None:
    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.vmap(self.layer)(x).tanh()).flatten(1)

    torch.manual_seed(0)
    model, x = Mapped().double(), torch.randn(shape, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, method="exact")
    plain = nn.Sequential(model.layer, nn.Tanh(), model.last, nn.Flatten())
    expected = hessdiag.diagnose(plain, x, method="exact")
    values = [sorted(singular_values(each).values()) for each in (report, expected)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_a_complex_weight_is_no_block() -> None:
    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wave = nn.Parameter(torch.randn(3, 2, dtype=torch.complex128))
            self.last = nn.Linear(2, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.last((x.to(self.wave.dtype) @ self.wave).abs())

    for matrix in ("ggn", "hessian"):
        report = hessdiag.diagnose(Wave(), torch.randn(3, 3, dtype=torch.float64), matrix=matrix)
        assert dict(report.skipped) == {"wave": "complex128 numbers in Wave: the theory is of real ones"}
        assert [block.name for block in report.blocks] == ["last.weight", "last.bias"]


def test_one_row_is_no_batch_of_rows() -> None:
    """As many features as examples, behind zeros, where no gradient tells them apart."""

    class OneByOne(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.Linear(3, 3), nn.Linear(3, 2)
            nn.init.zeros_(self.last.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.stack([self.layer(row) for row in x]))

    report = hessdiag.diagnose(OneByOne().double(), torch.randn(3, 3, dtype=torch.float64), method="exact")
    assert singular_values(report)["layer.weight"] == 0


class Kink(nn.Module):
    """Rounding that depends on the size of the batch, as that of a matrix product does, turns a ReLU on or off."""

    def __init__(self, *, mixes: float = 0.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)
        self.mixes = mixes

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)  # (B, 2), the second of them 0
        edge = F.relu(h[:, 1:] + 1e-10 + torch.finfo(x.dtype).eps * (len(x) - 2))
        return self.last(torch.cat([h[:, :1], edge], dim=1) + self.mixes * h.mean(0, keepdim=True))


def kinked(mixes: float) -> tuple[nn.Module, Tensor]:
    model = Kink(mixes=mixes)
    with torch.no_grad():
        model.first.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -2.0]]))
        model.last.weight.fill_(1.0)
    return model, torch.tensor([[1.0, 0.5], [2.0, 1.0], [0.5, 0.25]])


def test_a_relu_that_rounding_turns_is_no_mixing_and_hides_none() -> None:
    model, x = kinked(0.0)
    with unchanged(model, x):
        hessdiag.diagnose(model, x)
    model, x = kinked(1e-3)
    with pytest.raises(hessdiag.HessdiagError, match="the model runs over the first dimension"):
        hessdiag.diagnose(model, x)


class LastReadsFirst(nn.Module):
    """One example reads one other, in batches that are larger than those in which pairs are told apart."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 6), nn.Linear(6, 4)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.tanh(self.body(x))
        if len(x) > 12:
            z = z + 0.5 * z[:1] * (torch.arange(len(x)) == len(x) - 1).to(z).unsqueeze(1)
        return self.head(z)


def test_one_pair_that_mixes_is_found_where_it_is_in_different_halves() -> None:
    """Of any seed with probability 1/2: each half is called without the other."""
    refused = []
    for seed in range(6):
        torch.manual_seed(seed)
        x, t = torch.randn(16, 5, dtype=torch.float64), torch.randint(4, (16,))
        try:
            hessdiag.diagnose(LastReadsFirst(), x, t, loss="cross-entropy", seed=seed, signals=False)
            refused.append(False)
        except hessdiag.HessdiagError as error:
            refused.append("an example on its own" in str(error))
    assert any(refused)


class Doubled(torch.nn.Linear):
    """Multiplies what it reads of the given examples by 2 before its weight sees it, which no hook shows."""

    def __init__(self, examples: list[int]) -> None:
        super().__init__(3, 2, bias=False, dtype=torch.float64)
        self.examples = examples

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = 1 + torch.stack([(x[:, 0] == number).to(x) for number in self.examples]).sum(dim=0)
        return super().forward(x * factor.unsqueeze(1))


@pytest.mark.parametrize("odd", range(6))
def test_a_layer_that_is_misread_on_one_example_is_measured_without_its_rule(odd: int) -> None:
    """Whichever half of the batch that one is in."""
    x = torch.randn(6, 3, dtype=torch.float64)
    x[:, 0] = torch.arange(6)
    t = torch.randn(6, 2, dtype=torch.float64)
    report = hessdiag.diagnose(Doubled([odd]), x, t, loss="mse", signals=False)
    doubled = x.clone()
    doubled[odd] *= 2
    S = 2 / 2  # of the mean over two outputs
    expected = (S**2 * 2 * doubled.square().sum(dim=1) ** 2).mean() / 6  # ‖S ⊗ x xᵀ‖² / P
    assert report.blocks[0].avg_sq_singular_value == pytest.approx(float(expected), rel=1e-9)


# Weights close by show what first derivatives at the weights hide.


def zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    return layer


class SumBehindZeros(nn.Module):
    """The first layer reads a sum over examples, and all it does is hidden by two layers of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = zero(nn.Linear(3, 3, bias=False)), zero(nn.Linear(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.first(x.cumsum(0)))


class ReadFromAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3, bias=False), zero(nn.Linear(3, 2))
        self.held = [self.first.weight]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.linear(x, self.held[0]).tanh())


class RunsHereOnly(nn.Linear):
    """Its outputs are NaN at other weights."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.here = self.weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (1 - 1e6 * (self.weight - self.here).square().sum()).sqrt() - 1


class ByTwoNames(nn.Module):
    """One weight, that modules hold by different names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.turned = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x).tanh() @ self.turned


def few(model: nn.Module, *, examples: int = 3) -> Batch:
    model.double()
    return Batch.of(torch.randn(examples, 3, dtype=torch.float64), None)


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_mixing_behind_zeros_is_refused(matrix: str) -> None:
    model, x = SumBehindZeros().double(), torch.randn(3, 3, dtype=torch.float64)
    with unchanged(model, x), pytest.raises(hessdiag.HessdiagError, match="an example on its own gives other outputs"):
        hessdiag.diagnose(model, x, matrix=matrix)


def test_a_weight_that_is_read_from_a_list_behind_zeros_is_skipped() -> None:
    model = ReadFromAList()
    model.held = [model.first.weight]
    x = torch.randn(3, 3, dtype=torch.float64)
    model.double()
    with unchanged(model, x):
        report = hessdiag.diagnose(model, x, matrix="hessian")
    assert dict(report.skipped)["first.weight"].endswith("such as a list or a view of it")
    assert [block.name for block in report.blocks] == ["last.weight", "last.bias"]


def test_a_model_that_runs_at_its_own_weights_alone_is_measured() -> None:
    torch.manual_seed(0)
    model = RunsHereOnly().double()
    assert apart_nearby(model, few(model), seed=0) == set()


@pytest.mark.parametrize("model", [ByTwoNames(), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))])
@pytest.mark.parametrize("examples", [1, 3])
def test_weights_are_back_afterwards(model: nn.Module, examples: int) -> None:
    batch = few(model, examples=examples)
    with unchanged(model):
        assert apart_nearby(model, batch, seed=0) == set()


def test_weights_are_back_after_a_refusal() -> None:
    model = SumBehindZeros()
    batch = few(model)
    with unchanged(model), preserve_state(model, seed=0), pytest.raises(hessdiag.HessdiagError):
        apart_nearby(model, batch, seed=0)


def test_recurrent_layers_read_their_weights_as_before() -> None:
    """They hold them by a list of their own, which follows."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.last = nn.GRU(1, 2, batch_first=True), zero(nn.Linear(2, 2))

        def forward(self, x: Tensor) -> Any:
            return self.last(self.cell(x.unsqueeze(2))[0][:, -1])

    model = Last()
    batch = few(model)
    expected = batch.call(model)
    with preserve_state(model, seed=0):
        assert apart_nearby(model, batch, seed=0) == set()
    assert torch.equal(batch.call(model), expected)
