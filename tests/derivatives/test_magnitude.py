"""Sums of squares, of values whose squares leave float32."""

import pytest
import torch

from hessdiag.derivatives.magnitude import PIECE, largest_entry, sum_of_squares


@pytest.mark.parametrize("count", [0, 1, PIECE - 1, PIECE, 2 * PIECE + 3])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_squares_are_summed_in_float64_by_pieces(count: int, size: float) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(0)) * size
    assert sum_of_squares(values) == pytest.approx(float(values.double().square().sum()), rel=1e-12)
    assert sum_of_squares(values.expand(3, -1).T) == pytest.approx(3 * sum_of_squares(values), rel=1e-12)


def test_the_largest_entry_is_found_in_any_order_of_memory() -> None:
    values = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    values[1, 2, 3] = -7.0
    for each in (values, values.permute(2, 0, 1), values[:, 1:, ::3], values[1:2].expand(6, 4, 5), values[1, 2, 3]):
        assert largest_entry(each) == 7.0
