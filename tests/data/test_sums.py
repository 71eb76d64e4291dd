"""Sums over chunks do not depend on the chunks, which are halved when memory runs out."""

import numpy as np
import pytest
import torch

from hessdiag.data.batch import Batch
from hessdiag.data.memory import Sums, add, sum_over
from hessdiag.parallel.progress import showing

EIGHT = Batch.of(torch.arange(8.0), None)


def summed(part: Batch) -> Sums:
    return {"sum": np.array([float(part.args[0].sum())])}


def test_sums_do_not_depend_on_the_chunks() -> None:
    for size in (1, 3, 8):
        steps: list[str] = []
        with showing(steps.append, title="sums"):
            assert sum_over(list(EIGHT.chunks(size)), summed, step="sum")["sum"].tolist() == [28.0]
        assert steps == ["sum"] * -(-8 // size)
    assert add([{"a": np.ones(2)}])["a"].tolist() == [1, 1]


@pytest.mark.parametrize("fitting", [1, 2, 3, 8])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_chunk_that_does_not_fit_is_halved_until_it_does(fitting: int, error: Exception) -> None:
    sizes = []

    def measure(part: Batch) -> Sums:
        sizes.append(part.size)
        if part.size > fitting:
            raise error
        return summed(part)

    assert float(sum_over(list(EIGHT.chunks(5)), measure, step="sum")["sum"][0]) == 28.0
    assert sizes[0] == 5
    assert min(sizes) <= fitting


def test_what_halving_does_not_help_is_raised() -> None:
    def fail(message: str) -> Sums:
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="Tried to allocate 2 GiB"):
        sum_over(list(EIGHT.chunks(4)), lambda _: fail("CUDA out of memory. Tried to allocate 2 GiB"), step="sum")
    with pytest.raises(RuntimeError, match="shapes differ"):
        sum_over(list(EIGHT.chunks(4)), lambda _: fail("shapes differ"), step="sum")
