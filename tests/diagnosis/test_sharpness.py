"""`hessdiag.sharpness` and `operator`: against dense matrices, closed forms and their own error bars."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

import hessdiag
from hessdiag.curvature.spectrum import output_gradients, sampled_spectra
from hessdiag.results.numbers import Z95, Array
from hessdiag.results.sharpness import BlockSharpness, Sharpness
from tests.networks import Net, build
from tests.oracles import DENSE, hessian_blocks, joined, quadratic
from tests.unchanged import unchanged

NETWORKS = (
    "batchnorm", "convs strided", "conv groups", "depthwise", "attention", "layernorm", "tied", "lstm", "tanh",
    "multiplier",
)  # fmt: skip
OPERATORS = ("batchnorm", "convs strided", "conv groups", "attention", "layernorm", "tied", "lstm", "prelu")
EXAMPLES = 5


def blocks_of(model: nn.Module, x: Tensor, t: Tensor | None, matrix: str, names: list[str]) -> list[list[Tensor]]:
    loss = F.cross_entropy if t is not None else quadratic(model(x)[0].numel())
    return [[block.detach() for block in row] for row in DENSE[matrix](model, x, t, loss, names)]


def assert_same(found: BlockSharpness, dense: Tensor, size: float) -> None:
    eigenvalues = torch.linalg.eigvalsh((dense + dense.T) / 2)
    zero = float(eigenvalues.abs().max()) < 1e-20 * size  # a bias before batch normalisation
    size = size if zero else float(eigenvalues.abs().max())
    assert found.informative != zero
    assert found.trace == pytest.approx(float(eigenvalues.sum()), abs=1e-8 * size)
    assert found.frobenius_sq == pytest.approx(float(dense.square().sum()), rel=1e-8, abs=1e-20)
    assert found.largest == pytest.approx(float(eigenvalues[-1]), abs=1e-8 * size)
    assert found.smallest == pytest.approx(float(eigenvalues[0]), abs=1e-8 * size)


@pytest.mark.parametrize("matrix", DENSE)
@pytest.mark.parametrize("name", [*NETWORKS, "random quadratic"])
def test_dense_eigenvalues(name: str, matrix: str) -> None:
    """Gram matrices in output space, or all unit vectors; an indefinite loss too."""
    model, x = subject("tanh" if name == "random quadratic" else name)
    t = None if name == "random quadratic" else targets(model, x)
    model.train()
    with unchanged(model, x):
        found = hessdiag.sharpness(model, x, t, matrix=matrix, split=None, density=True)
    names = [block.name for block in found]
    blocks = blocks_of(model, x, t, matrix, names)
    whole = joined(blocks)
    size = float(torch.linalg.matrix_norm(whole, 2))
    if found.exact:
        assert_same(found, whole, size)
        eigenvalues, at = torch.linalg.eigvalsh(whole).numpy(), np.array([-0.3, -1e-6, 1e-6, 0.01, 0.3]) * found.largest
        np.testing.assert_allclose(found.density(at)[0], [(eigenvalues > a).mean() for a in at])
    for number, block in enumerate(found):
        assert_same(block, blocks[number][number], size)
    own = sum(float(blocks[i][i].square().sum()) for i in range(len(blocks)))
    share, stderr = found.off_diagonal_share, found.off_diagonal_stderr
    assert abs(share - 1 + own / float(whole.square().sum())) <= 4 * stderr + 1e-8
    assert (stderr > 0) != found.exact
    again = Sharpness.from_json(found.to_json())
    assert (again, again.edge) == (found, 2 / found.largest)
    assert found[names[0]].effective_rank == found.blocks[0].trace ** 2 / found.blocks[0].frobenius_sq


@pytest.fixture(scope="module")
def spiked() -> tuple[Tensor, Tensor]:
    """diag(5, 4, 3, 0, …) + Z Zᵀ / n, and examples whose mean squared error has this Hessian."""
    n = 400
    Z = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Y = Z @ Z.T / n
    Y.diagonal()[:3] += torch.tensor([5.0, 4.0, 3.0], dtype=torch.float64)
    return Y, torch.linalg.cholesky(Y).T * math.sqrt(n / 2)


@pytest.mark.parametrize("matrix", DENSE)
def test_outliers_above_a_bulk(spiked: tuple[Tensor, Tensor], matrix: str, monkeypatch) -> None:
    """The outliers are at θ + θ/(θ − 1), the bulk ends at 4: free additive convolution with Marchenko and Pastur's."""
    monkeypatch.setattr("hessdiag.curvature.spectrum.DENSE", 0)
    Y, X = spiked
    t = torch.zeros(len(X), 1, dtype=torch.float64)
    model = nn.Linear(len(Y), 1, bias=False, dtype=torch.float64)
    found = hessdiag.sharpness(model, X, t, matrix=matrix, density=True, rtol=1e-10)
    eigenvalues = torch.linalg.eigvalsh(Y).numpy()
    assert found.exact == (matrix == "ggn")
    assert found.largest == pytest.approx(eigenvalues[-1], rel=1e-8)
    assert found.largest == pytest.approx(6.25, rel=0.06)
    assert abs(found.trace - eigenvalues.sum()) <= 4 * found.trace_stderr + 1e-8
    at = np.linspace(0.05, 4.4, 40)
    share, stderr = found.density(at)
    expected = (eigenvalues[:, None] > at).mean(axis=0)
    assert (np.abs(share - expected) < 4 * (stderr + 1e-3)).all()
    for outlier in (6.25, 16 / 3, 4.5):
        assert np.abs(found.nodes[:, -3:] - outlier).min(axis=1).max() < 0.4


def test_softmax_regression_at_zero() -> None:
    """p is uniform: (diag(p) − p pᵀ) ⊗ XᵀX / B has the eigenvalues of XᵀX / (B C), C − 1 times each."""
    B, d, C = 30, 6, 4
    X = torch.randn(B, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = nn.Linear(d, C, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    expected = np.repeat(torch.linalg.eigvalsh(X.T @ X / B / C).numpy(), C - 1)
    for matrix in DENSE:
        found = hessdiag.sharpness(model, X, torch.arange(B) % C, matrix=matrix, density=True)
        nodes = np.repeat(found.nodes[0], np.round(found.weights[0] * found.numel).astype(int))
        np.testing.assert_allclose(np.sort(nodes), np.sort([*expected, *[0.0] * d]), atol=1e-12)


def held_by_errors(kind: str, seeds: int, n: int = 100) -> tuple[Array, float]:
    """Shares of the seeds whose 95 % intervals hold trace and norm, and whose bands hold the density."""
    Q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    at = torch.linspace(0, 1, n, dtype=torch.float64)
    values = {"indefinite": 2 * at - 1, "few outliers": (at > 0.99) * 10 * at + 0.1 * at, "decaying": (-9 * at).exp()}
    matrix, eigenvalues = (Q * values[kind]) @ Q.T, values[kind].numpy()
    largest, levels = np.abs(eigenvalues).max(), np.quantile(eigenvalues, [0.2, 0.5, 0.8])
    products = lambda columns: [matrix @ v for _, v in columns]  # noqa: E731
    operator = SimpleNamespace(shape=(n, n), like=matrix, matrix="hessian", products=products)
    groups = [(slice(n), {"name": kind, "shape": (n,), "numel": n})]
    held, dense = [], []
    for seed in range(seeds):
        (found,) = sampled_spectra(operator, groups, rtol=1e-3, memory=2**30, density=False, seed=seed)
        for value, error, end in (
            (found.largest, found.largest_error, eigenvalues.max()),
            (found.smallest, found.smallest_error, eigenvalues.min()),
        ):
            assert np.abs(eigenvalues - value).min() <= error <= 0.01 * largest
            assert abs(value - end) <= 0.03 * largest
        trace = abs(found.trace - eigenvalues.sum()) <= Z95 * found.trace_stderr
        norm = abs(found.frobenius_sq - (eigenvalues**2).sum()) <= Z95 * found.frobenius_sq_stderr
        held.append((trace, norm))
        (found,) = sampled_spectra(operator, groups, rtol=1e-3, memory=2**30, density=True, seed=seed)
        share, error = found.density(levels)
        dense.append(np.abs(share - [0.8, 0.5, 0.2]) <= Z95 * error + 0.5 / n)
    return np.mean(held, axis=0), float(np.mean(dense))


def test_error_bars_hold() -> None:
    """Of 3 × 24 seeds; `scripts/sharpness_coverage.py` has 200 of networks."""
    rates = [held_by_errors(kind, 24) for kind in ("indefinite", "few outliers", "decaying")]
    assert min(rate.min() for rate, _ in rates) >= 0.83
    assert 0.9 <= np.mean([rate for rate, _ in rates]) <= 0.985
    assert np.mean([dense for _, dense in rates]) >= 0.9


@pytest.mark.parametrize("name", ["convs strided", "batchnorm", "multiplier", "random quadratic", "callable"])
def test_signs_of_outputs(name: str, monkeypatch) -> None:
    """Unit vectors in their place make the whole matrix; in chunks, where examples meet, and without a root of S."""
    model, x = subject(name if name in NETWORKS else "tanh")
    t = None if name == "random quadratic" else targets(model, x)
    loss = (lambda y, t: F.cross_entropy(y, t)) if name == "callable" else None
    H = hessdiag.operator(model, x, t, loss=loss)
    count, done = H.problem.batch.size * H.problem.shape.outputs, [0]

    def units(shape: tuple[int, ...], _: object) -> Tensor:
        assert shape[0] == count
        done[0] += math.prod(shape[1:])
        return torch.eye(count)[:, done[0] - math.prod(shape[1:]) : done[0]].reshape(shape)

    dense = torch.from_numpy(H @ np.eye(H.shape[0]))
    H.memory = 2**15 if name == "convs strided" else H.memory
    assert (len(list(H.pieces())) > 1) == (name == "convs strided")
    monkeypatch.setattr("hessdiag.curvature.spectrum._signs", units)
    with H.around():
        C, D = output_gradients(H, count, torch.Generator())
    torch.testing.assert_close(C.T @ D, dense, rtol=1e-10, atol=1e-10 * float(dense.abs().max()))


def test_a_network_with_large_blocks_says_its_cost(monkeypatch, capsys) -> None:
    monkeypatch.setattr("hessdiag.parallel.progress.PATIENCE", 0.0)
    monkeypatch.setattr("hessdiag.curvature.spectrum.DENSE", 0)
    model = nn.Sequential(nn.Linear(17, 16), nn.Tanh(), nn.Linear(16, 17), nn.Tanh(), nn.Linear(17, 3)).double()
    x, names = torch.randn(12, 17, dtype=torch.float64), ["0.weight", "2.weight"]
    t = torch.arange(12) % 3
    blocks = blocks_of(model, x, t, "hessian", names)
    found = hessdiag.sharpness(model, x, t, matrix="hessian", blocks=names, rtol=1e-9, progress=True)
    said = re.findall(r"so far: (.+ [01]/\d+)(?: \((\d+) gradients\), ~\d+ s in all)?\n", capsys.readouterr().err)
    step = "steps of Lanczos' algorithm"
    assert said[-2:] == [(f"{step} 0/11", "258"), (f"{step} 1/11", "258")]  # 2 × 3 × (11 + 32)
    for number, block in enumerate(found):
        eigenvalues = torch.linalg.eigvalsh(blocks[number][number])
        assert block.largest == pytest.approx(float(eigenvalues[-1]), rel=1e-8)
        assert block.smallest == pytest.approx(float(eigenvalues[0]), rel=1e-8)
        assert abs(block.trace - float(eigenvalues.sum())) <= 4 * block.trace_stderr
    with pytest.raises(hessdiag.HessdiagError, match="--density"):
        found.density(np.zeros(1))


def test_a_block_of_rounding_says_so() -> None:
    """A term whose second derivative cancels, beside one that has curvature."""
    model, x = nn.Sequential(nn.Linear(20, 20, bias=False)).double(), torch.randn(12, 20, dtype=torch.float64)
    flat = lambda y, _: (y.sin().square() + y.cos().square()).mean() + y.mean()  # noqa: E731
    with pytest.raises(hessdiag.HessdiagError, match="not symmetric"):
        hessdiag.sharpness(model, x, loss=flat, matrix="hessian")
    normed = subject("batchnorm")
    found = hessdiag.sharpness(*normed, targets(*normed), density=True)
    assert "! The block of 0.bias has no information" in repr(found)
    assert "Gram" in found.how
    with pytest.raises(hessdiag.HessdiagError, match="rounding alone"):
        found["0.bias"].density(np.zeros(1))


def experts() -> nn.Module:
    weight = nn.Parameter(torch.randn(2, 3, 4, dtype=torch.float64))
    return Net(lambda m, x: torch.einsum("eij,bj->bi", m.weight.tanh(), x), num_experts=2, weight=weight)


@pytest.mark.parametrize("matrix", DENSE)
def test_packed_parameters_come_apart(matrix: str) -> None:
    """By the pieces of dense blocks: rows of q, k and v, of each head, columns in GPT-2, experts."""
    sizes = {"vocab_size": 7, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_positions": 4, "n_inner": 4}
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, initializer_range=1.0)).double().eval()
    tokens = torch.randint(7, (2, 3))
    attention, x = subject("attention")
    for split, model, inputs, name, dim, count in (
        ("qkv", attention, x, "attend.in_proj_weight", 0, 3),
        ("heads", attention, x, "attend.in_proj_weight", 0, 6),
        ("heads", gpt, tokens, "transformer.h.0.attn.c_attn.weight", 1, 6),
        ("experts", experts(), torch.randn(4, 4, dtype=torch.float64), "weight", 0, 2),
    ):
        y = model(inputs)
        t = torch.randint(3, getattr(y, "logits", y).shape[:-1])
        how = {} if isinstance(y, Tensor) else {"class_dim": -1}
        found = hessdiag.sharpness(model, inputs, t, matrix=matrix, split=split, blocks=name, **how)
        assert len(found.blocks) == count
        adapted = nn.Module()
        adapted.forward = lambda given, model=model: getattr(model(given), "logits", model(given))  # type: ignore[method-assign, misc]
        adapted.get_parameter = model.get_parameter  # type: ignore[method-assign]
        loss = lambda y, t: F.cross_entropy(y.flatten(0, -2), t.flatten())  # noqa: E731
        ((dense,),) = DENSE[matrix](adapted, inputs, t, loss, [name])
        shape = model.get_parameter(name).shape
        places = torch.arange(math.prod(shape)).view(shape).chunk(count, dim=dim)
        for block, place in zip(found, places, strict=True):
            assert_same(block, dense.detach()[place.flatten()][:, place.flatten()], float(dense.abs().max()))
    assert [block.name for block in found] == ["weight[0]", "weight[1]"]
    whole, apart = (hessdiag.sharpness(attention, x, split=split, blocks="attend.in_proj*") for split in (None, "auto"))
    assert len(whole.blocks) == 2
    assert [block.name[-3:] for block in apart] == ["[q]", "[k]", "[v]"] * 2
    with pytest.raises(hessdiag.HessdiagError, match="no block is packed"):
        hessdiag.sharpness(attention, x, split="experts")


def batchnorm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)).double()


def subject(name: str) -> tuple[nn.Module, Tensor]:
    if name != "batchnorm":
        return build(name, batch=EXAMPLES)
    return batchnorm(), torch.randn(EXAMPLES, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def targets(model: nn.Module, x: Tensor) -> Tensor:
    return torch.arange(len(x)) % model.eval()(x).shape[1]


@pytest.mark.parametrize("matrix", DENSE)
@pytest.mark.parametrize("name", OPERATORS)
def test_dense_matrices(name: str, matrix: str) -> None:
    """All trainable parameters, vectors of normalisations too; batch normalisation by its batch's statistics."""
    model, x = subject(name)
    t = targets(model, x)
    model.train()
    with unchanged(model, x, t):
        H = hessdiag.operator(model, x, t, matrix=matrix)
        found = torch.from_numpy(H @ np.eye(H.shape[0]))
    assert sorted(H.names) == sorted(name for name, _ in model.named_parameters())
    expected = joined(DENSE[matrix](model, x, t, F.cross_entropy, list(H.names)))
    size = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= 1e-10 * size
    assert float((found - found.T).abs().max()) <= 1e-14 * size
    some = torch.randn(H.shape[0], 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(H.torch_matmat(some), expected @ some, rtol=1e-10, atol=1e-12)


def test_chosen_blocks_chunks_and_scipy() -> None:
    """Chunks weigh by the whole batch's labels; one that is left out counts nowhere."""
    model, x = build("mlp", batch=41)
    t = targets(model, x)
    t[:7] = -100
    H = hessdiag.operator(model, x, t, blocks=["2", "4.bias"], max_memory=2**20, matrix="hessian")
    assert H.names == ("2.weight", "2.bias", "4.bias")
    H.memory = 2**14
    assert H._examples_at_once < 41
    expected = joined(hessian_blocks(model, x, t, F.cross_entropy, list(H.names)))
    np.testing.assert_allclose(H @ np.eye(H.shape[0]), expected, rtol=0, atol=1e-13)
    assert isinstance(H.T, LinearOperator)
    largest = eigsh(H, k=1, which="LA", return_eigenvectors=False)
    assert largest[0] == pytest.approx(float(torch.linalg.eigvalsh(expected)[-1]), rel=1e-10)
    halves = [(x[:20], t[:20]), (x[20:], t[20:])]
    again = hessdiag.operator(model, halves, blocks=["2", "4.bias"], matrix="hessian")
    np.testing.assert_allclose(again @ np.ones(H.shape[0]), H @ np.ones(H.shape[0]), rtol=1e-12, atol=1e-15)


def test_losses_of_whole_batches_inference_and_refusals() -> None:
    model, x = subject("batchnorm")
    model.train()
    spread = lambda y, _: (y - y.mean(dim=0)).pow(4).mean()  # noqa: E731, which compares examples
    for kind in ("train", "eval"):
        H = hessdiag.operator(model, x, loss=spread, matrix="hessian", mode=kind)
        model.train(kind == "train")
        expected = joined(hessian_blocks(model, x, None, spread, list(H.names)))
        np.testing.assert_allclose(H @ np.eye(H.shape[0]), expected, rtol=0, atol=1e-10 * float(expected.abs().max()))
    model, x = build("linear")
    with pytest.raises(hessdiag.HessdiagError, match="blocks 'conv'"):
        hessdiag.operator(model, x, blocks="conv")
    with pytest.raises(hessdiag.HessdiagError, match="matrix 'fisher'"):
        hessdiag.operator(model, x, matrix="fisher")
