"""Pairs of batches share no example where the data allow it, and are drawn again where the data end."""

import torch

from hessdiag.data.batch import Batch
from hessdiag.diagnosis.batch_pairs import MIN_BATCHES, BatchPairs


def numbered(count: int, first: int = 0) -> Batch:
    return Batch.of(torch.arange(first, first + count).double().unsqueeze(1), None)


def numbers(batch: Batch) -> list[int]:
    return [int(value) for value in batch.args[0].flatten()]


def test_a_single_batch_is_drawn_from_without_repeats_until_it_ends() -> None:
    pairs = BatchPairs([numbered(20)], batch_size=2)
    drawn = [numbers(first) + numbers(second) for first, second in pairs.draw(10, seed=0)]
    assert (pairs.fresh, pairs.examples) == (True, 2)
    assert all(len(pair) == len(set(pair)) == 4 for pair in drawn)
    for turn in (drawn[:5], drawn[5:]):
        assert sorted(number for pair in turn for number in pair) == list(range(20))
    assert drawn[:5] != drawn[5:]


def test_several_batches_take_turns() -> None:
    pairs = BatchPairs([numbered(2, 10 * i) for i in range(MIN_BATCHES + 1)], batch_size=128)
    assert (pairs.fresh, pairs.examples) == (True, 2)
    drawn = [(numbers(a)[0], numbers(b)[0]) for a, b in pairs.draw(6, seed=0)]
    assert drawn == [(0, 10), (20, 30), (40, 50), (60, 70), (80, 0), (10, 20)]


def test_few_examples_are_all_taken_for_both() -> None:
    single = BatchPairs([numbered(15)], batch_size=2)
    several = BatchPairs([numbered(2, 2 * i) for i in range(MIN_BATCHES - 1)], batch_size=2)
    for pairs, size in ((single, 15), (several, 14)):
        assert (pairs.fresh, pairs.examples) == (False, size)
        assert [(numbers(a), numbers(b)) for a, b in pairs.draw(2, seed=0)] == [(list(range(size)),) * 2] * 2


def test_the_seed_says_what_is_drawn() -> None:
    def drawn(seed: int) -> list[int]:
        return numbers(next(BatchPairs([numbered(50)], batch_size=5).draw(1, seed=seed))[0])

    assert drawn(1) == drawn(1) != drawn(2)
