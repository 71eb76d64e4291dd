"""Batch normalisation of a model in training is measured with the statistics of its batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hessdiag.data.batch import Batch
from hessdiag.training.evaluation_mode import evaluation_mode
from tests.unchanged import unchanged


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.5), nn.Linear(16, 3)).double()


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch.of(torch.randn(50, 2, 6, 6, generator=generator, dtype=torch.float64) * 3 + 1, None)


def test_outputs_are_those_of_the_training_mode_with_dropout_off() -> None:
    model, given = network(), batch()
    trained = copy.deepcopy(model)
    trained[6].eval()
    y = trained(*given.args)
    with unchanged(model), evaluation_mode(model, given):
        held = model(*given.args)
        one = model(given.args[0][:1])
    # Running variances are divided by n − 1: √(n / (n − 1)) with 50 × 16 and 50 × 4 positions.
    torch.testing.assert_close(held, y, rtol=5e-3, atol=5e-3)
    assert not torch.allclose(held, copy.deepcopy(model).eval()(*given.args), rtol=0.1)  # fresh ones normalise nothing
    torch.testing.assert_close(one, held[:1])  # an example does not depend on the others


@pytest.mark.parametrize("synchronised", [False, True])
def test_frozen_and_synchronised_normalisations_keep_their_statistics(synchronised: bool) -> None:
    """The forward pass of synchronised ones in training mode would wait for other processes."""
    model, given = network(), batch()
    if synchronised:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        module.training = synchronised or not isinstance(module, nn.BatchNorm2d)
    y = copy.deepcopy(model).eval()(*given.args)
    with unchanged(model), evaluation_mode(model, given):
        assert torch.equal(model(*given.args), y)


def test_all_is_put_back_after_an_error() -> None:
    model = network()
    with unchanged(model), pytest.raises(ZeroDivisionError), evaluation_mode(model, batch()):
        raise ZeroDivisionError


def test_a_forward_function_under_autocast_is_called_without() -> None:
    """As `accelerate.Accelerator.prepare` leaves a model that is trained in mixed precision."""
    model, x = nn.Linear(3, 2), torch.ones(1, 3)
    model._original_forward = model.forward  # type: ignore[assignment]
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)  # type: ignore[method-assign]
    with unchanged(model), evaluation_mode(model, Batch.of(x, None)):
        assert model(x).dtype == torch.float32
    assert model(x).dtype == torch.bfloat16
