"""Minibatches of several processes are parts of those of one."""

from pathlib import Path

import pytest
import torch

from hessdiag.datasets.image_folder import ImageSplit, read_image_split
from hessdiag.errors import OneRankError
from hessdiag.execution.ranks import ALONE, Ranks
from hessdiag.training.shared_minibatches import load, training_minibatches, validation_minibatches
from tests.training.images import write_images

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> ImageSplit:
    return read_image_split(write_images(tmp_path_factory.mktemp("images")))


def test_an_epoch_has_every_image_once_but_what_fills_no_minibatch(split: ImageSplit) -> None:
    batches = training_minibatches(split.train, side=8, batch_size=10, seed=0, epoch=0, ranks=ALONE)
    assert [len(chosen) for chosen in batches.chosen] == [10, 10]
    assert len({int(number) for chosen in batches.chosen for number in chosen}) == 20
    other = training_minibatches(split.train, side=8, batch_size=10, seed=0, epoch=1, ranks=ALONE)
    assert other.chosen[0].tolist() != batches.chosen[0].tolist()


def test_shares_put_together_are_the_minibatch(split: ImageSplit) -> None:
    def batches(ranks: Ranks) -> list[tuple[torch.Tensor, torch.Tensor]]:
        shared = training_minibatches(split.train, side=8, batch_size=12, seed=0, epoch=2, ranks=ranks)
        return list(load(shared, workers=0, device=CPU))

    shares = zip(*(batches(Ranks(rank, 3)) for rank in range(3)), strict=True)
    whole = batches(ALONE)
    assert len(whole) == 2
    for (x, t), parts in zip(whole, shares, strict=True):
        assert torch.equal(torch.cat([part[0] for part in parts]), x)
        assert torch.equal(torch.cat([part[1] for part in parts]), t)
        assert x.shape == (12, 3, 8, 8)


@pytest.mark.parametrize("size", [1, 3, 20])
def test_every_validation_image_is_seen_by_one_process(size: int, split: ImageSplit) -> None:
    seen = [
        int(number)
        for rank in range(size)
        for part in validation_minibatches(split.validation, side=8, batch_size=2, ranks=Ranks(rank, size)).chosen
        for number in part
    ]
    assert sorted(seen) == list(range(10))


def test_workers_decode_the_same_and_leave_the_global_generator_alone(split: ImageSplit) -> None:
    minibatches = training_minibatches(split.train, side=8, batch_size=12, seed=0, epoch=0, ranks=ALONE)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    here, there = (list(load(minibatches, workers=workers, device=CPU)) for workers in (0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    for (x, t), (again, targets) in zip(here, there, strict=True):
        assert torch.equal(x, again)
        assert torch.equal(t, targets)


def test_a_worker_names_the_image_that_it_cannot_read(tmp_path: Path) -> None:
    split = read_image_split(write_images(tmp_path / "images", train=2, val=1))
    (tmp_path / "images" / "train" / "dark" / "1.jpg").write_bytes(b"damaged")
    minibatches = training_minibatches(split.train, side=8, batch_size=4, seed=0, epoch=0, ranks=ALONE)
    with pytest.raises(OneRankError, match=r"^cannot read the image '[^\n]*dark/1.jpg' [^\n]*$"):
        list(load(minibatches, workers=1, device=CPU))
