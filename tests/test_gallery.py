"""The gallery itself: cases build, run, and differ from their repair in the guilty parameters alone."""

import pytest
import torch
from strangers.gallery import CASES, HEALTHY, Case, Healthy, match
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import resolve_loss

UNTRAINED = [healthy for healthy in HEALTHY[len(CASES) :] if not healthy.name.endswith("-trained")]  # which takes long


def mean_loss(model: nn.Module, inputs: object, targets: Tensor, loss: str) -> float:
    batch = Batch.of(inputs, targets).narrow(0, 8)  # type: ignore[arg-type]
    with torch.no_grad():
        y = batch.call(model)
        return float(resolve_loss(loss, y=y, targets=batch.targets, seed=0).value(y, batch.targets).mean())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_repair_changes_the_guilty_parameters_alone(case: Case) -> None:
    width = case.widths[0] if case.name == "gpt2-cproj" else case.widths[0] // 2
    models = [case.build(variant, seed=3, width=width) for variant in ("before", "after")]
    before, after = (dict(model.named_parameters()) for model in models)
    assert 0 < mean_loss(models[1], *case.batch(seed=1), case.loss) < 10
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert before.keys() == after.keys()
    assert changed
    assert all(match(name, case.guilty) for name in changed)
    assert all(any(match(name, (pattern,)) for name in changed) for pattern in case.guilty if "lora_B" not in pattern)


@pytest.mark.parametrize("healthy", UNTRAINED, ids=lambda healthy: healthy.name)
def test_healthy_networks_take_a_loss(healthy: Healthy) -> None:
    inputs, targets = healthy.batch(seed=1)
    assert 0 < mean_loss(healthy.build(seed=2), inputs, targets, healthy.loss) < 10
