"""The same model, data and loss have the same digest in every process; a changed one has another."""

import pytest
import torch
from torch import nn

from hessdiag.data.batch import Batch
from hessdiag.execution.identity import digest_of_batch, digest_of_loss, digest_of_model


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU()).eval()


def changed_weight(m: nn.Module) -> nn.Module:
    m[0].weight.data[0, 0, 0] += 1e-7
    return m


def changed_buffer(m: nn.Module) -> nn.Module:
    m[1].running_mean[0] = 1.0
    return m


def changed_stride(m: nn.Module) -> nn.Module:
    m[0].stride = (2,)
    return m


def test_equal_models_have_equal_digests() -> None:
    assert digest_of_model(model()) == digest_of_model(model())


@pytest.mark.parametrize("change", [changed_weight, changed_buffer, changed_stride, nn.Module.train, nn.Module.double])
def test_any_change_shows(change) -> None:
    assert digest_of_model(change(model())) != digest_of_model(model())


def test_batches() -> None:
    x, t = torch.randn(3, 2), torch.tensor([0, 1, 2])
    digests = {
        digest_of_batch(Batch.of(*each))
        for each in [(x, None), (x, t), (x.double(), t), (x.flip(0), t), ({"x": x}, t), ({"y": x}, t), ((x, 2), t)]
    }
    assert len(digests) == 7
    assert digest_of_batch(Batch.of(x, t)) == digest_of_batch(Batch.of(x.clone(), t.clone()))


def test_losses_differ_by_their_code() -> None:
    assert digest_of_loss("mse") == "mse"
    assert digest_of_loss(lambda y, t: y.sum()) != digest_of_loss(lambda y, t: y.mean())
    assert digest_of_loss(nn.MSELoss()) == digest_of_loss(nn.MSELoss())
