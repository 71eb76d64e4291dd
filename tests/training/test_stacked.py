"""Stacked training against a plain loop over networks with `torch.optim`, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag import init
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream
from hessdiag.models.mlp import mlp
from hessdiag.training import stacked
from hessdiag.training.stacked import Examples, Member, Training, group_size, mean_losses, minibatches, train_stacked
from hessdiag.training.stacked_mlp import stack_networks
from hessdiag.training.stacked_optimizers import OPTIMIZERS, make_optimizer

COUNT, FEATURES, CLASSES = 37, 6, 3
RATES = (0.5, 0.05, 0.002)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(COUNT, FEATURES, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(CLASSES, (COUNT,), generator=generator)


def examples() -> Examples:
    inputs, targets = data()
    return Examples(lambda index: inputs[index], targets)


def network(scheme: str, seed: int) -> nn.Module:
    model = init.apply(mlp([FEATURES, 9, 5, CLASSES]), scheme, generator=stream(seed, "initialisation"))
    with torch.no_grad():  # biases other than zero, so that a wrong sign of theirs shows
        model.fc1.bias.fill_(0.1)
        model.fc3.bias.copy_(torch.arange(CLASSES))
    return model.double()


def members(seeds: Sequence[int] = (0, 1), rates: Sequence[float] = RATES) -> list[Member]:
    return [Member(network(s, seed), rate, seed) for seed in seeds for s in ("fan-in", "geometric") for rate in rates]


def plain_loss(member: Member, settings: Training) -> float:
    """Train one network as anyone would."""
    inputs, targets = data()
    model = mlp([FEATURES, 9, 5, CLASSES]).double()
    model.load_state_dict(member.network.state_dict())
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    options = {"momentum": 0.9} if settings.optimizer == "momentum" else {}
    optimizer = kind(model.parameters(), lr=member.rate, weight_decay=settings.weight_decay, **options)
    order = stream(member.seed, "order")
    scale = None
    for _ in range(settings.epochs):
        for batch in torch.randperm(COUNT, generator=order).split(settings.batch_size):
            logits = model(inputs[batch])
            if scale is None:
                scale = 1.0 if settings.logit_std is None else settings.logit_std / float(logits.detach().std())
            optimizer.zero_grad()
            F.cross_entropy(scale * logits, targets[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(scale * model(inputs), targets))


@pytest.mark.parametrize("logit_std", [0.05, None])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_equal_to_a_plain_loop_over_networks(optimizer: str, logit_std: float | None) -> None:
    settings = Training(optimizer=optimizer, batch_size=8, epochs=3, weight_decay=0.01, logit_std=logit_std)
    together = train_stacked(members(), examples(), settings)
    alone = torch.tensor([plain_loss(member, settings) for member in members()], dtype=torch.float64)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=0)
    assert len(set(together.tolist())) == len(together)  # no two networks were trained alike
    untrained = mean_losses(stack_networks([member.network for member in members()]), examples())
    assert (together - untrained).abs().min() > 1e-6


def test_networks_given_are_not_changed() -> None:
    member = members()[0]
    before = [parameter.clone() for parameter in member.network.parameters()]
    train_stacked([member], examples(), Training(batch_size=8, epochs=1))
    for parameter, was in zip(member.network.parameters(), before, strict=True):
        assert torch.equal(parameter, was)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_that_diverges_harms_no_other(optimizer: str) -> None:
    settings = Training(optimizer=optimizer, batch_size=2, epochs=3, logit_std=None)
    well = members(rates=(0.01, 0.001))
    ill = [Member(network("fan-in", 0), 1e200, 0), Member(network("geometric", 1), math.inf, 1)]
    mixed = train_stacked([ill[0], *well, ill[1]], examples(), settings)
    assert mixed[0] == mixed[-1] == math.inf
    torch.testing.assert_close(mixed[1:-1], train_stacked(well, examples(), settings), rtol=1e-12, atol=0)
    assert train_stacked(ill, examples(), settings).tolist() == [math.inf, math.inf]


def test_one_that_diverges_leaves_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    gradients = stacked.StackedMLP.gradients

    def counted(stack: stacked.StackedMLP, inputs: Tensor, targets: Tensor) -> object:
        sizes.append(stack.count)
        return gradients(stack, inputs, targets)

    monkeypatch.setattr(stacked.StackedMLP, "gradients", counted)
    ill = Member(network("fan-in", 0), 1e200, 0)
    train_stacked([*members((0,), (0.01,)), ill], examples(), Training(batch_size=2, epochs=2))
    assert sizes[: stacked.LOOK] == [3] * stacked.LOOK
    assert set(sizes[stacked.LOOK :]) == {2}
    assert len(sizes) == 2 * math.ceil(COUNT / 2)


def test_groups_do_not_change_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Training(batch_size=8, epochs=2)
    whole = train_stacked(members(), examples(), settings)
    monkeypatch.setattr(stacked, "MAX_GROUP", 5)
    torch.testing.assert_close(train_stacked(members(), examples(), settings), whole, rtol=1e-12, atol=0)
    assert group_size(mlp([4, 10**6, 2]), 128) == 1


def test_all_schemes_of_a_seed_see_the_same_minibatches() -> None:
    settings = Training(batch_size=10, epochs=2)
    both = minibatches(COUNT, settings, [3, 4])
    assert [len(batch[0]) for batch in both] == [10, 10, 10, 7] * 2
    for place, seed in enumerate((3, 4)):
        own = minibatches(COUNT, settings, [seed])
        assert all(torch.equal(batch[place], alone[0]) for batch, alone in zip(both, own, strict=True))
    assert sorted(torch.cat([batch[0] for batch in both[:4]]).tolist()) == list(range(COUNT))
    assert not torch.equal(both[0][0], both[0][1])
    assert not torch.equal(both[0][0], both[4][0])


def test_gradients_are_those_of_autograd() -> None:
    stack = stack_networks([member.network for member in members()]).with_logit_std(0.5, data()[0].expand(12, -1, -1))
    inputs, targets = data()
    leaves = [parameter.requires_grad_() for parameter in stack.parameters]
    losses = stack.losses(inputs.expand(12, -1, -1), targets.expand(12, -1))
    expected = torch.autograd.grad(losses.sum() / COUNT, leaves)
    with torch.no_grad():
        found = stack.gradients(inputs.expand(12, -1, -1), targets.expand(12, -1))
    for factors, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(factors.product(), gradient, rtol=1e-10, atol=1e-14)


def test_logits_have_the_standard_deviation_asked_for() -> None:
    inputs = data()[0].expand(12, -1, -1)
    stack = stack_networks([member.network for member in members()]).with_logit_std(0.05, inputs)
    torch.testing.assert_close(stack.logits(inputs).flatten(1).std(1), torch.full((12,), 0.05, dtype=torch.float64))
    dead = mlp([FEATURES, 9, 5, CLASSES]).double()
    for parameter in dead.parameters():
        nn.init.zeros_(parameter)
    assert stack_networks([dead]).with_logit_std(0.05, inputs[:1]).logit_scale.item() == 1


def test_what_cannot_be_stacked_is_refused() -> None:
    with pytest.raises(HessdiagError, match="different shapes"):
        stack_networks([mlp([4, 3, 2]), mlp([4, 5, 2])])
    with pytest.raises(HessdiagError, match="without bias"):
        stack_networks([mlp([4, 3, 2], bias=False)])
    with pytest.raises(HessdiagError, match=r"unknown optimiser 'adma': did you mean adam\?"):
        make_optimizer("adma", [], torch.ones(1))
