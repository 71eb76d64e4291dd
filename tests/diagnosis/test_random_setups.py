"""Random trials: new ones each time, the same ones again."""

import numpy as np
import torch

from hessdiag.diagnosis.random_setups import RandomTrials, measure_setups
from hessdiag.loading.prepare import prepare, random_network
from hessdiag.models.sources import resolve_model

SOURCE = resolve_model("mlp:6-5-4")


def test_set_ups_differ_and_repeat_by_their_own_seeds_and_leave_the_random_state_alone() -> None:
    first, again = (measure_setups(SOURCE, setups=3, batch_size=4, init="fan-in") for _ in range(2))
    assert len(first) == 3
    assert first.to_json() == again.to_json()
    for column in first.columns.values():
        if column.any():  # standard errors of exact values are all zero
            assert len(np.unique(column[:, 0])) == 3
    three = measure_setups(SOURCE, setups=3, batch_size=4, init="fan-in", seed=5)
    last = measure_setups(SOURCE, setups=1, batch_size=4, init="fan-in", seed=7)
    np.testing.assert_array_equal(three.columns["gamma"][2], last.columns["gamma"][0])
    before = torch.get_rng_state()
    random_network(SOURCE, init="geometric", seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_inputs_and_loss_are_drawn_apart_and_targets_fit_the_outputs() -> None:
    (report,) = RandomTrials.of(SOURCE, setups=1, batch_size=4, init="fan-out", seed=3).reports()
    assert (report.model, report.init, report.data, report.seed) == ("mlp:6-5-4", "fan-out", "random normal", 3)
    prepared = prepare(SOURCE, batch_size=4, init="fan-out", seed=3)
    (inputs,), targets = prepared.batch.args, prepared.batch.targets
    assert targets is None
    weight = next(prepared.module.parameters()).detach().flatten()[:24]
    assert abs(float(torch.corrcoef(torch.stack([weight, inputs.flatten()]))[0, 1])) < 0.9
    for loss, shape in (("cross-entropy", (4,)), ("mse", (4, 4))):
        (report,) = RandomTrials.of(SOURCE, setups=1, batch_size=4, loss=loss).reports()
        assert report.loss == loss
        assert prepare(SOURCE, batch_size=4, loss=loss, seed=0).batch.targets.shape == shape
