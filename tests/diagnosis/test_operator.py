"""`hessdiag.operator`: against dense matrices, in chunks, through batch statistics, and the model as it was."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

import hessdiag
from tests.networks import build
from tests.oracles import DENSE, LossOfBatch
from tests.unchanged import unchanged

EXAMPLES = 5


def batchnorm() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)]
    return nn.Sequential(*layers).double()


def subject(name: str) -> tuple[nn.Module, Tensor]:
    if name != "batchnorm":
        return build(name, batch=EXAMPLES)
    return batchnorm(), torch.randn(EXAMPLES, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def targets(model: nn.Module, x: Tensor) -> Tensor:
    return torch.arange(len(x)) % model.eval()(x).shape[1]


def dense(model: nn.Module, x: Tensor, t: Tensor | None, loss: LossOfBatch, names: list[str], matrix: str) -> Tensor:
    return torch.cat([torch.cat(row, dim=1) for row in DENSE[matrix](model, x, t, loss, names)]).detach()


NETWORKS = ("batchnorm", "convs strided", "conv groups", "attention", "layernorm", "tied", "lstm", "prelu")


@pytest.mark.parametrize("matrix", DENSE)
@pytest.mark.parametrize("name", NETWORKS)
def test_dense_matrices(name: str, matrix: str) -> None:
    """All trainable parameters, vectors of normalisations too; batch normalisation by its batch's statistics."""
    model, x = subject(name)
    t = targets(model, x)
    model.train()
    with unchanged(model, x, t):
        H = hessdiag.operator(model, x, t, matrix=matrix)
        found = torch.from_numpy(H @ np.eye(H.shape[0]))
    assert sorted(H.names) == sorted(name for name, _ in model.named_parameters())
    expected = dense(model, x, t, F.cross_entropy, list(H.names), matrix)
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
    expected = dense(model, x, t, F.cross_entropy, list(H.names), "hessian")
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

    def spread(y: Tensor, _: Tensor | None) -> Tensor:  # compares examples
        return (y - y.mean(dim=0)).pow(4).mean()

    for kind in ("train", "eval"):
        H = hessdiag.operator(model, x, loss=spread, matrix="hessian", mode=kind)
        model.train(kind == "train")
        expected = dense(model, x, None, spread, list(H.names), "hessian")
        np.testing.assert_allclose(H @ np.eye(H.shape[0]), expected, rtol=0, atol=1e-10 * float(expected.abs().max()))
    model, x = build("linear")
    with pytest.raises(hessdiag.HessdiagError, match="blocks 'conv'"):
        hessdiag.operator(model, x, blocks="conv")
    with pytest.raises(hessdiag.HessdiagError, match="matrix 'fisher'"):
        hessdiag.operator(model, x, matrix="fisher")
