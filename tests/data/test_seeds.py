"""Streams of random numbers: one for each seed and purpose, the same every time."""

from itertools import product

import pytest
import torch

from hessdiag.data.seeds import gaussians, stream

PURPOSES = ("network", "weights", "inputs", "targets", "loss", "probes of fc1.weight")


def numbers(seed: int, purpose: str) -> tuple[float, ...]:
    return tuple(torch.randn(8, generator=stream(seed, purpose), dtype=torch.float64).tolist())


def test_streams_are_those_of_earlier_versions_apart_and_uncorrelated() -> None:
    """A saved result names its seed: drawing other numbers from it would make every file irreproducible."""
    assert stream(0, "loss").initial_seed() == 1242056742
    assert stream(1, "weights").initial_seed() == 3457768447
    seeds = [*range(20), 2**32, 2**32 + 1, 2**63 - 1]
    drawn = {numbers(seed, purpose) for seed, purpose in product(seeds, PURPOSES)}
    assert len(drawn) == len(seeds) * len(PURPOSES)
    assert numbers(1, "1/a") != numbers(11, "/a")
    draws = torch.stack([torch.randn(4000, generator=stream(0, purpose), dtype=torch.float64) for purpose in PURPOSES])
    correlation = torch.corrcoef(draws) - torch.eye(len(PURPOSES))
    assert correlation.abs().max() < 4 / 4000**0.5
    before = torch.get_rng_state()
    assert numbers(3, "loss") == numbers(3, "loss")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("high", [1, 5, 2**20])
def test_torch_ignores_high_bits_and_streams_do_not(high: int) -> None:
    """Adding `purpose << 32` to a seed gives the same numbers for all purposes (regression)."""
    low = torch.randn(4, generator=torch.Generator().manual_seed(7))
    also = torch.randn(4, generator=torch.Generator().manual_seed(7 + (high << 32)))
    assert torch.equal(low, also), "torch has changed: the hash to 32 bits can go"
    assert numbers(7, "loss") != numbers(7 + (high << 32), "loss")
    assert stream(7, "loss").initial_seed() < 2**32


@pytest.mark.parametrize("shape", [(3, 5), (4, 7, 9), (3, 2000)])
def test_an_example_is_given_the_same_alone(shape: tuple[int, ...]) -> None:
    both = gaussians(3, "test", [7, 8], shape)
    assert torch.equal(gaussians(3, "test", [8], shape), both[:, 1:])


@pytest.mark.parametrize("shape", [(1, 10), (2, 1500), (2, 3000)])
def test_neighbours_that_share_a_stream_are_given_other_numbers(shape: tuple[int, ...]) -> None:
    """In whatever order, across the ends of streams, and also where each has one of its own."""
    numbers_of = [*range(400, 420), 3, 1000, 2]
    every = gaussians(0, "test", range(1001), shape)
    assert torch.equal(gaussians(0, "test", numbers_of, shape), every[:, numbers_of])
    rows = every.transpose(0, 1).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows)
    some = rows[:50, :10]
    correlation = torch.corrcoef(rows.T[:10]) - torch.eye(10)
    assert correlation.abs().max() < 5 / len(rows) ** 0.5
    assert some.std() == pytest.approx(1, abs=0.15)
