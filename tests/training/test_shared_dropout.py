"""Dropout whose masks do not depend on the number of processes."""

import pytest
import torch
from torch import nn

from hessdiag.execution.ranks import ALONE, Ranks
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.training.shared_dropout import SharedDropout, draw_masks, share_dropout


def dropped(layer: SharedDropout, rows: int, *, step: int = 0, ranks: Ranks = ALONE) -> torch.Tensor:
    draw_masks([layer], seed=0, step=step, ranks=ranks)
    return layer(torch.ones(rows, 500))


def test_a_share_of_the_mask_is_that_of_one_process() -> None:
    layer = SharedDropout(0.25)
    parts = [dropped(layer, 4, ranks=Ranks(rank, 3)) for rank in range(3)]
    assert torch.equal(torch.cat(parts), dropped(layer, 12))


def test_kept_entries_are_scaled_up_and_masks_change_from_step_to_step() -> None:
    y = dropped(SharedDropout(0.25), 40)
    assert y.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert float((y == 0).double().mean()) == pytest.approx(0.25, abs=4 * (0.1875 / 20_000) ** 0.5)
    assert not torch.equal(y, dropped(SharedDropout(0.25), 40, step=1))
    assert torch.equal(y, dropped(SharedDropout(0.25), 40))


def test_in_evaluation_nothing_is_dropped() -> None:
    x = torch.ones(3, 5)
    assert SharedDropout(0.25).eval()(x) is x


def test_every_dropout_of_a_network_is_replaced() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    assert [layer.rate for layer in share_dropout(network)] == [0.5, 0.1]
    assert not [module for module in network.modules() if isinstance(module, nn.Dropout)]
    assert len(share_dropout(RescaleNet(14, 2, 32))) == 1
