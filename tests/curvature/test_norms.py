"""The estimate over pairs of directions has the right means; quantiles, degrees of freedom, and means over batches."""

import math
from itertools import permutations, product

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import hessdiag
from hessdiag.curvature import norms, sketch
from hessdiag.curvature.norms import Curvature, equal_parts, merge, pair_statistics, pair_sums, times_wanted, widening
from hessdiag.curvature.sketch import BASIS, range_basis, weight_jvps
from hessdiag.network.preserve import preserve_state
from tests.curvature.problems import PLENTY
from tests.curvature.problems import problem_of as small_problem
from tests.networks import BUILDERS, PLAIN, build


def matrices(rank: int, size: int = 30):
    generator = torch.Generator().manual_seed(0)
    A, B = (torch.randn(size, rank, generator=generator, dtype=torch.float64) for _ in range(2))
    return A @ A.T, B @ B.T


@pytest.mark.parametrize(("rank", "fixed"), [(30, 0), (3, 0), (30, 5), (3, 2), (3, 4)])
def test_the_estimate_is_unbiased_and_its_variance_nearly(rank: int, fixed: int) -> None:
    K, L = matrices(rank)
    Q = torch.linalg.qr(K @ torch.randn(30, fixed, dtype=torch.float64)).Q if fixed else torch.zeros(30, 0).double()
    truth, omega = float((K * L).sum()), torch.randn(4000, 30, 8, dtype=torch.float64)
    z = torch.cat([Q.expand(4000, -1, -1), omega - Q @ (Q.T @ omega)], dim=2)
    found = pair_statistics(torch.stack([z.mT @ K @ z, z.mT @ L @ z], dim=1), fixed)
    value, variance = found["value"][:, 0, 1], found["variance"][:, 0, 1]
    spread = float(value.std())
    assert abs(float(value.mean()) - truth) < 4 * spread / 4000**0.5 + 1e-9 * truth
    if spread > 1e-9 * truth:
        assert 0.7 < float(variance.mean()) / spread**2 < 1.6  # the lower bound adds a little


def test_a_basis_of_the_range_leaves_no_noise() -> None:
    K, L = matrices(3)
    Q = torch.linalg.qr(torch.cat([K[:, :4], L[:, :4]], dim=1)).Q
    omega = torch.randn(30, 8, dtype=torch.float64)
    z = torch.cat([Q, omega - Q @ (Q.T @ omega)], dim=1)
    found = pair_statistics(torch.stack([z.T @ K @ z, z.T @ L @ z])[None], Q.shape[1])
    value, variance = float(found["value"][0, 0, 1]), float(found["variance"][0, 0, 1])
    assert value == pytest.approx(float((K * L).sum()), rel=1e-9)
    assert abs(variance) < 1e-12 * value**2


def kernel_of(H: torch.Tensor, fixed: int) -> torch.Tensor:
    """h_km of the random directions, pair by pair: terms of the basis are shared out to all pairs."""
    q = len(H) - fixed
    kernel = torch.zeros(q, q, dtype=H.dtype)
    for k in range(q):
        for m in range(q):
            if k != m:
                mixed = sum(H[f, fixed + n] + H[fixed + n, f] for f in range(fixed) for n in (k, m))
                pair = H[fixed + k, fixed + m] + H[fixed + m, fixed + k]
                kernel[k, m] = (pair + mixed) / 2 + H[:fixed, :fixed].sum()
    return kernel


@pytest.mark.parametrize("fixed", [0, 1, 3])
def test_matrix_products_are_sums_over_tuples_of_directions(fixed: int) -> None:
    """Means over pairs, and over pairs of pairs that share no direction."""
    generator, q = torch.Generator().manual_seed(1), 5
    X = torch.randn(2, 3, q + fixed, q + fixed, generator=generator, dtype=torch.float64)
    found, ordered = pair_statistics(X, fixed), list(permutations(range(q), 2))
    for b, i, j in product(range(2), range(3), range(3)):
        H = X[b, i] * X[b, j].T
        h = kernel_of(H, fixed)
        theta = sum(h[p] for p in ordered) / len(ordered)
        apart = [h[p] * h[o] for p in ordered for o in ordered if not set(p) & set(o)]
        truth_sq, squares = sum(apart) / len(apart), sum(h[p] ** 2 for p in ordered) / len(ordered)
        expected = {
            "value": theta,
            "variance": max(theta**2 - truth_sq, (squares - theta**2) * 2 / (q * (q - 1))),
            "size": kernel_of(H.abs(), fixed).sum() / (q * (q - 1)),
        }
        for name, value in expected.items():
            assert float(found[name][b, i, j]) == pytest.approx(float(value), rel=1e-10, abs=1e-12), name


def test_examples_are_summed_whatever_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = torch.randn(5, 3, 6, 6, dtype=torch.float64)
    whole = pair_sums(gram, fixed=1)
    monkeypatch.setattr(norms, "AT_ONCE", 2 * 3 * 6 * 6)
    few = pair_sums(gram, fixed=1)
    for key, value in whole.items():
        assert few[key] == pytest.approx(value, rel=1e-12), key


@pytest.mark.parametrize(("dof", "quantile"), [(1, 12.706), (2, 4.303), (5, 2.571), (30, 2.042), (math.inf, 1.960)])
def test_the_printed_table_of_student(dof: float, quantile: float) -> None:
    assert float(widening(np.array([dof]))[0]) * 1.959964 == pytest.approx(quantile, abs=6e-4)


def test_parts_of_a_variance_samples_for_an_error_and_means_over_batches() -> None:
    variances = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    assert equal_parts(variances.sum(axis=1), (variances**2).sum(axis=1)).tolist() == [4.0, 1.0]
    value, stderr = np.array([1.0, 2.0]), np.array([0.1, 0.1])
    assert times_wanted(value, stderr, 0.05) == pytest.approx(4 * 1.2**2)
    assert times_wanted(-value, 10 * stderr, 0.5) == pytest.approx(4 * 1.2**2)  # no more than noise
    assert times_wanted(value, 0 * stderr, 0.05) == 0

    def of(value: float, stderr: float, rtol: float | None = None) -> Curvature:
        return Curvature.sampled(np.full((1, 1), value), np.full((1, 1), stderr), int(value), rtol=rtol, reason="why")

    both = merge([of(1.0, 0.3), of(4.0, 0.4)], [3, 1])
    assert both.frobenius_sq[0, 0] == pytest.approx(1.75)
    assert both.stderr[0, 0] == pytest.approx(math.hypot(0.75 * 0.3, 0.25 * 0.4))
    assert (both.products.tolist(), both.ended[0]) == ([4], "sampled")
    assert merge([of(1.0, 0.3, rtol=0.2), of(4.0, 0.4, rtol=0.2)], [3, 1]).ended[0] == "rtol"
    assert merge([of(1.0, 0.3, rtol=0.1), of(4.0, 0.4, rtol=0.1)], [3, 1]).ended[0] == "budget"
    assert merge([of(1.0, 0.0), of(4.0, 0.0)], [1, 1]).ended[0] == "exact"


def test_a_tied_transformer_is_measured_as_with_all_outputs() -> None:
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 30, "n_positions": 8, "bos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, eos_token_id=0)).eval()
    words = torch.randint(30, (3, 9))
    data = {"input_ids": words[:, :-1].contiguous()}, words[:, 1:].contiguous()
    options: dict[str, object] = {"loss": "cross-entropy", "class_dim": -1, **PLAIN}
    exact = hessdiag.diagnose(model, *data, method="exact", **options)
    drawn = [hessdiag.diagnose(model, *data, seed=seed, **options) for seed in range(4)]
    for number, block in enumerate(exact.blocks):
        some = [each.blocks[number] for each in drawn]
        error = np.sqrt(np.mean([b.stderr**2 for b in some]) / len(some))
        mean = np.mean([b.avg_sq_singular_value for b in some])
        assert error > 0, block.name
        assert abs(mean - block.avg_sq_singular_value) <= 4 * error, block.name


@pytest.mark.parametrize("name", BUILDERS)
def test_displaced_weights_move_the_outputs_as_finite_differences_do(name: str) -> None:
    model, x = build(name)
    problem = small_problem(model, x, "mse")
    scales = [1.0 + number for number in range(len(problem.blocks))]
    with preserve_state(model, seed=0):
        ((_, moved),) = weight_jvps(problem, problem.batch, scales, 1, seed=0)
    generator = sketch.stream(0, "weight tangents")
    step, before = 1e-6, {key: value.clone() for key, value in model.state_dict().items()}
    outputs, named = [], dict(model.named_parameters())
    along = {}
    for block, scale in zip(problem.blocks, scales, strict=True):
        first = block.shape[0] if block.shape else 1
        one, other = torch.randn(first, generator=generator), torch.randn(block.numel // first, generator=generator)
        along[block.name] = scale * torch.outer(one.double(), other.double()).view(named[block.name].shape)
    for sign in (1, -1):
        with torch.no_grad():
            for key, u in along.items():
                named[key].add_(u, alpha=sign * step)
            outputs.append(model(x))
            model.load_state_dict(before)
    expected = (outputs[0] - outputs[1]) / (2 * step)
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_the_basis_is_orthonormal_for_every_example_and_spans_a_small_range() -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 20, bias=False)).double()  # of the first layer, rank 3
    model[1].requires_grad_(False)
    basis = range_basis(small_problem(model, torch.randn(4, 6, dtype=torch.float64), "mse"), PLENTY, 0)
    assert basis is not None
    Q = basis.permute(1, 2, 0)  # (B, N, r)
    torch.testing.assert_close(Q.mT @ Q, torch.eye(BASIS, dtype=torch.float64).expand(4, BASIS, BASIS))
    W = model[1].weight.detach()
    torch.testing.assert_close(Q @ (Q.mT @ W), W.expand(4, 20, 3))


def test_sequences_and_networks_without_forward_mode_have_no_basis() -> None:
    words = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 40)).double()
    assert range_basis(small_problem(words, torch.randint(9, (2, 5)), "mse"), PLENTY, 0) is None
    bag = nn.Sequential(nn.EmbeddingBag(9, 5, mode="sum"), nn.Linear(5, 40)).double()
    assert range_basis(small_problem(bag, torch.randint(9, (4, 3)), "cross-entropy"), PLENTY, 0) is None
