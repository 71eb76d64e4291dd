"""Units are done once, in order, and halved when memory runs out."""

import numpy as np
import pytest
import torch

from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.execution.journal import Journal
from hessdiag.execution.work import Work, add

EIGHT = Batch.of(torch.arange(8.0), None)


def summed(part: Batch):
    return {"sum": np.array([float(part.args[0].sum())])}


def test_units_come_back_in_order_and_each_is_told_of() -> None:
    steps = []
    found = Work(progress=steps.append).each("squares", [3, 1, 2], lambda n: {"n": np.array(n * n)})
    assert [int(each["n"]) for each in found] == [9, 1, 4]
    assert steps == ["squares"] * 3


def test_a_unit_in_the_journal_is_not_done_again(tmp_path) -> None:
    asked = []

    def measure(n: int):
        asked.append(n)
        if n == 3 and len(asked) == 3:
            raise KeyboardInterrupt
        return {"n": np.array(n / 3)}

    for attempt in range(2):
        work = Work(journal=Journal(tmp_path / "run", {"of": "this"}))
        if attempt == 0:
            with pytest.raises(KeyboardInterrupt):
                work.each("thirds", [1, 2, 3], measure)
        else:
            assert [float(r["n"]) for r in work.each("thirds", [1, 2, 3], measure)] == [1 / 3, 2 / 3, 1.0]
    assert asked == [1, 2, 3, 3]


def test_scopes_tell_units_apart(tmp_path) -> None:
    work = Work(journal=Journal(tmp_path / "run", {}))
    for batch in ("first", "second"):
        (found,) = work.within(batch).each("unit", [batch], lambda name: {"name": np.array(name)})
        assert str(found["name"]) == batch


@pytest.mark.parametrize("fitting", [1, 2, 3, 8])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_chunk_that_does_not_fit_is_halved_until_it_does(fitting: int, error: Exception) -> None:
    sizes = []

    def measure(part: Batch):
        sizes.append(part.size)
        if part.size > fitting:
            raise error
        return summed(part)

    assert float(Work().total("sum", list(EIGHT.chunks(5)), measure)["sum"][0]) == 28.0
    assert sizes[0] == 5
    assert min(sizes) <= fitting


def test_one_example_that_does_not_fit_is_refused() -> None:
    def measure(part: Batch):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    with pytest.raises(HessdiagError, match="out of memory with a single example"):
        Work().total("sum", list(EIGHT.chunks(4)), measure)


def test_other_errors_pass_through() -> None:
    def measure(part: Batch):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        Work().total("sum", list(EIGHT.chunks(4)), measure)


def test_totals_do_not_depend_on_the_chunks() -> None:
    totals = [float(Work().total("sum", list(EIGHT.chunks(size)), summed)["sum"][0]) for size in (1, 3, 8)]
    assert totals == [28.0] * 3
    assert add([{"a": np.ones(2)}])["a"].tolist() == [1, 1]
