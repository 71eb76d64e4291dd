"""Training on images held as one tensor: the same minibatches for all networks of a seed, and what diverges."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream
from hessdiag.training.image_training import ImageTraining, augmented, minibatches, standardised, train

PLAIN = ImageTraining(rate=0.05, epochs=2, batch_size=4, augment=False)


def data(count: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, 6, 6, generator=generator), torch.randint(3, (count,), generator=generator)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 8), nn.ReLU(), nn.Linear(8, 3))


def test_it_is_the_plain_loop() -> None:
    (x, t), ours, theirs = data(), network(), network()
    losses = train(ours, x, t, PLAIN, seed=5)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    expected = []
    for epoch in range(2):
        order = torch.randperm(10, generator=stream(5, f"order of epoch {epoch}"))
        for start in (0, 4):  # two examples are left over
            chosen = order[start : start + 4]
            loss = F.cross_entropy(theirs(x[chosen]), t[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected.append(float(loss.detach()))
    assert losses.tolist() == pytest.approx(expected, rel=1e-6)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_rate_drops() -> None:
    x, t = data()
    dropped = train(network(), x, t, replace(PLAIN, drops=(1,)), seed=5)
    constant = train(network(), x, t, PLAIN, seed=5)
    assert dropped[:3].tolist() == constant[:3].tolist()
    assert dropped[3] != constant[3]


def test_what_diverges_is_infinite_from_there_on() -> None:
    x, t = data(40)
    losses = train(network(), x, t, replace(PLAIN, rate=1e6, epochs=8), seed=0)
    first = int((~losses.isfinite()).nonzero()[0])
    assert 0 < first < len(losses) == 80
    assert bool(losses[first:].isinf().all())


def test_minibatches_follow_from_the_seed_alone() -> None:
    x, t = data()
    settings = replace(PLAIN, augment=True)
    one, same, other = (list(minibatches(x, t, settings, seed=s, epoch=0)) for s in (3, 3, 4))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, same, strict=True))
    assert not torch.equal(one[0][0], other[0][0])


def test_augmentation_mirrors_and_shifts() -> None:
    x = torch.arange(1.0, 2 * 6 * 6 + 1).view(1, 2, 6, 6).expand(200, 2, 6, 6)
    found = augmented(x, torch.Generator().manual_seed(0))
    padded = F.pad(x[0], (4,) * 4)
    both = (padded, F.pad(x[0].flip(2), (4,) * 4))
    crops = {
        tuple(each[:, i : i + 6, j : j + 6].flatten().tolist()) for each in both for i in range(9) for j in range(9)
    }
    drawn = {tuple(image.flatten().tolist()) for image in found}
    assert drawn <= crops
    assert len(drawn) > 80  # of 162 kinds, 200 drawn


def test_pixels_are_standardised_by_channel() -> None:
    pixels = torch.randint(256, (50, 3, 4, 4), dtype=torch.uint8)
    x = standardised(pixels)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var((0, 2, 3)), torch.ones(3))


def test_too_few_images_are_refused() -> None:
    x, t = data(3)
    with pytest.raises(HessdiagError, match="only 3 images"):
        train(network(), x, t, PLAIN, seed=0)
    assert math.isfinite(float(train(network(), *data(4), PLAIN, seed=0)[-1]))
