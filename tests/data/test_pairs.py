"""Pairs of batches share no example, and are drawn again where the data end."""

import pytest
import torch

from hessdiag.data.batch import Batch
from hessdiag.data.pairs import examples_of, pairs_of
from hessdiag.errors import HessdiagError


def numbered(count: int, first: int = 0) -> Batch:
    return Batch.of(torch.arange(first, first + count).double().unsqueeze(1), None)


def numbers(batch: Batch) -> list[int]:
    return [int(value) for value in batch.args[0].flatten()]


def test_a_single_batch_is_drawn_from_without_repeats_until_it_ends() -> None:
    pairs = list(pairs_of([numbered(20)], count=5, batch_size=5, seed=0))
    drawn = [numbers(first) + numbers(second) for first, second in pairs]
    assert all(len(set(pair)) == 10 for pair in drawn)
    assert sorted(drawn[0] + drawn[1]) == sorted(drawn[2] + drawn[3]) == list(range(20))
    assert drawn[0] != drawn[2]


def test_few_examples_are_halved() -> None:
    assert examples_of([numbered(7)], 128) == 3
    ((first, second),) = pairs_of([numbered(7)], count=1, batch_size=128, seed=0)
    assert (first.size, second.size) == (3, 3)


def test_several_batches_take_turns() -> None:
    three = [numbered(2, 10 * i) for i in range(3)]
    pairs = [(numbers(a)[0], numbers(b)[0]) for a, b in pairs_of(three, count=3, batch_size=128, seed=0)]
    assert pairs == [(0, 10), (20, 0), (10, 20)]


def test_the_seed_says_what_is_drawn() -> None:
    def drawn(seed: int) -> list[int]:
        ((first, _),) = pairs_of([numbered(50)], count=1, batch_size=10, seed=seed)
        return numbers(first)

    assert drawn(1) == drawn(1) != drawn(2)


def test_one_example_is_refused() -> None:
    with pytest.raises(HessdiagError, match="one example"):
        list(pairs_of([numbered(1)], count=1, batch_size=4, seed=0))
